//! kubelet's back-off: 0.5 s after the first failure, then doubled, at most 122 s (`exponentialbackoff` in
//! pkg/util/goroutinemap, cap of 2 min 2 s; measured gaps 0.64, 1.04, 2.05, 4.04, ... 122 s).

use std::time::Duration;

use crate::model::time::Monotonic;

/// The longest delay.
pub const CAP: Duration = Duration::from_secs(122);
const FIRST: Duration = Duration::from_millis(500);
/// Calls within this time belong to one attempt: one removal makes several calls.
const SAME_ATTEMPT: Duration = Duration::from_millis(200);
/// Relative deviation of a gap from the back-off, to both sides. The attempt itself takes time, too.
const SLACK: f64 = 0.35;
/// Maximum number of stored attempts: more than the back-off has steps.
const REMEMBERED: usize = 32;

/// The times of attempts.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// The start of each attempt.
    times: Vec<Monotonic>,
    /// The last call of the last attempt.
    last: Option<Monotonic>,
    count: u64,
}

impl Attempts {
    /// Adds a call; returns whether it starts a new attempt.
    pub fn note(&mut self, time: Monotonic) -> bool {
        let new = self.last.is_none_or(|last| time.since(last) > SAME_ATTEMPT);
        self.last = Some(time);
        if new {
            if self.times.len() == REMEMBERED {
                self.times.remove(0);
            }
            self.count += 1;
            self.times.push(time);
        }
        new
    }

    /// Number of attempts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Gaps between the attempts.
    pub fn gaps(&self) -> Vec<Duration> {
        self.times.windows(2).map(|w| w[1].since(w[0])).collect()
    }

    /// The gap to the next attempt, if the gaps so far follow kubelet's back-off. A single gap is too often close to
    /// some step: two consecutive ones must fit.
    pub fn next_gap(&self) -> Option<Duration> {
        let gaps = self.gaps();
        let last = gaps.last().filter(|_| gaps.len() > 1)?;
        let on_ladder = gaps.windows(2).all(|w| near(w[1], expected(w[0])));
        let plausible = gaps.iter().all(|gap| is_rung(*gap));
        (on_ladder && plausible).then(|| expected(*last))
    }
}

fn expected(gap: Duration) -> Duration {
    (gap * 2).min(CAP)
}

fn near(gap: Duration, rung: Duration) -> bool {
    (gap.as_secs_f64() / rung.as_secs_f64() - 1.0).abs() <= SLACK
}

fn is_rung(gap: Duration) -> bool {
    let mut rung = FIRST;
    while rung < CAP {
        if near(gap, rung) {
            return true;
        }
        rung *= 2;
    }
    near(gap, CAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(seconds: &[f64]) -> Attempts {
        let mut attempts = Attempts::default();
        let mut at = 1e9;
        attempts.note(Monotonic(at as u64));
        for gap in seconds {
            at += gap * 1e9;
            attempts.note(Monotonic(at as u64));
        }
        attempts
    }

    #[test]
    fn gaps_measured_on_a_real_kubelet_are_its_ladder() {
        let measured = [0.64, 1.04, 2.05, 4.04, 8.12, 16.06, 32.09, 64.06, 122.06, 122.03];
        for n in 2..=measured.len() {
            let next = attempts(&measured[..n]).next_gap().unwrap();
            let want = measured.get(n).copied().unwrap_or(122.0);
            assert!(near(next, Duration::from_secs_f64(want)), "after {n}: {next:?}");
        }
    }

    #[test]
    fn other_rhythms_are_not() {
        assert_eq!(attempts(&[1.0, 1.0, 1.0]).next_gap(), None);
        for alone in [0.3, 0.5, 1.0, 122.0] {
            assert_eq!(attempts(&[alone]).next_gap(), None, "one may be near by chance");
        }
        assert_eq!(attempts(&[]).next_gap(), None);
        assert_eq!(attempts(&[2.0, 2.0, 2.0]).next_gap(), None);
    }

    #[test]
    fn a_burst_is_one_attempt() {
        assert_eq!(attempts(&[0.05; 49]).count(), 1, "a shim's 50 tries");
    }
}
