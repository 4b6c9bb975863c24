//! How long the thread that scans the node rests between two scans.

use std::time::Duration;

use podstuck_model::time::Monotonic;

/// How often at most beside the node's work.
const EVERY: Duration = Duration::from_secs(2);
/// How many times longer than it worked the thread rests at least: 2 % of one core, however many mounts and processes
/// there are.
const REST: u32 = 49;
/// The same for a run that lasts for days: 0.2 %. Helpers, and the thread that takes the scan, use half as much again.
const REST_FOR_DAYS: u32 = 499;
/// The same while a person waits: most causes need facts that hold in several scans, so their number decides when the
/// answer comes. At most a fifth of one core.
const EVERY_AT_FIRST: Duration = Duration::from_millis(500);
const REST_AT_FIRST: u32 = 4;
/// How long the faster pace lasts: later, an answer depends on changes on the node, not on more scans.
const AT_FIRST: Duration = Duration::from_secs(30);

/// What the scans are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// For a run that a person watches.
    Beside,
    /// For a run that lasts for days.
    Days,
    /// For one answer, since this time.
    Asked(Monotonic),
}

impl Pace {
    /// Interval between two reads of the node's logs.
    pub fn of_logs(self) -> Duration {
        if self == Self::Days { Duration::from_secs(5) } else { Duration::from_secs(2) }
    }

    /// Interval between two looks at what the threads do that remove files. What they do is reported from `--hung-after`
    /// on, and there is no verdict on it before ten seconds.
    pub fn of_threads(self) -> Duration {
        if self == Self::Days { Duration::from_secs(4) } else { Duration::from_secs(1) }
    }

    /// How many processes of pods that give no reason to be looked at are looked at in one scan. Two thousand of them are
    /// seen in ten seconds; in a run that lasts for days, those of 200 pods in a minute.
    pub(super) fn processes(self) -> usize {
        if self == Self::Days { 100 } else { 400 }
    }

    /// The rest after a scan that took this much CPU time and ended at `now`.
    pub(super) fn rest(self, worked: Duration, now: Monotonic) -> Duration {
        match self {
            Self::Asked(since) if now.since(since) < AT_FIRST => {
                EVERY_AT_FIRST.max(worked * REST_AT_FIRST)
            }
            Self::Asked(_) | Self::Beside => EVERY.max(worked * REST),
            Self::Days => EVERY.max(worked * REST_FOR_DAYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_an_answer_gets_more_scans_at_first() {
        let (start, millis) = (Monotonic(0), Duration::from_millis);
        let later = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let asked = Pace::Asked(start);
        // A scan of a node with many mounts: half a second of CPU time.
        assert_eq!(asked.rest(millis(500), later(3)), millis(2000));
        assert_eq!(Pace::Beside.rest(millis(500), later(3)), millis(24_500));
        // One of a small node.
        assert_eq!(asked.rest(millis(10), later(3)), millis(500));
        assert_eq!(Pace::Beside.rest(millis(10), later(3)), millis(2000));
        assert_eq!(Pace::Days.rest(millis(20), later(3)), millis(9980));
        // A long wait costs no more than any other run.
        assert_eq!(asked.rest(millis(500), later(31)), millis(24_500));
    }
}
