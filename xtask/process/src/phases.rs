//! How long each part of a command took, since what is slow is to be seen and not guessed.

use std::fmt;
use std::time::{Duration, Instant};

/// The parts so far, in their order.
pub struct Phases {
    begun: Instant,
    done: Vec<(String, Duration)>,
}

impl Default for Phases {
    /// None yet.
    fn default() -> Self {
        Self { begun: Instant::now(), done: Vec::new() }
    }
}

impl Phases {
    /// Does a part of the work, says its name before it, and notes its time however it ends.
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
