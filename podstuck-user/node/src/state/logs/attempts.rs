//! The findings in kubelet's log, bounded: of each volume the first and the last ones.
//!
//! kubelet logs some errors ten times a second. A volume with such an error must not displace others.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::klog::Failed;
use podstuck_model::said::{Complaint, Level, Report};

/// Findings kept in all: several of each volume of many pods. A pod that runs has one for each volume, and a pod that
/// terminates without an error one for each volume and container.
const ATTEMPTS: usize = 4096;

/// One finding in kubelet's log.
pub(super) enum Finding {
    Failed(Failed),
    Reported {
        uid: String,
        volume: String,
        at: Timestamp,
        report: Report,
    },
    /// kubelet asks the runtime to stop a container, within this grace period.
    Killing {
        uid: String,
        at: Timestamp,
        grace_s: Option<u64>,
    },
    /// systemd has started kubelet's service again; the number is its own count.
    StartedAgain {
        at: Timestamp,
        times: u64,
    },
    /// `is_list` where kubelet asked for all pods or containers: it does nothing for any pod without.
    OfRuntime {
        uid: String,
        at: Timestamp,
        error: String,
        is_list: bool,
    },
    /// `uid` is empty where it is about all pods: `known` is its complaint.
    OfPod {
        uid: String,
        known: Option<Complaint>,
        at: Timestamp,
        error: String,
        times: u64,
        level: Level,
    },
}

impl Finding {
    pub(super) fn at(&self) -> Timestamp {
        match self {
            Self::Failed(failed) => failed.at,
            Self::Reported { at, .. }
            | Self::Killing { at, .. }
            | Self::StartedAgain { at, .. }
            | Self::OfRuntime { at, .. }
            | Self::OfPod { at, .. } => *at,
        }
    }
}

/// The findings, by pod UID and volume, each with whether it is proven that kubelet wrote it.
#[derive(Default)]
pub(super) struct Attempts {
    of: BTreeMap<(String, String), VecDeque<(Finding, bool)>>,
    count: usize,
    forgotten: Option<Timestamp>,
}

impl Finding {
    fn whose(&self) -> (String, String) {
        match self {
            Self::Failed(Failed { uid, volume, .. }) | Self::Reported { uid, volume, .. } => {
                (uid.clone(), volume.clone())
            }
            Self::Killing { uid, .. } | Self::OfRuntime { uid, .. } | Self::OfPod { uid, .. } => {
                (uid.clone(), String::new())
            }
            Self::StartedAgain { .. } => Default::default(),
        }
    }
}

impl Attempts {
    /// Adds the next finding of the log.
    pub(super) fn push(&mut self, finding: Finding, is_proven: bool) {
        if self.count >= ATTEMPTS {
            self.forget_one();
        }
        let known = self.of.entry(finding.whose()).or_default();
        let is_torn_down = matches!(finding, Finding::Reported { report: Report::TornDown, .. });
        if is_torn_down && is_proven {
            // The mount before it is over.
            let before = known.len();
            known.retain(|(it, _)| !matches!(it, Finding::Reported { report: Report::SetUp, .. }));
            self.count -= before - known.len();
        }
        known.push_back((finding, is_proven));
        self.count += 1;
    }

    /// Drops the second finding of the volume with the most findings.
    fn forget_one(&mut self) {
        let Some(most) = self.of.values_mut().max_by_key(|findings| findings.len()) else { return };
        if most.len() > 2 {
            most.remove(1);
        } else if let Some((gone, _)) = most.pop_front() {
            // The first finding of this volume is lost.
            self.forgotten = self.forgotten.max(Some(gone.at()));
        }
        self.of.retain(|_, findings| !findings.is_empty());
        self.count -= 1;
    }

    /// The time up to which the first finding of a volume may be missing.
    pub(super) fn forgotten(&self) -> Option<Timestamp> {
        self.forgotten
    }

    /// All findings, in the order of time.
    pub(super) fn into_findings(self) -> impl Iterator<Item = (Finding, bool)> {
        let mut all: Vec<(Finding, bool)> = self.of.into_values().flatten().collect();
        all.sort_by_key(|(finding, _)| finding.at());
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn_down(uid: &str, second: usize) -> Finding {
        let at = Timestamp::from_second(second as i64).unwrap();
        Finding::Reported { uid: uid.into(), volume: "v".into(), at, report: Report::TornDown }
    }

    #[test]
    fn a_volume_with_many_findings_displaces_no_other() {
        let mut attempts = Attempts::default();
        attempts.push(torn_down("quiet", 1), true);
        for second in 2..ATTEMPTS * 3 {
            attempts.push(torn_down("loud", second), true);
        }
        attempts.push(torn_down("quiet", ATTEMPTS * 3), true);
        assert_eq!(attempts.forgotten(), None);
        let all: Vec<Finding> = attempts.into_findings().map(|(finding, _)| finding).collect();
        assert_eq!(all.len(), ATTEMPTS);
        let of = |uid: &str| -> Vec<i64> {
            let of = all.iter().filter(|it| it.whose().0 == uid);
            of.map(|it| it.at().as_second()).collect()
        };
        assert_eq!(of("quiet"), [1, ATTEMPTS as i64 * 3]);
        let loud = of("loud");
        assert_eq!((loud[0], loud.last().copied()), (2, Some(ATTEMPTS as i64 * 3 - 1)));
        assert!(loud.is_sorted());
    }

    #[test]
    fn a_mount_counts_until_the_volume_is_torn_down() {
        let set_up = |second: i64| {
            let (uid, volume) = ("pod".into(), "v".into());
            let at = Timestamp::from_second(second).unwrap();
            Finding::Reported { uid, volume, at, report: Report::SetUp }
        };
        let mut attempts = Attempts::default();
        for finding in [set_up(1), torn_down("pod", 2), set_up(3)] {
            attempts.push(finding, true);
        }
        let all = attempts.into_findings().map(|(finding, _)| finding.at().as_second());
        assert_eq!(all.collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn with_too_many_volumes_the_time_of_the_last_loss_is_known() {
        let mut attempts = Attempts::default();
        for second in 0..ATTEMPTS + 3 {
            attempts.push(torn_down(&format!("pod-{second}"), second), true);
        }
        let forgotten = attempts.forgotten().unwrap();
        let all: Vec<Finding> = attempts.into_findings().map(|(finding, _)| finding).collect();
        assert_eq!(all.len(), ATTEMPTS);
        let missing = (0..ATTEMPTS as i64 + 3)
            .filter(|second| !all.iter().any(|it| it.at().as_second() == *second));
        assert_eq!(missing.max(), Some(forgotten.as_second()));
    }
}
