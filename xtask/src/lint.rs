//! `cargo xtask lint`: checks the formatting, and runs clippy on user space and on the probes.

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{docs, setup};
use podstuck_process as process;

/// The kernel's lowest priority.
const LOWEST: i32 = 19;

/// Runs all checks; stops at the first failure.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    texts(workspace)?;
    clippy(workspace)
}

/// The checks that need no compiler.
pub(crate) fn texts(workspace: &Workspace) -> Result<()> {
    println!("checking the formatting");
    process::run(&mut workspace.cargo(["fmt", "--all", "--check"]))
        .context("the formatting is off; `cargo fmt --all` sets it right")?;
    docs::check(workspace)
}

/// Runs clippy with target folders of its own: it blocks no other build and causes no recompilation.
pub(crate) fn clippy(workspace: &Workspace) -> Result<()> {
    println!("clippy on the workspace");
    let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let mut all = workspace.cargo(all);
    // No program is linked, so the probes are not needed.
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
    // Permits `-Z` on a stable compiler, like the build of the probes. It changes the environment of every build
    // script, so a shared target folder would be rebuilt each time.
    probes.env("RUSTC_BOOTSTRAP", "1");
    probes.env("CARGO_TARGET_DIR", workspace.target.join("clippy-ebpf"));
    process::run(&mut probes)
}

/// Runs clippy at the lowest priority, in a thread of its own. Only errors are printed.
pub(crate) fn clippy_beside(workspace: &Workspace) -> Result<()> {
    // Applies to this thread and its children only (setpriority(2), "NOTES").
    rustix::process::nice(LOWEST).context("cannot lower the priority")?;
    clippy(workspace)
}
