//! Builds the probes into the binary. See `cargo xtask setup` for what that needs.

use std::{env, fs, path::Path};

use anyhow::{Context, Result};
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

fn main() -> Result<()> {
    // The probe crate is watched by aya-build; the records it shares with user space are not, and
    // an object with yesterday's layout would be read as today's.
    println!("cargo::rerun-if-changed=../../podstuck-common/src");
    println!("cargo::rerun-if-changed=../../podstuck-common/Cargo.toml");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let out = env::var_os("OUT_DIR").context("cargo sets OUT_DIR for build scripts")?;
    let object = Path::new(&out).join("podstuck-ebpf");
    let is_built = env::var_os("AYA_BUILD_SKIP").is_none();
    if !is_built {
        // For tools that only read the source: without an object there is nothing to load.
        fs::write(&object, [])?;
    }
    let toolchain = env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| "stable".into());
    // aya-build prints this cargo's output as warnings: its progress would be forty of them.
    let for_cargo = [
        ("CARGO_TERM_QUIET", "true"),
        ("RUSTC_BOOTSTRAP", "1"),
        ("CARGO_UNSTABLE_TRIM_PATHS", "true"),
        ("CARGO_PROFILE_RELEASE_TRIM_PATHS", "all"),
    ];
    for (name, value) in for_cargo {
        // SAFETY: a build script has one thread here, so no other thread reads the environment meanwhile.
        unsafe { env::set_var(name, value) };
    }
    aya_build::build_ebpf(
        [aya_build::Package {
            name: "podstuck-ebpf",
            root_dir: "../../podstuck-ebpf",
            ..Default::default()
        }],
        aya_build::Toolchain::Custom(&toolchain),
    )?;
    if is_built { strip(&object) } else { Ok(()) }
}

/// Removes what only debuggers read: four fifths of the object, which is locked in memory with the program. Lines of
/// the source, for the verifier's messages, are in its BTF.
fn strip(path: &Path) -> Result<()> {
    let object = fs::read(path)?;
    let mut object = Builder::read(&*object).context("the linker's object cannot be read")?;
    for section in &mut object.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    // The linker keeps all names in one section, and this writer needs two.
    let names = object.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    object.write(&mut stripped).context("the probes' object cannot be written")?;
    Ok(fs::write(path, stripped)?)
}
