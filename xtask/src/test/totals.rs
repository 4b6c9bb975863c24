//! The sum of the test programs' counts, and the skipped tests.
//!
//! For the test library, a test that detects that it cannot run has passed. Such a test notes itself in a file (see
//! the crate podstuck-testing) and is subtracted from the passed tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The results of tests.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Counted by the test library
    returned: u64,
    failed: u64,
    /// Ignored by the test library
    ignored: u64,
    /// May contain a name twice: two programs may have tests of the same name
    failed_names: Vec<String>,
    /// The ignored tests with their reasons
    ignored_names: Vec<(String, String)>,
    /// The tests that noted themselves as skipped, with their reasons
    skipped: BTreeMap<String, BTreeSet<String>>,
}

impl Totals {
    /// Processes a line of a test program's output.
    ///
    /// The last line is like `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in
    /// 1s`, and that of a single test like `test name ... FAILED`, for which the name is returned.
    pub(crate) fn add_line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let rest = line.trim_end().strip_prefix("test ")?;
        if let Some(counts) = rest.strip_prefix("result: ") {
            self.add_counts(counts);
            return None;
        }
        let (name, outcome) = rest.split_once(" ... ")?;
        // Names may be padded with blanks.
        let name = name.trim_end().trim_end_matches(" - should panic");
        if outcome == "FAILED" {
            self.failed_names.push(name.to_owned());
        } else if let Some(reason) = ignored(outcome) {
            self.ignored_names.push((name.to_owned(), reason.to_owned()));
        }
        Some(name)
    }

    fn add_counts(&mut self, counts: &str) {
        let words: Vec<&str> = counts.split([' ', ';']).collect();
        for pair in words.windows(2) {
            let [number, name] = pair else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match *name {
                "passed" => self.returned += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Counts a failed test as passed, because it passed when repeated.
    pub(crate) fn forgive(&mut self, name: &str) {
        if let Some(at) = self.failed_names.iter().position(|failed| failed == name) {
            self.failed_names.remove(at);
            self.failed -= 1;
            self.returned += 1;
        }
    }

    /// The number of failed tests, and the names that were printed.
    pub(crate) fn failed(&self) -> (u64, impl Iterator<Item = &str>) {
        (self.failed, self.failed_names.iter().map(String::as_str))
    }

    /// Whether exactly one test ran and passed.
    pub(crate) fn is_one_that_passed(&self) -> bool {
        (self.returned, self.failed, self.ignored) == (1, 0, 0)
    }

    /// Adds the results of another program.
    pub(crate) fn add(&mut self, other: Self) {
        self.returned += other.returned;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failed_names.extend(other.failed_names);
        self.ignored_names.extend(other.ignored_names);
    }

    /// Adds the tests' notes, lines like `program::test: reason`. A test may have several reasons.
    pub(crate) fn add_skips(&mut self, noted: &str) {
        for line in noted.lines() {
            // A name contains only double colons and no blanks.
            let (test, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
            self.skipped.entry(test.to_owned()).or_default().insert(reason.to_owned());
        }
    }

    /// Whether no test ran or was ignored.
    pub(crate) fn is_empty(&self) -> bool {
        self.returned + self.failed + self.ignored == 0
    }

    /// The skipped tests, one per line. They are printed before the last line, for readers that only read that one.
    pub(crate) fn skips(&self) -> String {
        let noted = self.noted().flat_map(|(test, reasons)| {
            reasons.iter().map(move |reason| format!("SKIPPED {test}: {reason}\n"))
        });
        let ignored =
            self.ignored_names.iter().map(|(test, reason)| format!("SKIPPED {test}: {reason}\n"));
        noted.chain(ignored).collect()
    }

    /// A test that was partially skipped and then failed counts as failed.
    fn noted(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        let bare = |test: &str| test.split_once("::").map_or(test, |(_, bare)| bare).to_owned();
        self.skipped.iter().filter(move |(test, _)| !self.failed_names.contains(&bare(test)))
    }
}

/// The reason of an ignored test: `ignored` alone, or with a reason as printed by the test library (`ignored,
/// reason`) or libtest-mimic (`ignored (reason)`). `None` for other outcomes.
pub(crate) fn ignored(outcome: &str) -> Option<&str> {
    let rest = outcome.trim().strip_prefix("ignored")?;
    let in_brackets = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    let reason = in_brackets.or_else(|| rest.strip_prefix(", "));
    Some(reason.unwrap_or("marked as ignored"))
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noted = self.noted().count() as u64;
        let passed = self.returned.saturating_sub(noted);
        write!(
            formatter,
            "{passed} passed, {} failed, {} skipped",
            self.failed,
            noted + self.ignored
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 6 tests
test a::runs ... ok
test a::cannot ... ok
test a::breaks - should panic ... FAILED
test a::breaks_in_part ... FAILED
test measures ... ignored, takes long, too long
test lacks   ... ignored (no swap (here))
test result: FAILED. 2 passed; 2 failed; 2 ignored; 0 measured; 5 filtered out; finished in 1.20s
my 7 passed; 7 failed
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn closing_lines_are_summed_and_others_are_not() {
        let mut totals = Totals::default();
        assert!(totals.is_empty());
        OUTPUT.lines().for_each(|line| {
            totals.add_line(line);
        });
        assert!(!totals.is_empty());
        assert_eq!(totals.to_string(), "12 passed, 2 failed, 2 skipped");
        let expected = "SKIPPED measures: takes long, too long\nSKIPPED lacks: no swap (here)\n";
        assert_eq!(totals.skips(), expected);
    }

    #[test]
    fn a_test_that_failed_once_and_passes_has_passed() {
        let mut totals = Totals::default();
        OUTPUT.lines().for_each(|line| {
            totals.add_line(line);
        });
        let (counted, names) = totals.failed();
        assert_eq!(
            (counted, names.collect::<Vec<_>>()),
            (2, vec!["a::breaks", "a::breaks_in_part"])
        );
        totals.forgive("a::breaks");
        totals.forgive("a::breaks");
        totals.forgive("a::runs");
        assert_eq!(totals.to_string(), "13 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn only_one_test_that_ran_has_passed_again() {
        let of = |line: &str| {
            let mut totals = Totals::default();
            totals.add_line(line);
            totals.is_one_that_passed()
        };
        assert!(of("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out"));
        assert!(!of("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out"));
        assert!(!of("test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out"));
        assert!(!of("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured"));
        assert!(!of("killed"));
    }

    #[test]
    fn a_test_that_noted_itself_has_not_passed() {
        let mut totals = Totals::default();
        OUTPUT.lines().for_each(|line| {
            totals.add_line(line);
        });
        totals.add_skips("lab::a::cannot: no disk: none\nlab::a::cannot: no disk: none\n");
        totals.add_skips("lab::a::cannot: no swap\nlab::a::breaks_in_part: in part: no disk\n");
        assert_eq!(totals.to_string(), "11 passed, 2 failed, 3 skipped");
        let skips = totals.skips();
        let expected = "SKIPPED lab::a::cannot: no disk: none\nSKIPPED lab::a::cannot: no swap\n";
        assert!(skips.contains(expected), "{skips}");
        assert!(!skips.contains("breaks_in_part"), "it failed: {skips}");
    }
}
