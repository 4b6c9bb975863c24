//! Whether scans of the node finish in time.

use std::time::{Duration, Instant};

/// A scan that takes this long hangs: on a node with thousands of mounts it takes a second.
const LATE: Duration = Duration::from_secs(60);

/// When the next scan is due, and the longest delay.
#[derive(Debug)]
pub struct Lateness {
    due: Instant,
    longest: Duration,
}

impl Lateness {
    /// The first scan is due now.
    pub fn start(now: Instant) -> Self {
        Self { due: now, longest: Duration::ZERO }
    }

    /// A scan finished; the next one begins after this rest.
    pub fn came(&mut self, now: Instant, rest: Duration) {
        self.longest = self.longest.max(now - self.due);
        self.due = now + rest;
    }

    /// Whether a scan is overdue by `LATE`.
    pub fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.due) >= LATE
    }

    /// The longest delay of a scan, in seconds; 0 when none was late.
    pub fn late_s(&self, now: Instant) -> u64 {
        let longest = self.longest.max(now - self.due);
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
        let mut looks = Lateness::start(start);
        looks.came(at(2), Duration::from_secs(100));
        assert_eq!(looks.late_s(at(50)), 0);
        assert_eq!(looks.late_s(at(161)), 0);
        assert_eq!(looks.late_s(at(192)), 90);
        assert!(looks.is_late(at(192)) && !looks.is_late(at(161)));
        looks.came(at(202), Duration::from_secs(2));
        looks.came(at(204), Duration::from_secs(2));
        assert_eq!(looks.late_s(at(206)), 100);
        assert!(!looks.is_late(at(206)), "it is over");
    }
}
