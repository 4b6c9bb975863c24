//! `cargo xtask build`: the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::setup::{self, Rustc};
use crate::workspace::Workspace;
use podstuck_process as process;

const STATIC: &str = "-C target-feature=+crt-static";

/// How to build.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Optimize
    #[arg(long)]
    pub(crate) release: bool,
    /// Link statically: the program then runs on a node of any distribution
    #[arg(long = "static")]
    pub(crate) link_statically: bool,
}

/// Builds, and prints where the program is.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    println!("{}", program(workspace, options)?.display());
    Ok(())
}

/// Builds, and returns where the program is.
pub(crate) fn program(workspace: &Workspace, options: &Options) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(["build", "--package", "podstuck-user", "--bin", "podstuck"]);
    let mut folder = workspace.target.clone();
    if options.release {
        cargo.arg("--release");
    }
    if options.link_statically {
        folder.push(link_statically(workspace, &mut cargo)?);
    }
    process::run(&mut cargo)?;
    let profile = Path::new(if options.release { "release" } else { "debug" });
    Ok(folder.join(profile).join("podstuck"))
}

/// Builds the program as the tests are built, from the whole workspace: cargo then compiles what they
/// share once. Returns where it is.
pub(crate) fn beside_tests(workspace: &Workspace) -> Result<PathBuf> {
    process::run(&mut workspace.cargo(["build", "--workspace", "--bin", "podstuck"]))?;
    Ok(workspace.target.join("debug/podstuck"))
}

/// Builds all tests.
pub(crate) fn tests(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(["test", "--workspace", "--no-run"]))
}

/// Has cargo link statically; returns the name of the folder that it then puts programs in.
pub(crate) fn link_statically(workspace: &Workspace, cargo: &mut Command) -> Result<String> {
    // With the target named, the flag spares build scripts and procedural macros: those are
    // loaded by the compiler and cannot be static.
    let target = format!("{}-unknown-linux-gnu", Rustc::locate(workspace)?.architecture);
    cargo.args(["--target", &target]);
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{flags} {STATIC}").trim_start());
    Ok(target)
}
