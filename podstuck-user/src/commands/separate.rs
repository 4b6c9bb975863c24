//! `podstuck cluster`: executes the program for the whole cluster, which is a separate file.

use std::{io::ErrorKind, os::unix::process::CommandExt, process::Command};

use anyhow::anyhow;

use crate::{cli::Cluster, outcome::Failure};

const PROGRAM: &str = "kubectl-podstuck";

/// Executes that program; returns only when that fails.
pub fn run(options: &Cluster) -> Failure {
    let error = Command::new(PROGRAM).args(&options.arguments).exec();
    Failure::CannotRun(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{PROGRAM} is not in PATH: install it from the archive {PROGRAM}-{}-linux-ARCH.tar.gz of this \
             release (it also runs on a workstation: it needs neither a node nor root)",
            env!("CARGO_PKG_VERSION")
        ),
        _ => anyhow!("cannot start {PROGRAM}: {error}"),
    })
}
