//! `podstuck-test-node`: starts and ends a real Kubernetes node. `cargo xtask node` builds it and what it
//! needs, and runs it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use podstuck_test_node::{Node, Runtime, build};

/// A real Kubernetes node on this machine
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Todo,
}

#[derive(Subcommand)]
enum Todo {
    /// Only build Kubernetes, if that has not been done on this machine
    Build,
    /// Start it
    Up {
        /// What runs the containers
        #[arg(long, value_enum, default_value_t)]
        runtime: Runtime,
    },
    /// End it
    Down,
    /// Start it, run a command with its KUBECONFIG, and end it
    Run {
        /// What runs the containers
        #[arg(long, value_enum, default_value_t)]
        runtime: Runtime,
        /// The command
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(todo: Todo) -> Result<ExitCode> {
    match todo {
        Todo::Build => build::ensure()?,
        Todo::Up { runtime } => {
            build::ensure()?;
            let node = up(runtime)?;
            println!("the node is up: export KUBECONFIG={}", node.kubeconfig().display());
        }
        Todo::Down => match Node::running()? {
            Some(node) => node.down()?,
            None => println!("no node is up"),
        },
        Todo::Run { runtime, command } => {
            let [program, args @ ..] = &command[..] else { bail!("no command") };
            build::ensure()?;
            let node = up(runtime)?;
            let status =
                Command::new(program).args(args).env("KUBECONFIG", node.kubeconfig()).status();
            node.down()?;
            let status = status.with_context(|| format!("starting {program}"))?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// With what cargo has put beside us.
fn up(runtime: Runtime) -> Result<Node> {
    let own = env::current_exe().context("looking for the programs beside this one")?;
    let beside =
        ["podstuck", "podstuck-csi-driver", "podstuck-fuse"].map(|name| own.with_file_name(name));
    let there: Vec<&Path> =
        beside.iter().map(PathBuf::as_path).filter(|program| program.is_file()).collect();
    Node::up(runtime, &there)
}
