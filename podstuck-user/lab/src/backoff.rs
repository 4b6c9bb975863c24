//! kubelet's back-off after a failed volume operation.

use std::time::Duration;

/// The back-off: 0.5 s, doubled after each failure, at most 2 min 2 s.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    /// Number of upcoming attempts that are logged as past ones.
    past: u32,
}

impl Backoff {
    /// The back-off after the first ten minutes.
    pub(super) const LONGEST: Duration = Duration::from_secs(122);
    /// Number of attempts that a late case makes in quick succession.
    const PAST: u32 = 6;
    const BETWEEN_PAST: Duration = Duration::from_millis(50);

    /// The state before the first failure.
    pub(super) fn new() -> Self {
        Self { next: Duration::from_millis(500), past: 0 }
    }

    /// The state an hour later.
    pub(super) fn late() -> Self {
        Self { next: Self::LONGEST, past: Self::PAST }
    }

    /// The wait after another failure.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.past = self.past.saturating_sub(1);
        if self.past > 0 {
            return Self::BETWEEN_PAST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(Self::LONGEST);
        wait
    }

    /// The age with which the current attempt is logged.
    pub(super) fn ago(&self) -> Duration {
        Self::LONGEST * self.past.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbs_as_kubelet_does() {
        let mut backoff = Backoff::new();
        let seconds: Vec<f32> = (0..10).map(|_| backoff.after_failure().as_secs_f32()).collect();
        assert_eq!(seconds, [0.5, 1., 2., 4., 8., 16., 32., 64., 122., 122.]);
    }

    #[test]
    fn an_hour_later_the_last_attempt_is_now_and_the_next_one_far_away() {
        let mut backoff = Backoff::late();
        let attempts: Vec<(u64, f32)> = (0..8)
            .map(|_| (backoff.ago().as_secs(), backoff.after_failure().as_secs_f32()))
            .collect();
        let past = [610, 488, 366, 244, 122].map(|ago| (ago, 0.05));
        assert_eq!(attempts[..5], past);
        assert_eq!(attempts[5..], [(0, 122.); 3]);
    }
}
