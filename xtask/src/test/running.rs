//! Running cargo's test programs, with their output passed on and counted.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use tempfile::NamedTempFile;

use super::totals::Totals;
use crate::tools::Tools;
use crate::workspace::Workspace;

/// As the crate podstuck-testing has it, which the commands do not depend on.
const SKIPS: &str = "PODSTUCK_TEST_SKIPS";

/// What all tests of a run have in common.
pub(crate) struct Runner<'a> {
    workspace: &'a Workspace,
    filter: Option<&'a str>,
    tools: Option<Tools>,
    program: Option<PathBuf>,
    /// Variables of the tests' environment
    variables: Vec<(&'static str, PathBuf)>,
    skips: NamedTempFile,
    totals: Totals,
    /// The first command that failed
    failure: Option<anyhow::Error>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(workspace: &'a Workspace, filter: Option<&'a str>) -> Result<Self> {
        Ok(Self {
            workspace,
            filter,
            tools: None,
            program: None,
            variables: Vec::new(),
            skips: NamedTempFile::new().context("cannot create a file for skipped tests")?,
            totals: Totals::default(),
            failure: None,
        })
    }

    /// Gives the tests the programs that they start.
    pub(crate) fn equip(&mut self, tools: Tools, program: Option<PathBuf>) {
        self.tools = Some(tools);
        self.program = program;
    }

    /// Gives the tests a variable.
    pub(crate) fn tell(&mut self, variable: &'static str, value: PathBuf) {
        self.variables.push((variable, value));
    }

    /// Tests what cargo is told to select, with options for the test programs. A failure is kept for
    /// the end, so that the other tests run, too.
    pub(crate) fn run(&mut self, selection: &[&str], options: &[&str]) {
        let mut command = self.workspace.cargo(["test", "--no-fail-fast"]);
        command.args(selection).arg("--").args(options).args(self.filter);
        command.env(SKIPS, self.skips.path()).envs(self.variables.iter().cloned());
        if let Some(tools) = &self.tools {
            tools.apply(&mut command);
        }
        if let Some(program) = &self.program {
            command.env("PODSTUCK_BIN", program);
        }
        let ran = pass_on(&mut command, |line| self.totals.add_line(line));
        self.note(ran);
    }

    /// Keeps a failure for the end, too.
    pub(crate) fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Whether no test was there to run.
    pub(crate) fn has_found_none(&self) -> bool {
        self.failure.is_none() && self.totals.is_empty()
    }

    /// Prints what was skipped, and the totals as the last line; the first failure is an error.
    pub(crate) fn finish(mut self, remarks: &str) -> Result<()> {
        self.totals.add_skips(&read(self.skips.path())?);
        print!("{}", self.totals.skips());
        println!("{remarks}\n{}", self.totals);
        match (self.failure, self.filter) {
            (Some(error), _) => Err(error),
            (None, Some(filter)) if self.totals.is_empty() => {
                bail!("no test has `{filter}` in its name")
            }
            (None, None) if self.totals.is_empty() => bail!("no test ran"),
            _ => Ok(()),
        }
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Runs a command and passes on each line that it prints.
fn pass_on(command: &mut Command, mut take: impl FnMut(&str)) -> Result<()> {
    let shown = process::show(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        let mut stdout = std::io::stdout().lock();
        // A test may print what is not UTF-8.
        while lines.read_until(b'\n', &mut line).with_context(|| format!("reading `{shown}`"))? > 0
        {
            stdout.write_all(&line).context("cannot print")?;
            take(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}
