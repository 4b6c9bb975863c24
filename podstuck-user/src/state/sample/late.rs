//! Whether looks at the node come back in time.

use std::time::{Duration, Instant};

/// A look that is away for this long hangs: also on a node with thousands of mounts the next one comes
/// within seconds.
const LATE: Duration = Duration::from_secs(60);

/// When looks came.
#[derive(Debug)]
pub struct Looks {
    last: Instant,
    longest: Duration,
}

impl Looks {
    /// From now on they are waited for.
    pub fn start(now: Instant) -> Self {
        Self { last: now, longest: Duration::ZERO }
    }

    /// One came.
    pub fn came(&mut self, now: Instant) {
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }

    /// The longest time without one, in seconds; 0 when none was late.
    pub fn late_s(&self, now: Instant) -> u64 {
        let longest = self.longest.max(now - self.last);
        if longest < LATE { 0 } else { longest.as_secs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_is_away_for_a_minute_is_late_and_stays_known() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut looks = Looks::start(start);
        looks.came(at(2));
        assert_eq!(looks.late_s(at(61)), 0);
        assert_eq!(looks.late_s(at(92)), 90);
        looks.came(at(102));
        looks.came(at(104));
        assert_eq!(looks.late_s(at(105)), 100);
    }
}
