//! `cargo xtask node`: a real Kubernetes node on this machine, for tests and experiments.
//!
//! A separate crate, `tests/node`, creates it, so that the other commands do not wait for its libraries.

use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};

use anyhow::{Context, Result, bail};
use podstuck_process as process;

use crate::workspace::Workspace;
use crate::{setup, test};

/// What to do with the node.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Only build Kubernetes, if that has not been done on this machine
    Build,
    /// Start a node and leave it running
    Up(Options),
    /// End the node and remove everything of it
    Down,
    /// Start a node, run a command with its KUBECONFIG, and end the node
    Run {
        #[command(flatten)]
        options: Options,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Start a node, run the tests that need one, and end it
    Test {
        /// Only the tests whose name contains this
        filter: Option<String>,
    },
}

/// How the node is made.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What runs the containers
    #[arg(long, default_value = "containerd", value_parser = ["containerd", "docker"])]
    runtime: String,
}

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, command: &Command) -> Result<ExitCode> {
    let program = program(workspace)?;
    let start = |words: &[&str], more: &[String]| {
        let mut node = Process::new(&program);
        node.args(words).args(more);
        let status = node.status();
        let status = status.with_context(|| format!("cannot start `{}`", process::show(&node)))?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    };
    match command {
        Command::Build => start(&["build"], &[]),
        Command::Up(options) => start(&["up", "--runtime", &options.runtime], &[]),
        Command::Down => start(&["down"], &[]),
        Command::Run { options, command } => {
            start(&["run", "--runtime", &options.runtime, "--"], command)
        }
        Command::Test { filter } => {
            setup::run(workspace)?;
            process::run(Process::new(&program).arg("build"))?;
            test::on_the_node(workspace, filter.as_deref()).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// The program that creates nodes, with the tests' CSI driver next to it.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    let packages = ["--package", "podstuck-test-node", "--package", "podstuck-csi-driver"];
    process::run(workspace.cargo(["build", "--quiet"]).args(packages))?;
    let program = workspace.target.join("debug/podstuck-test-node");
    if !program.is_file() {
        bail!("cargo built no {}", program.display());
    }
    Ok(program)
}
