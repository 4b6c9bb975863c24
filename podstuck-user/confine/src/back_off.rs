//! Exponential back-off for a place that does not answer.

use std::time::{Duration, Instant};

/// The first pause; each is twice the one before.
const FIRST: Duration = Duration::from_secs(2);
/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// Time of the next try.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackOff {
    /// `None` before the first try.
    next: Option<Instant>,
    pause: Duration,
}

impl BackOff {
    /// Notes whether there was an answer: after one, the next try is due at once.
    pub fn came_to(&mut self, answer: bool) {
        if answer {
            *self = Self::default();
        }
    }

    /// Whether a try is due; if so, schedules the next one.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.pause = (self.pause * 2).clamp(FIRST, LONGEST);
        self.next = Some(now + self.pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_at_once_and_then_less_and_less_often() {
        let (mut back_off, begin) = (BackOff::default(), Instant::now());
        let due: Vec<u64> = (0..2000)
            .filter(|second| back_off.is_due(begin + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110, 1410, 1710]);
    }
}
