//! `cargo xtask lint`: the formatting, and clippy on both sides of the kernel's border.

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{docs, setup};
use podstuck_process as process;

/// Checks; the first complaint is an error.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    check(workspace)
}

/// Checks, on a machine that is set up.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    println!("checking the formatting");
    process::run(&mut workspace.cargo(["fmt", "--all", "--check"]))
        .context("the formatting is off; `cargo fmt --all` sets it right")?;
    docs::check(workspace)?;
    println!("clippy on the workspace");
    process::run(&mut workspace.cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
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
