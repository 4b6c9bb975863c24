//! Runs test programs, forwards their output and counts the results.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{io, thread};

use anyhow::{Context, Result, anyhow, bail};
use podstuck_process as process;
use tempfile::NamedTempFile;

use super::longest::{Clock, Longest};
use super::programs::Program;
use super::totals::Totals;
use super::unsteady::Unsteady;
use crate::tools::Tools;

/// Option for tests that count events of the whole machine.
pub(super) const ONE_AT_A_TIME: &str = "--test-threads=1";

/// Test programs that load no probe and whose actions do not affect tests with probes: they run beside those.
const BESIDE: [&str; 14] = [
    "book",
    "catalogue",
    "chart",
    "cluster",
    "examine",
    "given_files",
    "handed_over",
    "native",
    "purity",
    "readme",
    "replays",
    "report",
    "rooms",
    "ways_out",
];

/// Test programs with probes that only watch their own pods and paths, and whose actions do not affect other counts:
/// they run beside the others with probes. Tested beside each of these except [`ALONE`]. Not `diagnose`: the mount table
/// that one of `labs` fills is an answer to any question on the node.
const SECOND_LANE: [&str; 13] = [
    "absence",
    "actors",
    "compare",
    "counts",
    "degraded",
    "dist",
    "holders",
    "large_node",
    "late",
    "made",
    "mass_estimate",
    "other_ways",
    "times",
];

/// Test programs that attribute any finding or loss on the node to themselves, require that there is no other
/// kubelet, or check time limits of a run. `runtimes` beside `api` failed in three tests of 50: the directories of one's
/// pods, and the full disk of the other's runtime, are an answer to any question on the node.
const ALONE: [&str; 6] = ["agent", "api", "attacks", "ends", "runtimes", "unknown_roots"];

/// Priority of the test programs beside the others, whose outcome depends on time.
const NICE: i32 = 10;

/// The same name as in the crate podstuck-testing, on which the commands do not depend.
const SKIPS: &str = "PODSTUCK_TEST_SKIPS";

