//! Parses a guest's console: the lines of `init.sh`, and the tests' output between them.

use serde_json::Value;

use crate::test::ignored;

const MARK: &str = "@podstuck ";
/// The message of a test that cannot run.
const SKIPPED: &str = "skipped: ";

/// Functions at which the kernel reports the directory that it has resolved. All of Debian's kernels have them
/// (`CONFIG_SECURITY_PATH`); podstuck also works without them.
const DIRECTORY_HOOKS: [&str; 2] = ["security_path_unlink", "security_path_rmdir"];

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Failed, and passed when repeated
    Unsteady,
    /// The reason, also if only a part was skipped
    Skipped(String),
}

/// One test.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// Its output
    pub(super) output: Vec<String>,
}

/// The tests with one backend.
#[derive(Debug, Default)]
pub(super) struct Backend {
    pub(super) name: String,
    /// Number of attached probes
    pub(super) attached: usize,
    /// Missing probes with their reasons, or the reason why podstuck did not start
    pub(super) missing: Vec<String>,
    pub(super) tests: Vec<Test>,
}

impl Backend {
    /// Adds a test result. If the test has one already, it failed the first time.
    fn add(&mut self, test: Test) {
        let Some(before) = self.tests.iter_mut().find(|before| before.name == test.name) else {
            self.tests.push(test);
            return;
        };
        before.seconds += test.seconds;
        // A test that is skipped when repeated has not passed.
        if test.outcome == Outcome::Passed {
            before.outcome = Outcome::Unsteady;
        } else {
            before.output.extend(test.output);
        }
    }

    /// Number of tests with this outcome.
    pub(super) fn count(&self, wanted: fn(&Outcome) -> bool) -> usize {
        self.tests.iter().filter(|test| wanted(&test.outcome)).count()
    }

    /// Total duration of the tests.
    pub(super) fn seconds(&self) -> f64 {
        self.tests.iter().map(|test| test.seconds).sum()
    }
}

/// The parsed console of a guest.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Time from the kernel's start to the first process
    pub(super) boot_seconds: Option<f64>,
    /// Whether it finished
    pub(super) done: bool,
    pub(super) backends: Vec<Backend>,
}

/// Parses a console.
pub(super) fn read(console: &str) -> Report {
    let mut report = Report::default();
    let mut test: Option<String> = None;
    let mut output = Vec::new();
    for line in console.lines() {
        let line = line.trim_end_matches('\r');
        // The kernel may have printed a partial line before the mark.
        let Some((_, marked)) = line.split_once(MARK) else {
            output.push(line.to_owned());
            continue;
        };
        let (kind, rest) = marked.split_once(' ').unwrap_or((marked, ""));
        match kind {
            "boot" => report.boot_seconds = hundredths(rest),
            "backend" => {
                report.backends.push(Backend { name: rest.to_owned(), ..Backend::default() });
            }
            "start" => {
                if let Some(backend) = report.backends.last_mut() {
                    start(backend, rest);
                }
            }
            "test" | "again" => test = Some(rest.to_owned()),
            "end" => {
                if let (Some(backend), Some(name)) = (report.backends.last_mut(), test.take()) {
                    backend.add(ended(name, rest, std::mem::take(&mut output)));
                }
            }
            "done" => report.done = true,
            _ => {}
        }
        output.clear();
    }
    // The test during which the guest died.
    if let (Some(backend), Some(name)) = (report.backends.last_mut(), test) {
        backend.add(Test { name, outcome: Outcome::Failed, seconds: 0.0, output });
    }
    report
}

fn hundredths(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().map(|value| value / 100.0)
}

/// Processes podstuck's first line.
fn start(backend: &mut Backend, line: &str) {
    let Ok(start) = serde_json::from_str::<Value>(line) else {
        backend.missing.push("all: podstuck did not start".to_owned());
        return;
    };
    let list = |key: &str| start[key].as_array().cloned().unwrap_or_default();
    let attached = list("probes_attached");
    backend.attached = attached.len();
    if backend.name != "tracepoint" {
        let hooks = DIRECTORY_HOOKS.map(|function| format!("{}:{function}", backend.name));
        let is_missing = |hook: &String| !attached.iter().any(|name| name == hook.as_str());
        let missing = hooks.into_iter().filter(is_missing);
        backend
            .missing
            .extend(missing.map(|hook| format!("{hook}: the directory is not reported")));
    }
    let missing = list("probes_missing");
    backend.missing.extend(missing.iter().filter_map(Value::as_str).map(str::to_owned));
}

