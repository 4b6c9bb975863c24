//! The programs and tests that take longest.

use std::fmt;
use std::time::{Duration, Instant};

/// Number of printed entries of each kind.
const SHOWN: usize = 12;

/// Durations of programs and tests. A test's duration counts from the end of the previous test of its program; where
/// a program runs several at once, that is only a part of the time.
#[derive(Debug, Default)]
pub(crate) struct Longest {
    programs: Vec<(String, Duration)>,
    tests: Vec<(String, Duration)>,
}

/// The clock of one program.
pub(crate) struct Clock {
    program: String,
    begun: Instant,
    last: Instant,
}

impl Clock {
    /// Starts with the program.
    pub(crate) fn start(program: &str) -> Self {
        let now = Instant::now();
        Self { program: program.to_owned(), begun: now, last: now }
    }
}

impl Longest {
    /// Records that a test has just ended.
    pub(crate) fn test_ended(&mut self, clock: &mut Clock, name: &str) {
        let now = Instant::now();
        self.tests.push((format!("{}::{name}", clock.program), now - clock.last));
        clock.last = now;
    }

    /// Adds the durations of another instance.
    pub(crate) fn add(&mut self, other: Self) {
        self.programs.extend(other.programs);
        self.tests.extend(other.tests);
    }

    /// Records that a program has ended, and returns how long it took.
    pub(crate) fn program_ended(&mut self, clock: Clock) -> Duration {
        let took = clock.begun.elapsed();
        self.programs.push((clock.program, took));
        took
    }
}

impl fmt::Display for Longest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |all: &[(String, Duration)]| {
            let mut all: Vec<_> = all.iter().filter(|(_, took)| took.as_secs() > 0).collect();
            all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
            let shown = all.iter().take(SHOWN);
            let shown = shown.map(|(name, took)| format!("{name} {} s", took.as_secs()));
            shown.collect::<Vec<_>>().join(", ")
        };
        let [programs, tests] = [line(&self.programs), line(&self.tests)];
        if !programs.is_empty() {
            write!(formatter, "\nlongest programs: {programs}\nlongest tests: {tests}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first_and_what_takes_no_time_is_left_out() {
        let of = |name: &str, seconds| (name.to_owned(), Duration::from_secs(seconds));
        let longest = Longest {
            programs: vec![of("a", 2), of("b", 9)],
            tests: vec![of("a::x", 0), of("b::y", 1), of("b::z", 8)],
        };
        let expected = "\nlongest programs: b 9 s, a 2 s\nlongest tests: b::z 8 s, b::y 1 s";
        assert_eq!(longest.to_string(), expected);
        assert_eq!(Longest::default().to_string(), "");
    }

    #[test]
    fn a_test_takes_from_the_end_of_the_one_before_to_its_own() {
        let mut longest = Longest::default();
        let mut clock = Clock::start("a");
        clock.last = clock.begun.checked_sub(Duration::from_secs(5)).unwrap();
        longest.test_ended(&mut clock, "x");
        longest.test_ended(&mut clock, "y");
        let took: Vec<u64> = longest.tests.iter().map(|(_, took)| took.as_secs()).collect();
        assert_eq!(took, [5, 0]);
    }
}
