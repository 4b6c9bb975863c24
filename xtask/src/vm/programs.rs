//! The programs under test and the tests, linked statically: a guest has no libraries of ours.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::build::{self, Options};
use crate::process;
use crate::workspace::Workspace;

/// A program, with its name in the guest.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// What was built.
pub(super) struct Programs {
    /// `podstuck` and what the tests start beside it
    pub(super) tools: Vec<Program>,
    /// Test programs
    pub(super) tests: Vec<Program>,
}

/// Builds all, optimized: the guest's processor is slow.
pub(super) fn build(workspace: &Workspace) -> Result<Programs> {
    println!("building podstuck and its tests, optimized and static");
    let options = Options { release: true, link_statically: true };
    let podstuck = build::program(workspace, &options)?;
    let mut cargo = workspace.cargo(["test", "--no-run", "--release", "--message-format=json"]);
    cargo.args(["--package", "podstuck-tests", "--tests", "--bins"]);
    build::link_statically(workspace, &mut cargo)?;
    let messages = process::output(&mut cargo)?;
    let mut programs = Programs {
        tools: vec![Program { name: "podstuck".to_owned(), file: podstuck }],
        tests: Vec::new(),
    };
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).with_context(|| format!("cargo printed `{line}`"))?;
        // A binary is built twice: as it is, and with its own unit tests, which are not wanted.
        let kind = message["target"]["kind"][0].as_str();
        let (Some(file), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        else {
            continue;
        };
        let program = Program { name: name.to_owned(), file: file.into() };
        match (kind, message["profile"]["test"].as_bool()) {
            (Some("test"), _) => programs.tests.push(program),
            (Some("bin"), Some(false)) => programs.tools.push(program),
            _ => {}
        }
    }
    if programs.tests.is_empty() || programs.tools.len() < 2 {
        bail!("cargo built no tests, or no podstuck-call");
    }
    Ok(programs)
}
