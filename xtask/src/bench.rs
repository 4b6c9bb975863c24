//! `cargo xtask bench`: builds the measured programs, and starts the measuring crate.
//!
//! That crate is separate because only it needs libraries for drawing and statistics.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use podstuck_process as process;

use crate::workspace::Workspace;
use crate::{build, setup};

/// Everything after `bench`: the other crate reads it.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds everything, and measures.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let bench = program(workspace, "podstuck-bench", "podstuck-bench", false)?;
    let start = |environment: &[(&str, &OsStr)]| {
        let mut command = Command::new(&bench);
        command.args(&options.arguments).envs(environment.iter().copied());
        let status = command.status();
        status.with_context(|| format!("cannot start `{}`", process::show(&command)))
    };
    // Errors in the arguments are reported before the build, which takes minutes.
    let status = start(&[("PODSTUCK_BENCH_CHECK", "1".as_ref())])?;
    let help = |word: &String| matches!(word.as_str(), "help" | "--help" | "-h");
    if !status.success() || options.arguments.iter().any(help) {
        return Ok(code(status));
    }
    setup::run(workspace)?;
    let podstuck =
        build::program(workspace, &build::Options { release: true, ..Default::default() })?;
    let workload = program(workspace, "podstuck-tests", "podstuck-workload", true)?;
    let stuck = program(workspace, "podstuck-tests", "podstuck-stuck", true)?;
    let results = workspace.target.join("bench");
    start(&[
        ("PODSTUCK_BIN", podstuck.as_os_str()),
        ("PODSTUCK_WORKLOAD_BIN", workload.as_os_str()),
        ("PODSTUCK_STUCK_BIN", stuck.as_os_str()),
        ("PODSTUCK_BENCH_RESULTS", results.as_os_str()),
    ])
    .map(code)
}

/// The measuring program has already reported its error.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Builds a program of the workspace, and returns its path.
fn program(workspace: &Workspace, package: &str, name: &str, release: bool) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(["build", "--package", package, "--bin", name]);
    if release {
        cargo.arg("--release");
    }
    process::run(&mut cargo)?;
    let program = workspace.target.join(if release { "release" } else { "debug" }).join(name);
    if !program.is_file() {
        bail!("cargo built no {}", program.display());
    }
    Ok(program)
}
