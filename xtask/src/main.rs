//! The project's own commands, run as `cargo xtask COMMAND`.

mod architecture;
mod bench;
mod bpf_linker;
mod build;
mod cargo_tool;
mod cause;
mod checksum;
mod copy;
mod daemons;
mod demo;
mod deny;
mod dist;
mod docs;
mod fuzz;
mod lint;
mod musl;
mod node;
mod pictures;
mod reproduce;
mod rust_src;
mod sbom;
mod setup;
mod test;
mod tools;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Get what the build of the probes needs, where it is missing
    Setup,
    /// Build podstuck
    Build(build::Options),
    /// Lint, then run every test; install what the tests need, where it is missing
    Test(test::Options),
    /// Check the formatting, clippy's lints and the dependencies
    Lint,
    /// Check the licences, the origin and the known faults of the dependencies
    Deny,
    /// Try the parsers of foreign input with inputs made at random
    Fuzz(fuzz::Options),
    /// Build the static program in two places, and compare
    Reproduce,
    /// Make all by which podstuck gets onto a node: tarballs, packages, an image, a plugin for kubectl
    Dist(dist::Options),
    /// Make the files of a new cause, or run the tests of one
    Cause {
        #[command(subcommand)]
        command: cause::Command,
    },
    /// Write the catalogue of causes into the documents, or check that it stands there
    Docs(docs::Options),
    /// Measure what tracers cost, side by side
    #[command(disable_help_flag = true)]
    Bench(bench::Options),
    /// Show a diagnosis of a lab case, with its histogram files
    Demo,
    /// Make the pictures of the documents again, of a lab case in a real terminal
    Pictures(pictures::Options),
    /// Start and end a real Kubernetes node on this machine, or test with it
    Node {
        #[command(subcommand)]
        command: node::Command,
    },
    /// Run the tests with real runtimes with the Docker and containerd of another release of Debian's
    Daemons(daemons::Options),
    /// Test on other kernels, in virtual machines
    Vm {
        #[command(subcommand)]
        command: vm::Command,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // Without the backtrace that returning the error from `main` would add.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    let workspace = Workspace::locate()?;
    match command {
        Command::Setup => setup::run(&workspace),
        Command::Build(options) => build::run(&workspace, options),
        Command::Test(options) => test::run(&workspace, options),
        Command::Lint => lint::run(&workspace).and_then(|()| deny::run(&workspace)),
        Command::Deny => deny::run(&workspace),
        Command::Fuzz(options) => fuzz::run(&workspace, options),
        Command::Reproduce => reproduce::run(&workspace),
        Command::Dist(options) => dist::run(&workspace, options),
        Command::Cause { command } => cause::run(&workspace, command),
        Command::Docs(options) => docs::run(&workspace, options),
        Command::Bench(options) => return bench::run(&workspace, options),
        Command::Demo => demo::run(&workspace),
        Command::Pictures(options) => pictures::run(&workspace, options),
        Command::Node { command } => return node::run(&workspace, command),
        Command::Daemons(options) => return daemons::run(&workspace, options),
        Command::Vm { command } => vm::run(&workspace, command),
    }
    .map(|()| ExitCode::SUCCESS)
}
