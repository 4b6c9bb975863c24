//! How long kubelet waits after a failed volume operation.

use std::time::Duration;

/// The waits: 0.5 s, doubled each time, at most 2 min 2 s.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(122);

    /// Before the first failure.
    pub(super) fn new() -> Self {
        Self { next: Duration::from_millis(500) }
    }

    /// How long to wait after one more failure.
    pub(super) fn after_failure(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::LONGEST);
        wait
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
}
