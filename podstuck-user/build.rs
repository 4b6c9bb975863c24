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
    // SAFETY: a build script has one thread here, so nobody reads the environment meanwhile.
    // `build-std` is the one unstable feature in use, for `core` on the BPF target.
    unsafe { std::env::set_var("RUSTC_BOOTSTRAP", "1") };
    aya_build::build_ebpf(
        [aya_build::Package {
            name: "podstuck-ebpf",
            root_dir: "../podstuck-ebpf",
            ..Default::default()
        }],
        aya_build::Toolchain::Custom(&toolchain),
    )
}