/// The common state of all tests of a run.
pub(crate) struct Runner<'a> {
    filter: Option<&'a str>,
    tools: Option<Tools>,
    program: Option<PathBuf>,
    /// Additional environment variables of the tests
    variables: Vec<(&'static str, PathBuf)>,
    skips: NamedTempFile,
    totals: Totals,
    unsteady: Unsteady,
    longest: Longest,
    /// The first failure
    failure: Option<anyhow::Error>,
    /// The destination of the programs' output
    output: fn() -> Box<dyn Write>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(filter: Option<&'a str>) -> Result<Self> {
        Ok(Self {
            filter,
            tools: None,
            program: None,
            variables: Vec::new(),
            skips: NamedTempFile::new().context("cannot create a file for skipped tests")?,
            totals: Totals::default(),
            unsteady: Unsteady::default(),
            longest: Longest::default(),
            failure: None,
            output: || Box::new(io::stdout()),
        })
    }

    /// Sets the programs that the tests start.
    pub(crate) fn equip(&mut self, tools: Tools, program: Option<PathBuf>) {
        self.tools = Some(tools);
        self.program = program;
    }

    /// Adds an environment variable for the tests.
    pub(crate) fn tell(&mut self, variable: &'static str, value: PathBuf) {
        self.variables.push((variable, value));
    }

    /// Runs the programs with these options. A failure is kept until the end, so that the other tests run as well.
    pub(crate) fn run(&mut self, programs: Vec<Program>, options: &[&str]) {
        for program in programs {
            let ran = self.start(&program, options, &mut (self.output)());
            self.take(ran);
        }
    }

    fn take(&mut self, ran: Ran) {
        self.longest.add(ran.longest);
        self.note(ran.end);
        self.totals.add(ran.totals);
    }

    /// Like [`Self::run`], for tests against the kernel: in two lanes with one test at a time in each; failed tests
    /// are repeated at the end, see [`Unsteady`]. Beside them run the programs of [`BESIDE`].
    pub(crate) fn run_against_the_kernel(&mut self, programs: Vec<Program>) {
        self.run_lanes(Lanes::of(programs));
    }

    fn run_lanes(&mut self, lanes: Lanes) {
        let runner = &*self;
        let stream = |program: Program| {
            (runner.start(&program, &[ONE_AT_A_TIME], &mut (runner.output)()), program)
        };
        let as_a_whole = |program: Program| {
            let run = |printed: &mut _| runner.start(&program, &[ONE_AT_A_TIME], printed);
            (runner.passed_on(run), program)
        };
        let (all, is_whole) = thread::scope(|scope| {
            let beside = scope.spawn(|| runner.start_beside(lanes.beside));
            let second =
                scope.spawn(|| lanes.second.into_iter().map(as_a_whole).collect::<Vec<_>>());
            let mut all: Vec<(Ran, Program)> = lanes.first.into_iter().map(stream).collect();
            let second = second.join().map(|its| all.extend(its));
            all.extend(lanes.alone.into_iter().map(stream));
            let beside = beside.join().map(|its| all.extend(its));
            (all, second.and(beside).is_ok())
        });
        if !is_whole {
            self.note(Err(anyhow!("a thread that runs tests panicked")));
        }
        let mut failed = Vec::new();
        for (mut ran, program) in all {
            let tests = ran.failed_tests();
            if !tests.is_empty() {
                ran.end = Ok(());
            }
            failed.extend(tests.into_iter().map(|test| (program.clone(), test)));
            self.take(ran);
        }
        for (program, test) in failed {
            let name = format!("{}::{test}", program.name);
            println!("\nagain: {name}");
            let again = self.start_one(&program, &test);
            self.longest.add(again.longest);
            if again.end.is_ok() && again.totals.is_one_that_passed() {
                self.totals.forgive(&test);
                self.unsteady.add(name);
            } else {
                self.note(Err(anyhow!("{name} failed twice")));
            }
        }
    }

    /// Runs programs in a thread of its own.
    fn start_beside(&self, programs: Vec<Program>) -> Vec<(Ran, Program)> {
        // Applies to this thread and its children only (setpriority(2), "NOTES"). If it fails, they merely take more
        // time.
        let _ = rustix::process::nice(NICE);
        let start = |program: Program| {
            (self.passed_on(|printed| self.start(&program, &[], printed)), program)
        };
        programs.into_iter().map(start).collect()
    }

    fn start(&self, program: &Program, options: &[&str], output: &mut impl Write) -> Ran {
        let mut command = program.command(options);
        command.args(self.filter);
        self.finish_program(&program.name, command, output)
    }

    fn start_one(&self, program: &Program, test: &str) -> Ran {
        let command = program.command(&[ONE_AT_A_TIME, "--exact", test]);
        self.finish_program(&program.name, command, &mut (self.output)())
    }

    fn finish_program(&self, name: &str, mut command: Command, output: &mut impl Write) -> Ran {
        command.env(SKIPS, self.skips.path()).envs(self.variables.iter().cloned());
        if let Some(tools) = &self.tools {
            tools.apply(&mut command);
        }
        if let Some(program) = &self.program {
            command.env("PODSTUCK_BIN", program);
        }
        // Fails if the reader is gone.
        let _ = writeln!(output, "\n== {name}");
        let (mut totals, mut longest) = (Totals::default(), Longest::default());
        let mut clock = Clock::start(name);
        let end = pass_on(&mut command, output, |line| {
            if let Some(test) = totals.add_line(line) {
                longest.test_ended(&mut clock, test);
            }
        });
        let took = longest.program_ended(clock);
        let _ = writeln!(output, "== {name}: {} s", took.as_secs());
        Ran { end, totals, longest }
    }

    /// Forwards the output as a whole at the end, since other programs print at the same time.
    fn passed_on(&self, run: impl FnOnce(&mut Vec<u8>) -> Ran) -> Ran {
        let mut printed = Vec::new();
        let ran = run(&mut printed);
        // Fails if the reader is gone.
        let _ = (self.output)().write_all(&printed);
        ran
    }

    /// Keeps a failure until the end.
    pub(crate) fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Prints the skipped tests, and the totals as the last line; returns the first failure.
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

/// Assigns programs to lanes.
#[derive(Default)]
struct Lanes {
    /// Run one after the other
    first: Vec<Program>,
    /// Run one after the other, beside the first lane
    second: Vec<Program>,
    /// Run after both lanes
    alone: Vec<Program>,
    /// Run beside all others
    beside: Vec<Program>,
}

impl Lanes {
    fn of(programs: Vec<Program>) -> Self {
        let mut lanes = Self::default();
        for program in programs {
            let name = program.name.as_str();
            let lane = if BESIDE.contains(&name) {
                &mut lanes.beside
            } else if SECOND_LANE.contains(&name) {
                &mut lanes.second
            } else if ALONE.contains(&name) {
                &mut lanes.alone
            } else {
                &mut lanes.first
            };
            lane.push(program);
        }
        // The output of a single lane is visible while it runs.
        if lanes.first.is_empty() {
            std::mem::swap(&mut lanes.first, &mut lanes.second);
        }
        lanes
    }
}

/// The result of a program.
struct Ran {
    end: Result<()>,
    totals: Totals,
    longest: Longest,
}

impl Ran {
    /// The failed tests, if nothing else failed: a program that dies has not reported all of its tests.
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

/// Runs a command and forwards each line that it prints.
fn pass_on(command: &mut Command, to: &mut impl Write, mut take: impl FnMut(&str)) -> Result<()> {
    let shown = process::show(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        // A test may print invalid UTF-8.
        while lines.read_until(b'\n', &mut line).with_context(|| format!("reading `{shown}`"))? > 0
        {
            let text = String::from_utf8_lossy(&line);
            // Fails if the reader is gone.
            let _ = to.write_all(text.as_bytes());
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
        Ran { end: status, totals, longest: Longest::default() }.failed_tests()
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

    /// A test program with one test that fails the first time; its second run executes `again`.
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
        let verdict = |names: &[&str], again: &str| {
            let mut runner = Runner::new(None).unwrap();
            // The runner of this test counts the lines that it prints.
            runner.output = || Box::new(io::sink());
            let programs: Vec<Program> =
                names.iter().map(|name| program(folder.path(), name, again)).collect();
            // In each lane.
            let mut lanes = Lanes::default();
            for (number, program) in programs.into_iter().enumerate() {
                let all =
                    [&mut lanes.first, &mut lanes.second, &mut lanes.alone, &mut lanes.beside];
                all.into_iter().nth(number % 4).unwrap().push(program);
            }
            runner.run_lanes(lanes);
            (runner.totals.to_string(), runner.finish("").is_ok())
        };
        assert_eq!(
            verdict(&["a", "b", "c"], PASSES),
            ("3 passed, 0 failed, 0 skipped".into(), true)
        );
        // The second run prints the same lines as the first.
        assert_eq!(verdict(&["d"], "true"), ("0 passed, 1 failed, 0 skipped".into(), false));
        assert_eq!(verdict(&["e"], RUNS_NONE), ("0 passed, 1 failed, 0 skipped".into(), false));
        let four = verdict(&["f", "g", "h", "i"], PASSES);
        assert_eq!(four, ("4 passed, 0 failed, 0 skipped".into(), false));
    }
}
