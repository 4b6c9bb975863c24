//! The project's own commands, run as `cargo xtask COMMAND`.

mod bench;
mod build;
mod cargo_tool;
mod demo;
mod deny;
mod lint;
mod private_apt;
mod process;
mod rust_src;
mod setup;
mod test;
mod tools;
mod totals;
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
    Test {
        /// Run only the tests whose name contains this, and do not lint
        filter: Option<String>,
    },
    /// Check the formatting, clippy's lints and the dependencies
    Lint,
    /// Check the licences and the origin of the dependencies
    Deny,
    /// Measure what tracers cost, side by side
    Bench(bench::Options),
    /// Show a diagnosis of a lab case, with its histogram files
    Demo,
    /// Test on other kernels, in virtual machines
    Vm {
        #[command(subcommand)]
        command: vm::Command,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not as `main` would print it: that adds a backtrace, which helps nobody here.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let workspace = Workspace::locate()?;
    match command {
        Command::Setup => setup::run(&workspace),
        Command::Build(options) => build::run(&workspace, options),
        Command::Test { filter } => test::run(&workspace, filter.as_deref()),
        Command::Lint => lint::run(&workspace).and_then(|()| deny::run(&workspace)),
        Command::Deny => deny::run(&workspace),
        Command::Bench(options) => bench::run(&workspace, options),
        Command::Demo => demo::run(&workspace),
        Command::Vm { command } => vm::run(&workspace, command),
    }
}
