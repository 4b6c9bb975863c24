//! Reads and writes of maps that fail. A failure loses the data of that read, and does not end the run: what is left
//! in a map is read with a later drain.

use std::fmt::Display;

/// Failures since the probes were loaded.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// How many drains missed something.
    drains: u64,
    /// Whether this drain has failed.
    fails: bool,
}

impl Failures {
    /// Starts a drain.
    pub(super) fn begin(&mut self) {
        self.fails = false;
    }

    /// Notes the error, if it is one.
    pub(super) fn note<T>(&mut self, doing: &str, result: Result<T, impl Display>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                // The first of each drain: a map that cannot be read has thousands of entries.
                if !self.fails {
                    self.fails = true;
                    self.drains += 1;
                    tracing::warn!("{doing}: {error}");
                }
                None
            }
        }
    }

    /// How many drains missed something.
    pub(super) fn drains(&self) -> u64 {
        self.drains
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_fails_once_however_much_of_it_does() {
        let mut failures = Failures::default();
        for _ in 0..2 {
            failures.begin();
            assert_eq!(failures.note("reading", Ok::<_, &str>(1)), Some(1));
            assert_eq!(failures.note::<()>("reading", Err("no memory")), None);
            assert_eq!(failures.note::<()>("reading", Err("no memory")), None);
        }
        failures.begin();
        assert_eq!(failures.drains(), 2);
    }
}
