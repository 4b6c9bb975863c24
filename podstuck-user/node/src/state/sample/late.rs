//! Whether looks at the node come back in time.

use std::time::{Duration, Instant};

/// A look that takes this long hangs: on a node with thousands of mounts it takes a second.
const LATE: Duration = Duration::from_secs(60);

/// When looks came, and when they were due.
#[derive(Debug)]
pub struct Lateness {
    due: Instant,
    longest: Duration,
}

impl Lateness {
    /// From now on they are waited for.
    pub fn start(now: Instant) -> Self {
        Self { due: now, longest: Duration::ZERO }
    }

    /// One came; the next one is begun after this rest.
    pub fn came(&mut self, now: Instant, rest: Duration) {
        self.longest = self.longest.max(now - self.due);
        self.due = now + rest;
    }

    /// Whether one that is due has not come.
    pub fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.due) >= LATE
    }

    /// The longest time that one which was due did not come, in seconds; 0 when none was late.
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
