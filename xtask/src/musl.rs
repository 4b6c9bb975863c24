//! Static programs with their own name resolution. A static glibc program loads parts of the machine's glibc for
//! that, which must exist in the same version; a musl program does not.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;

use crate::architecture::Architecture;
use crate::build;
use crate::setup::Rustc;
use crate::workspace::Workspace;

/// Debian's wrapper of the machine's compiler.
const COMPILER: &str = "musl-gcc";

const NO_OBJECT: &str =
    "int _dl_find_object(void *pc, void *found) { (void)pc; (void)found; return -1; }\n";

/// Makes cargo link with musl; returns the name of the folder for the programs. There is no such compiler for other
/// architectures: those use glibc.
pub(crate) fn link(
    workspace: &Workspace,
    cargo: &mut Command,
    architecture: Architecture,
) -> Result<String> {
    if architecture != Architecture::own() {
        return build::link_statically(workspace, cargo, architecture);
    }
    if process::find(COMPILER).is_none() {
        bail!(
            "no `{COMPILER}`; on Debian, as root: `apt-get install --no-install-recommends musl-tools`"
        );
    }
    let rustc = Rustc::locate(workspace)?;
    let target = format!("{}-unknown-linux-musl", architecture.of_rust());
    let variable = target.to_ascii_uppercase().replace('-', "_");
    cargo.args(["--target", &target]);
    cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), COMPILER);
    cargo.env(format!("CC_{}", target.replace('-', "_")), COMPILER);
    // The wrapper does not support static position-independent programs.
    let mut flags = vec!["-Ctarget-feature=+crt-static", "-Crelocation-model=static"];
    let folder = format!("-Lnative={}", workspace.target.join("musl").display());
    if !rustc.sysroot.join("lib/rustlib").join(&target).join("lib").is_dir() {
        // As for the probes: see `podstuck-user/probe/build.rs`.
        cargo.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
        unwinder(workspace)?;
        flags.extend(["-Clink-self-contained=no", "-Cpanic=abort", &folder]);
    }
    build::set_flags(workspace, &rustc, cargo, &flags);
    Ok(target)
}

/// The standard library links LLVM's unwinder by its name. GCC's has the same functions, but asks glibc for the
/// object of a function. The stub reports none: a panic then ends the program at once, with its
/// message.
fn unwinder(workspace: &Workspace) -> Result<()> {
    let own = process::output(Command::new(COMPILER).arg("-print-file-name=libgcc_eh.a"))?;
    let folder = workspace.target.join("musl");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let (source, object) = (folder.join("none.c"), folder.join("none.o"));
    let library = folder.join("libunwind.a");
    fs::write(&source, NO_OBJECT).context("writing the unwinder's answer")?;
    process::run(Command::new(COMPILER).args(["-O2", "-c", "-o"]).arg(&object).arg(&source))?;
    fs::copy(own.trim(), &library).context("copying GCC's unwinder")?;
    process::run(Command::new("ar").arg("rs").arg(&library).arg(&object))
}
