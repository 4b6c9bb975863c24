//! The sum of what cargo's test programs count.

use std::fmt;

/// Tests passed and failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Totals {
    /// Adds what a line says, if it is a test program's closing line:
    /// `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s`.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = counts.split([' ', ';']).collect();
        for pair in words.windows(2) {
            let [number, name] = pair else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match *name {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed_and_others_are_not() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "my 7 passed; 7 failed",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1.20s",
        ] {
            totals.add_line(line);
        }
        assert_eq!(totals, Totals { passed: 13, failed: 2 });
        assert_eq!(totals.to_string(), "13 passed, 2 failed");
    }
}
