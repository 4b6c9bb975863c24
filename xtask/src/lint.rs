//! `cargo xtask lint`: the formatting, and clippy on both sides of the kernel's border.

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{docs, setup};
use podstuck_process as process;

/// The kernel's lowest priority.
const LOWEST: i32 = 19;

/// Checks; the first complaint is an error.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    texts(workspace)?;
    clippy(workspace)
}

/// What takes no compiler.
pub(crate) fn texts(workspace: &Workspace) -> Result<()> {
    println!("checking the formatting");
    process::run(&mut workspace.cargo(["fmt", "--all", "--check"]))
        .context("the formatting is off; `cargo fmt --all` sets it right")?;
    docs::check(workspace)
}

/// Compiles for the lints, in folders of their own: nothing else waits for that, and nothing is compiled again after
/// it.
pub(crate) fn clippy(workspace: &Workspace) -> Result<()> {
    println!("clippy on the workspace");
    let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let mut all = workspace.cargo(all);
    // No program is linked, so that none needs the probes.
    all.env("AYA_BUILD_SKIP", "1");
    all.env("CARGO_TARGET_DIR", workspace.target.join("clippy"));
    process::run(&mut all)?;
    println!("clippy on the probes");
    let mut probes = workspace.cargo([
        "clippy",
        "--package",
        "podstuck-ebpf",
        "--target",
        "bpfel-unknown-none",
        "-Z",
        "build-std=core",
        "--",
        "-D",
        "warnings",
    ]);
    // Allows `-Z` on a stable compiler, as the build of the probes does. It changes what every
    // build script sees, so that a shared target folder would be rebuilt at each turn.
    probes.env("RUSTC_BOOTSTRAP", "1");
    probes.env("CARGO_TARGET_DIR", workspace.target.join("clippy-ebpf"));
    process::run(&mut probes)
}

/// The same at the lowest priority, for a thread of its own. Only what is wrong is printed.
pub(crate) fn clippy_beside(workspace: &Workspace) -> Result<()> {
    // Of this thread alone, and of what it starts (setpriority(2), "NOTES").
    rustix::process::nice(LOWEST).context("cannot lower the priority")?;
    clippy(workspace)
}
