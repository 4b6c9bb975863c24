//! `cargo xtask build`: the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::cargo_tool::cargo_home;
use crate::musl;
use crate::sbom;
use crate::setup::{self, Rustc};
use crate::workspace::Workspace;
use podstuck_process as process;

const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];

/// Default name of a release's image.
pub(crate) const IMAGE: &str = "docker.io/library/podstuck";

/// How to build.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Optimize
    #[arg(long)]
    pub(crate) release: bool,
    /// Link statically: the program then runs on a node of any distribution
    #[arg(long = "static")]
    pub(crate) link_statically: bool,
    /// For nodes with these processors, statically; else with this machine's
    #[arg(long, value_name = "ARCHITECTURE")]
    pub(crate) arch: Option<Architecture>,
    /// The plugin for kubectl in its place, optimized and static
    #[arg(long, conflicts_with_all = ["sbom", "link_statically", "release"])]
    pub(crate) plugin: bool,
    /// Write beside it what it is made of (CycloneDX)
    #[arg(long)]
    pub(crate) sbom: bool,
}

/// Builds the program and prints its path.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.plugin {
        let architecture = options.arch.unwrap_or(Architecture::own());
        println!("{}", plugin(workspace, architecture, IMAGE)?.display());
        return Ok(());
    }
    setup::run(workspace)?;
    let program = program(workspace, options)?;
    if options.sbom {
        let folder = program.parent().context("a program lies in a folder")?;
        for list in sbom::write(workspace, folder, options.arch.unwrap_or(Architecture::own()))? {
            println!("{}", list.display());
        }
    }
    println!("{}", program.display());
    Ok(())
}

/// Builds the program and returns its path.
pub(crate) fn program(workspace: &Workspace, options: &Options) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(["build", "--package", "podstuck-user", "--bin", "podstuck"]);
    let mut folder = workspace.target.clone();
    if options.release {
        cargo.arg("--release");
    }
    if options.link_statically || options.arch.is_some() {
        let architecture = options.arch.unwrap_or(Architecture::own());
        folder.push(link_statically(workspace, &mut cargo, architecture)?);
    }
    process::run(&mut cargo)?;
    let profile = Path::new(if options.release { "release" } else { "debug" });
    Ok(folder.join(profile).join("podstuck"))
}

/// Builds the plugin for kubectl, which contains the image's name; returns its path.
pub(crate) fn plugin(
    workspace: &Workspace,
    architecture: Architecture,
    image: &str,
) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(["build", "--release", "--package", "podstuck-cluster"]);
    cargo.env("PODSTUCK_IMAGE_NAME", image);
    client(workspace, cargo, architecture, "kubectl-podstuck")
}

/// Builds the agent; returns its path.
pub(crate) fn agent(workspace: &Workspace, architecture: Architecture) -> Result<PathBuf> {
    let cargo = workspace.cargo(["build", "--release", "--package", "podstuck-agent"]);
    client(workspace, cargo, architecture, "podstuck-agent")
}

/// Builds a client of the API server, statically linked and with its own name resolution; returns its path.
fn client(
    workspace: &Workspace,
    mut cargo: Command,
    architecture: Architecture,
    program: &str,
) -> Result<PathBuf> {
    let target = musl::link(workspace, &mut cargo, architecture)?;
    process::run(&mut cargo)?;
    Ok(workspace.target.join(target).join("release").join(program))
}

/// Builds the program like the tests, from the whole workspace, so that cargo compiles their common parts once.
/// Returns its path.
pub(crate) fn beside_tests(workspace: &Workspace) -> Result<PathBuf> {
    process::run(&mut workspace.cargo([
        "build",
        "--workspace",
        "--bin",
        "podstuck",
        "--bin",
        "kubectl-podstuck",
        "--bin",
        "podstuck-agent",
    ]))?;
    Ok(workspace.target.join("debug/podstuck"))
}

/// Makes cargo link statically for this architecture and omit build paths; returns the name of the folder for the
/// programs.
pub(crate) fn link_statically(
    workspace: &Workspace,
    cargo: &mut Command,
    architecture: Architecture,
) -> Result<String> {
    let rustc = Rustc::locate(workspace)?;
    // With an explicit target, the flag does not apply to build scripts and procedural macros: the compiler loads
    // those, so they cannot be static.
    let target = architecture.target();
    cargo.args(["--target", &target]);
    if architecture != Architecture::own() {
        cross(&rustc, cargo, architecture)?;
    }
    set_flags(workspace, &rustc, cargo, &STATIC);
    Ok(target)
}

/// Adds these flags to the environment's compiler flags, and makes the compiler omit build paths.
pub(crate) fn set_flags(workspace: &Workspace, rustc: &Rustc, cargo: &mut Command, more: &[&str]) {
    let given = env::var("RUSTFLAGS").unwrap_or_default();
    let mut flags: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    // The last matching option counts.
    let crates = cargo_home().map(|home| (home, "/cargo"));
    let library = (rustc.sysroot.join("lib/rustlib/src/rust"), "/rust");
    for (folder, name) in crates.into_iter().chain([library, (workspace.root.clone(), "/podstuck")])
    {
        flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
    }
    // A path may contain blanks.
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
}

/// Makes cargo use the cross linker, and build the standard library if rustup has none for the target.
fn cross(rustc: &Rustc, cargo: &mut Command, architecture: Architecture) -> Result<()> {
    let (target, linker) = (architecture.target(), architecture.linker());
    if process::find(&linker).is_none() {
        bail!(
            "no `{linker}`; on Debian, as root: `apt-get install --no-install-recommends {}`",
            architecture.linker_packages().join(" ")
        );
    }
    let variable = target.to_ascii_uppercase().replace('-', "_");
    cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), linker);
    if !rustc.sysroot.join("lib/rustlib").join(&target).join("lib").is_dir() {
        // As for the probes: see `podstuck-user/probe/build.rs`.
        cargo.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
    }
    Ok(())
}
