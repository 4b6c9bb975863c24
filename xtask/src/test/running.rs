//! Running test programs, with their output passed on and counted.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use tempfile::NamedTempFile;

use super::longest::{Clock, Longest};
use super::programs::{self, Program};
use super::totals::Totals;
use super::unsteady::Unsteady;
use crate::tools::Tools;
use crate::workspace::Workspace;

/// How tests run that count what the whole machine does.
pub(super) const ONE_AT_A_TIME: &str = "--test-threads=1";

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
    unsteady: Unsteady,
    longest: Longest,
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
            unsteady: Unsteady::default(),
            longest: Longest::default(),
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

    /// Tests what is selected in the words of `cargo test`, with options for the test programs. A failure is kept for the
    /// end, so that the other tests run, too.
    pub(crate) fn run(&mut self, selection: &[&str], options: &[&str]) {
        for program in self.build(selection) {
            let ran = self.start(&program, options);
            self.note(ran.end);
            self.totals.add(ran.totals);
        }
    }

    /// The same with tests against the kernel, one at a time, and at the end again what failed: see [`Unsteady`].
    pub(crate) fn run_against_the_kernel(&mut self, selection: &[&str]) {
        let programs = self.build(selection);
        self.try_again(programs);
    }

    fn try_again(&mut self, programs: Vec<Program>) {
        let mut failed = Vec::new();
        for program in programs {
            let ran = self.start(&program, &[ONE_AT_A_TIME]);
            let tests = ran.failed_tests();
            if tests.is_empty() {
                self.note(ran.end);
            }
            failed.extend(tests.into_iter().map(|test| (program.clone(), test)));
            self.totals.add(ran.totals);
        }
        for (program, test) in failed {
            let name = format!("{}::{test}", program.name);
            println!("\nagain: {name}");
            let again = self.start_one(&program, &test);
            if again.end.is_ok() && again.totals.is_one_that_passed() {
                self.totals.forgive(&test);
                self.unsteady.add(name);
            } else {
                self.note(Err(anyhow::anyhow!("{name} failed twice")));
            }
        }
    }

    /// Tests the examples in the documentation.
    pub(crate) fn run_documented(&mut self) {
        let mut command =
            self.workspace.cargo(["test", "--no-fail-fast", "--workspace", "--doc", "--"]);
        command.args(self.filter);
        let ran = pass_on(&mut command, |line| {
            self.totals.add_line(line);
        });
        self.note(ran);
    }

    fn build(&mut self, selection: &[&str]) -> Vec<Program> {
        let built = programs::build(self.workspace, selection);
        built.unwrap_or_else(|error| {
            self.note(Err(error));
            Vec::new()
        })
    }

    fn start(&mut self, program: &Program, options: &[&str]) -> Ran {
        let mut command = program.command(options);
        command.args(self.filter);
        self.finish_program(&program.name, command)
    }

    fn start_one(&mut self, program: &Program, test: &str) -> Ran {
        self.finish_program(&program.name, program.command(&[ONE_AT_A_TIME, "--exact", test]))
    }

    fn finish_program(&mut self, name: &str, mut command: Command) -> Ran {
        command.env(SKIPS, self.skips.path()).envs(self.variables.iter().cloned());
        if let Some(tools) = &self.tools {
            tools.apply(&mut command);
        }
        if let Some(program) = &self.program {
            command.env("PODSTUCK_BIN", program);
        }
        println!("\n== {name}");
        let mut totals = Totals::default();
        let mut clock = Clock::start(name);
        let longest = &mut self.longest;
        let end = pass_on(&mut command, |line| {
            if let Some(test) = totals.add_line(line) {
                longest.test_ended(&mut clock, test);
            }
        });
        longest.program_ended(clock);
        Ran { end, totals }
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
        self.note(self.unsteady.verdict());
        print!("{}{}", self.totals.skips(), self.unsteady);
        println!("{remarks}{}\n{}", self.longest, self.totals);
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

/// How a program ended, and what it counted.
struct Ran {
    end: Result<()>,
    totals: Totals,
}

impl Ran {
    /// The tests that failed, if that is all that went wrong: a program that dies has not said what else it would have.
    fn failed_tests(&self) -> Vec<String> {
        let (counted, names) = self.totals.failed();
        let names: Vec<String> = names.map(str::to_owned).collect();
        let is_all = self.end.is_err() && counted > 0 && names.len() as u64 == counted;
        if is_all { names } else { Vec::new() }
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
        // A test may print what is not UTF-8.
        while lines.read_until(b'\n', &mut line).with_context(|| format!("reading `{shown}`"))? > 0
        {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            take(&text);
            line.clear();
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(status: Result<()>, output: &str) -> Vec<String> {
        let mut totals = Totals::default();
        output.lines().for_each(|line| {
            totals.add_line(line);
        });
        Ran { end: status, totals }.failed_tests()
    }

    #[test]
    fn only_what_failed_by_name_is_run_again() {
        let failed = || Err(anyhow::anyhow!("exit status: 101"));
        let line = "test a ... FAILED\n";
        let one = format!("{line}test result: FAILED. 4 passed; 1 failed; 0 ignored");
        assert_eq!(ran(failed(), &one), ["a"]);
        assert!(ran(failed(), line).is_empty(), "it died after that");
        let more = one.replace("1 failed", "2 failed");
        assert!(ran(failed(), &more).is_empty(), "one has no name");
        assert!(ran(failed(), "test result: ok. 4 passed; 0 failed; 0 ignored").is_empty());
        assert!(ran(Ok(()), "test result: ok. 4 passed; 0 failed; 0 ignored").is_empty());
    }

    /// A test program of one test, which fails until a file is there that its first run makes.
    fn program(folder: &Path, name: &str, again: &str) -> Program {
        let script = format!(
            "#!/bin/sh\nif [ -e {name} ]; then {again}; fi\ntouch {name}\n\
             echo 'test t ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101\n"
        );
        Program::of_script(folder, name, &script)
    }

    #[test]
    fn a_test_that_fails_once_is_unsteady_and_one_that_fails_twice_has_failed() {
        const PASSES: &str =
            "echo 'test t ... ok'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0";
        const RUNS_NONE: &str = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'; exit 0";
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::locate().unwrap();
        let verdict = |names: &[&str], again: &str| {
            let mut runner = Runner::new(&workspace, None).unwrap();
            let programs = names.iter().map(|name| program(folder.path(), name, again)).collect();
            runner.try_again(programs);
            (runner.totals.to_string(), runner.finish("").is_ok())
        };
        assert_eq!(
            verdict(&["a", "b", "c"], PASSES),
            ("3 passed, 0 failed, 0 skipped".into(), true)
        );
        // The same lines as the first time.
        assert_eq!(verdict(&["d"], "true"), ("0 passed, 1 failed, 0 skipped".into(), false));
        assert_eq!(verdict(&["e"], RUNS_NONE), ("0 passed, 1 failed, 0 skipped".into(), false));
        let four = verdict(&["f", "g", "h", "i"], PASSES);
        assert_eq!(four, ("4 passed, 0 failed, 0 skipped".into(), false));
    }
}
