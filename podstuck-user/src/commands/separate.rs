//! `podstuck cluster` and `podstuck agent`: execute the programs that are separate files of a release.

use std::{ffi::OsString, io::ErrorKind, os::unix::process::CommandExt, process::Command};

use anyhow::anyhow;

use crate::outcome::Failure;

/// A program, and where it is to be had.
struct Program {
    name: &'static str,
    from: &'static str,
}

const CLUSTER: Program = Program {
    name: "kubectl-podstuck",
    from: concat!(
        "from the archive kubectl-podstuck-",
        env!("CARGO_PKG_VERSION"),
        "-linux-ARCH.tar.gz of this release (it also runs on a workstation: it needs neither a node nor root)"
    ),
};

const AGENT: Program = Program {
    name: "podstuck-agent",
    from: "from the container image of this release, which the Helm chart runs on every node, or by `cargo build \
           --release --package podstuck-agent`",
};

/// Executes the program for the whole cluster; returns only when that fails.
pub fn cluster(arguments: &[OsString]) -> Failure {
    execute(&CLUSTER, arguments)
}

/// Executes the program that runs for as long as the node does; returns only when that fails.
pub fn agent(arguments: &[OsString]) -> Failure {
    execute(&AGENT, arguments)
}

fn execute(program: &Program, arguments: &[OsString]) -> Failure {
    let Program { name, from } = program;
    let error = Command::new(name).args(arguments).exec();
    Failure::CannotRun(match error.kind() {
        ErrorKind::NotFound => anyhow!("{name} is not in PATH: install it {from}"),
        _ => anyhow!("cannot start {name}: {error}"),
    })
}
