//! The linker of the probes, at the release that matches the compiler.
//!
//! It reads rustc's bitcode, so its LLVM must not be older than rustc's. Up to 0.10 it can use rustc's own LLVM,
//! which needs no installation; later releases require an installed one.

use anyhow::{Result, bail};

use crate::cargo_tool::CargoTool;
use crate::setup::Rustc;
use crate::workspace::Workspace;

/// The last release that was tested with the probes.
const VERSION: &str = "0.10.3";

/// For each LLVM of rustc, the features with which this release uses it. Its manifest has features for 20, 21 and 22;
/// tested with 22, which is rustc 1.95's.
const THROUGH_RUSTC: [(u32, &[&str]); 3] =
    [(20, &["llvm-20", "rust-llvm-20"]), (21, &["llvm-21", "rust-llvm-21"]), (22, &[])];

/// Installs the linker, unless it is installed.
pub(crate) fn ensure(rustc: &Rustc, workspace: &Workspace) -> Result<()> {
    match fitting(rustc.llvm) {
        Some(tool) => tool.ensure(workspace),
        None => accept_installed(rustc),
    }
}

/// The release for rustc's LLVM, if there is one.
fn fitting(llvm: u32) -> Option<CargoTool> {
    let (_, features) = THROUGH_RUSTC.into_iter().find(|(known, _)| *known == llvm)?;
    Some(CargoTool { name: "bpf-linker", version: VERSION, features })
}

/// For a compiler without a known release, accepts any installed linker.
fn accept_installed(rustc: &Rustc) -> Result<()> {
    let Rustc { version, llvm, .. } = rustc;
    if let Some(installed) = CargoTool::installed_version("bpf-linker") {
        println!("bpf-linker {installed}: there; not tried with rustc {version} (LLVM {llvm})");
        return Ok(());
    }
    bail!("{}", unknown(version, *llvm))
}

fn unknown(rustc: &str, llvm: u32) -> String {
    let known: Vec<String> = THROUGH_RUSTC.iter().map(|(llvm, _)| llvm.to_string()).collect();
    let known = known.join(", ");
    format!(
        "no known bpf-linker links through the LLVM of rustc {rustc}, which is {llvm}: {VERSION} \
         does with LLVM {known}, and later ones with none of rustc's.\n\
         Either use a compiler with one of those (rustc 1.95 has 22; with rustup: `rustup \
         override set 1.95`), or install LLVM {llvm} with its development files and a bpf-linker \
         built with it (`cargo install bpf-linker`, whose documentation says which LLVM it wants): \
         what is on PATH is then taken as it is"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_llvm_has_a_release_and_its_features() {
        let tool = fitting(22).unwrap();
        assert_eq!((tool.name, tool.version), ("bpf-linker", VERSION));
        assert!(tool.features.is_empty(), "22 is that release's default");
        assert_eq!(fitting(21).unwrap().features, ["llvm-21", "rust-llvm-21"]);
    }

    #[test]
    fn an_unknown_llvm_is_named_with_what_is_known_and_what_to_do() {
        assert!(fitting(23).is_none());
        let message = unknown("1.98.0", 23);
        for part in ["rustc 1.98.0", "23", "20, 21, 22", VERSION, "rustup override", "PATH"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
