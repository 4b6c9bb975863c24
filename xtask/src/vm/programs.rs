//! The programs under test and the tests, linked statically: a guest has none of the machine's libraries.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::architecture::Architecture;
use crate::build;
use crate::workspace::Workspace;
use podstuck_process as process;

/// The program under test and those that tests start.
const TOOLS: [&str; 4] = ["podstuck", "podstuck-agent", "podstuck-call", "podstuck-tenant"];

/// A program and its name in the guest.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// The built programs.
pub(super) struct Programs {
    /// The programs of [`TOOLS`]
    pub(super) tools: Vec<Program>,
    /// Test programs
    pub(super) tests: Vec<Program>,
}

/// Builds `podstuck`, the programs that tests start, and these test programs.
///
/// Optimized, since the guest's processor is slow, but without the release's cross-crate optimization, which takes
/// minutes: guests do not test durations. In one command, so that cargo compiles common parts once.
pub(super) fn build(
    workspace: &Workspace,
    architecture: Architecture,
    tests: &BTreeSet<&str>,
) -> Result<Programs> {
    println!("building podstuck and its tests, optimized and static");
    let mut cargo = workspace.cargo(["build", "--workspace", "--profile", "guest"]);
    cargo.arg("--message-format=json-render-diagnostics");
    cargo.args(TOOLS.iter().flat_map(|name| ["--bin", name]));
    cargo.args(tests.iter().flat_map(|name| ["--test", name]));
    build::link_statically(workspace, &mut cargo, architecture)?;
    let messages = process::output(cargo.stderr(Stdio::inherit()))?;
    let mut programs = Programs { tools: Vec::new(), tests: Vec::new() };
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).with_context(|| format!("cargo printed `{line}`"))?;
        let (Some(file), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        else {
            continue;
        };
        let program = Program { name: name.to_owned(), file: file.into() };
        match message["target"]["kind"][0].as_str() {
            Some("test") => programs.tests.push(program),
            // A package's other programs are built together with its tests.
            Some("bin") if TOOLS.contains(&name) => programs.tools.push(program),
            _ => {}
        }
    }
    if programs.tests.len() != tests.len() || programs.tools.len() != TOOLS.len() {
        bail!(
            "cargo built {} of {} test programs, and {} of {}",
            programs.tests.len(),
            tests.len(),
            programs.tools.len(),
            TOOLS.join(" and ")
        );
    }
    Ok(programs)
}

impl Programs {
    /// Checks that each selected test exists, so that a renamed one does not leave a guest without tests.
    pub(super) fn have(&self, wanted: &BTreeSet<(&str, Option<&str>)>) -> Result<()> {
        for (name, part) in wanted {
            let program = self.tests.iter().find(|program| program.name == *name);
            let program = program.with_context(|| format!("no test program {name} was built"))?;
            let mut list = Command::new(&program.file);
            list.args(["--list", "--format", "terse"]).args(part);
            if process::output(&mut list)?.trim().is_empty() {
                bail!(
                    "no test of {name} has `{}` in its name; xtask/src/vm/selection.rs selects what \
                     runs in virtual machines",
                    part.unwrap_or_default()
                );
            }
        }
        Ok(())
    }
}
