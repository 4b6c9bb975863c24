//! The matrix as a table, followed by the details.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use crate::test::Unsteady;
use crate::vm::guest::End;
use crate::vm::matrix::Outcomes;
use crate::vm::report::{Backend, Outcome};

/// Number of shown lines at the start and at the end of a failed test's output. The rest is in the log, which is not
/// available where the table is read.
const FIRST: usize = 60;
const LAST: usize = 60;

/// Number of named longest tests.
const LONGEST: usize = 12;

/// A table with a row for each machine, and a list of the problems.
pub(super) fn render(results: &[Outcomes], backends: &[String]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let mut header = ["kernel", "cgroup", "BTF", "boot"].map(str::to_owned).to_vec();
    for backend in backends {
        header.push(format!("{backend}: passed/failed/skipped"));
        header.push("time".to_owned());
    }
    header.push("probes missing".to_owned());
    table.set_header(header);
    for result in results {
        table.add_row(row(result, backends));
    }
    let [measured, complaints, skipped] = [measured, complaints, skipped].map(|of| of(results));
    format!("{table}\n{}{measured}{complaints}{skipped}", longest(results))
}

fn row(result: &Outcomes, backends: &[String]) -> Vec<String> {
    let machine = &result.machine;
    let mut cells = vec![
        format!("{}{}", machine.system(), machine.kind.says()),
        format!("v{}", machine.cgroup),
        if machine.btf { "yes" } else { "hidden" }.to_owned(),
        result.report.boot_seconds.map_or("never".to_owned(), |seconds| format!("{seconds:.1} s")),
    ];
    let mut missing = Vec::new();
    for name in backends {
        let Some(backend) = result.report.backends.iter().find(|b| b.name == *name) else {
            let why = machine.leaves_out(name).unwrap_or("did not run");
            cells.extend([why.to_owned(), String::new()]);
            continue;
        };
        let unfinished = !result.report.done
            && result.report.backends.last().is_some_and(|last| last.name == *name);
        cells.push(counts(backend) + if unfinished { ", did not finish" } else { "" });
        cells.push(format!("{:.0} s", backend.seconds()));
        // The table contains only the name; the reason is below it.
        let names = backend.missing.iter().map(|why| why.split(':').next().unwrap_or(why));
        missing.extend(names.map(|probe| format!("{name} {probe}")));
    }
    cells.push(if missing.is_empty() { "none".to_owned() } else { missing.join(", ") });
    cells
}

fn counts(backend: &Backend) -> String {
    let passed = backend.count(passed);
    let failed = backend.count(|outcome| *outcome == Outcome::Failed);
    let skipped = backend.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    format!("{passed}/{failed}/{skipped}")
}

/// Whether it passed in the end, possibly when repeated.
fn passed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Passed | Outcome::Unsteady)
}

/// The tests that failed once, each with its machine and backend.
pub(super) fn unsteady(results: &[Outcomes]) -> Unsteady {
    let mut unsteady = Unsteady::default();
    for result in results {
        for backend in &result.report.backends {
            for test in backend.tests.iter().filter(|test| test.outcome == Outcome::Unsteady) {
                unsteady.add(format!(
                    "{} ({}, {})",
                    test.name,
                    result.machine.name(),
                    backend.name
                ));
            }
        }
    }
    unsteady
}

/// The sum over all machines, in the format of `cargo xtask test`.
pub(super) fn totals(results: &[Outcomes]) -> String {
    let backends = || results.iter().flat_map(|result| &result.report.backends);
    let count = |wanted: fn(&Outcome) -> bool| -> usize {
        backends().map(|backend| backend.count(wanted)).sum()
    };
    format!(
        "{} passed, {} failed, {} skipped",
        count(passed),
        count(|outcome| *outcome == Outcome::Failed),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
    )
}

/// Missing probes, failed tests and machines that did not finish, with their output.
fn complaints(results: &[Outcomes]) -> String {
    let mut text = String::new();
    let mut say = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    for result in results {
        let machine = result.machine.name();
        for backend in &result.report.backends {
            let name = &backend.name;
            for why in &backend.missing {
                let expected = if result.machine.refuses(name) { ", as expected," } else { "" };
                say(format!("MISSING{expected} {machine}, {name}: {why}"));
            }
            for test in backend.tests.iter().filter(|test| test.outcome == Outcome::Failed) {
                say(format!("FAILED {machine}, {name}: {} ({:.0} s)", test.name, test.seconds));
                let lines: Vec<&String> =
                    test.output.iter().filter(|line| !line.trim().is_empty()).collect();
                let first = lines.len().min(FIRST);
                let last = (lines.len() - first).min(LAST);
                lines[..first].iter().for_each(|line| say(format!("    {line}")));
                if lines.len() > first + last {
                    say(format!("    [... {} lines more]", lines.len() - first - last));
                }
                lines[lines.len() - last..].iter().for_each(|line| say(format!("    {line}")));
            }
        }
        if let Some(panic) = result.panic.as_ref().filter(|_| result.report.done) {
            say(format!("PANICKED the first time, {machine}; its console is kept, too:"));
            panic.iter().for_each(|line| say(format!("    {line}")));
        }
        if !result.report.done {
            let why = match result.end {
                End::Deadline => "its time was up",
                End::Silent => "it never began",
                End::Off | End::Interrupted => "it ended too early",
            };
            say(format!("DID NOT FINISH {machine}: {why}; the console's last lines:"));
            result.tail.iter().for_each(|line| say(format!("    {line}")));
        }
    }
    text
}

/// The tests that took longest.
fn longest(results: &[Outcomes]) -> String {
    let backends = || results.iter().flat_map(|it| it.report.backends.iter().map(move |b| (it, b)));
    let mut tests: Vec<_> = backends()
        .flat_map(|(result, backend)| backend.tests.iter().map(move |test| (result, backend, test)))
        .collect();
    tests.sort_by(|(.., one), (.., other)| other.seconds.total_cmp(&one.seconds));
    let said = tests.iter().take(LONGEST).map(|(result, backend, test)| {
        let (machine, backend) = (result.machine.name(), &backend.name);
        format!("{} {:.0} s ({machine}, {backend})", test.name, test.seconds)
    });
    format!("longest tests: {}\n", said.collect::<Vec<_>>().join(", "))
}

/// Values that tests measured without judging them.
fn measured(results: &[Outcomes]) -> String {
    const MARK: &str = "measured: ";
    let mut text = String::new();
    for result in results {
        for backend in &result.report.backends {
            let lines = backend.tests.iter().flat_map(|test| &test.output);
            for (_, what) in lines.filter_map(|line| line.split_once(MARK)) {
                // Writing to a string cannot fail.
                let _ =
                    writeln!(text, "MEASURED {}, {}: {what}", result.machine.name(), backend.name);
            }
        }
    }
    text
}

/// The skipped tests, by reason.
fn skipped(results: &[Outcomes]) -> String {
    let mut reasons: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<String>)> = BTreeMap::new();
    for result in results {
        for backend in &result.report.backends {
            for test in &backend.tests {
                if let Outcome::Skipped(reason) = &test.outcome {
                    let (tests, places) = reasons.entry(reason).or_default();
                    tests.insert(&test.name);
                    places.insert(format!("{} ({})", result.machine.name(), backend.name));
                }
            }
        }
    }
    let lines = |(reason, (tests, places)): (&&str, &(BTreeSet<&str>, BTreeSet<String>))| {
        let tests: Vec<&str> = tests.iter().copied().collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        format!("SKIPPED {reason}\n    {}\n    on {}\n", tests.join(", "), places.join("; "))
    };
    reasons.iter().map(lines).collect()
}
