//! The durations of a command's parts.

use std::fmt;
use std::time::{Duration, Instant};

/// The completed parts, in order.
pub struct Phases {
    begun: Instant,
    done: Vec<(String, Duration)>,
}

impl Default for Phases {
    /// No parts yet.
    fn default() -> Self {
        Self { begun: Instant::now(), done: Vec::new() }
    }
}

impl Phases {
    /// Runs a part: prints its name first, and records its duration however it ends.
    pub fn run<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        println!("== {name}");
        let begun = Instant::now();
        let result = work();
        let took = begun.elapsed();
        println!("== {name}: {} s", took.as_secs());
        self.done.push((name.to_owned(), took));
        result
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "took {} s", self.begun.elapsed().as_secs())?;
        for (number, (name, took)) in self.done.iter().enumerate() {
            let before = if number == 0 { ": " } else { ", " };
            write!(formatter, "{before}{name} {} s", took.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_named_with_its_time() {
        let mut phases = Phases::default();
        assert_eq!(phases.run("building", || 3), 3);
        phases.run("testing", || ());
        assert_eq!(phases.to_string(), "took 0 s: building 0 s, testing 0 s");
    }
}