/// `rest` contains the exit status and the duration.
fn ended(name: String, rest: &str, output: Vec<String>) -> Test {
    let (status, time) = rest.split_once(' ').unwrap_or((rest, ""));
    let reason = |line: &String| {
        let said = line.split_once(SKIPPED).map(|(_, reason)| reason);
        said.or_else(|| ignored(line.split_once(" ... ")?.1)).map(str::to_owned)
    };
    let reasons: Vec<String> = output.iter().filter_map(reason).collect();
    let outcome = match status {
        "0" if reasons.is_empty() => Outcome::Passed,
        "0" => Outcome::Skipped(reasons.join("; ")),
        _ => Outcome::Failed,
    };
    Test { name, outcome, seconds: hundredths(time).unwrap_or_default(), output }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    0.1] noise\r
@podstuck boot 512\r
\r
@podstuck backend tracepoint\r
@podstuck start {\"probes_attached\":[\"a\",\"b\"],\"probes_missing\":[\"rmdir: no\"]}\r
@podstuck test cli::good\r
test good ... ok\r
\r
@podstuck end 0 250\r
@podstuck test cli::left_out\r
test left_out ... skipped: no BTF\r
ok\r
@podstuck end 0 5\r
@podstuck test cli::measures\r
test measures ... ignored, a measurement\r
@podstuck end 0 1\r
[   12.3] kernel speaks @podstuck test cli::bad\r
panicked\r
@podstuck end 101 100\r
";

    #[test]
    fn tests_are_distinguished_by_their_end() {
        let report = read(&format!("{CONSOLE}@podstuck done 2000\r\n"));
        assert_eq!(report.boot_seconds, Some(5.12));
        assert!(report.done);
        let [backend] = report.backends.as_slice() else { panic!("{report:?}") };
        assert_eq!((backend.attached, backend.missing.len()), (2, 1));
        let outcomes: Vec<&Outcome> = backend.tests.iter().map(|test| &test.outcome).collect();
        let skipped = ["no BTF", "a measurement"].map(|why| Outcome::Skipped(why.to_owned()));
        assert_eq!(outcomes, [&Outcome::Passed, &skipped[0], &skipped[1], &Outcome::Failed]);
        assert_eq!(backend.tests[3].output, ["panicked"]);
        assert!((backend.seconds() - 3.56).abs() < 1e-9);
    }

    #[test]
    fn a_test_that_fails_once_is_unsteady_and_one_that_fails_twice_has_failed() {
        let outcome = |again: &str| {
            let report = read(&format!("{CONSOLE}{again}@podstuck done 2000\n"));
            let tests = &report.backends[0].tests;
            assert_eq!(tests.len(), 4);
            (tests[3].outcome.clone(), tests[3].output.len())
        };
        assert_eq!(outcome(""), (Outcome::Failed, 1));
        let again = "@podstuck again cli::bad\nsays why\n@podstuck end";
        assert_eq!(outcome(&format!("{again} 0 5\n")), (Outcome::Unsteady, 1));
        assert_eq!(outcome(&format!("{again} 101 5\n")), (Outcome::Failed, 2));
        let skipped = again.replace("says why", "skipped: no BTF");
        assert_eq!(outcome(&format!("{skipped} 0 5\n")), (Outcome::Failed, 2));
        assert_eq!(outcome("@podstuck again cli::bad\nKernel panic\n").0, Outcome::Failed);
    }

    #[test]
    fn a_hook_that_does_not_report_directories_is_missing_where_others_do() {
        let missing = |backend: &str, hooks: &str| {
            let start = format!("{{\"probes_attached\":[{hooks}],\"probes_missing\":[]}}");
            let report = read(&format!("@podstuck backend {backend}\n@podstuck start {start}\n"));
            report.backends[0].missing.len()
        };
        assert_eq!(missing("tracepoint", ""), 0);
        assert_eq!(missing("fentry", r#""fentry:security_path_unlink""#), 1);
        let both = |form| DIRECTORY_HOOKS.map(|hook| format!("\"{form}:{hook}\"")).join(",");
        assert_eq!(missing("fentry", &both("fentry")), 0);
        assert_eq!(missing("kprobe", &both("fentry")), 2);
        assert_eq!(missing("kprobe", &both("kprobe")), 0);
    }

    #[test]
    fn the_test_during_which_a_guest_dies_has_failed() {
        let report = read(&format!("{CONSOLE}@podstuck test cli::last\r\nKernel panic\r\n"));
        assert!(!report.done);
        let last = report.backends[0].tests.last().unwrap();
        assert_eq!((last.name.as_str(), &last.outcome), ("cli::last", &Outcome::Failed));
        assert_eq!(last.output, ["Kernel panic"]);
    }

    #[test]
    fn a_podstuck_that_does_not_start_has_no_probes() {
        let report = read("@podstuck backend fentry\n@podstuck start \n");
        assert_eq!(report.backends[0].missing.len(), 1);
    }
}
