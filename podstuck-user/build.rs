//! Builds the probes into the binary. See `cargo xtask setup` for what that needs.

use anyhow::{Context, Result};

fn main() -> Result<()> {
    // The probe crate is watched by aya-build; the records it shares with user space are not, and
    // an object with yesterday's layout would be read as today's.
    println!("cargo::rerun-if-changed=../podstuck-common/src");
    println!("cargo::rerun-if-changed=../podstuck-common/Cargo.toml");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    if std::env::var_os("AYA_BUILD_SKIP").is_some() {
        // For tools that only read the source: without an object there is nothing to load.
        let out = std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR for build scripts")?;
        std::fs::write(std::path::Path::new(&out).join("podstuck-ebpf"), [])?;
    }
    let toolchain = std::env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| "stable".into());
    // Two unstable features are in use for the BPF target: `build-std`, for `core`; and `trim-paths`, since the
    // object's BTF names the source of each line, and must not say where it was built.
    let unstable = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("CARGO_UNSTABLE_TRIM_PATHS", "true"),
        ("CARGO_PROFILE_RELEASE_TRIM_PATHS", "all"),
    ];
    for (name, value) in unstable {
        // SAFETY: a build script has one thread here, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    aya_build::build_ebpf(
        [aya_build::Package {
            name: "podstuck-ebpf",
            root_dir: "../podstuck-ebpf",
            ..Default::default()
        }],
        aya_build::Toolchain::Custom(&toolchain),
    )
}
