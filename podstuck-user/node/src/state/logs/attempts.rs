//! What kubelet's log says of pods, as much of it as is told: the last of each volume, and the first.
//!
//! kubelet says some errors ten times a second. Such a volume must not displace what is said of others.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::klog::Failed;
use podstuck_model::said::{Level, Report};

/// How much is told in all: several of each volume of many pods. A pod that goes in good health has one of
/// each volume and container.
const ATTEMPTS: usize = 2048;

/// What is told of a pod.
pub(super) enum Told {
    Failed(Failed),
    Reported {
        uid: String,
        volume: String,
        at: Timestamp,
        report: Report,
    },
    OfRuntime {
        uid: String,
        at: Timestamp,
        error: String,
    },
    /// Of no pod: of kubelet's watch of all.
    OfPod {
        uid: String,
        at: Timestamp,
        error: String,
        times: u64,
        level: Level,
    },
}

impl Told {
    pub(super) fn at(&self) -> Timestamp {
        match self {
            Self::Failed(failed) => failed.at,
            Self::Reported { at, .. } | Self::OfRuntime { at, .. } | Self::OfPod { at, .. } => *at,
        }
    }
}

/// By pod and volume.
#[derive(Default)]
pub(super) struct Attempts {
    of: BTreeMap<(String, String), VecDeque<(Told, bool)>>,
    count: usize,
    forgotten: Option<Timestamp>,
}

impl Told {
    fn whose(&self) -> (String, String) {
        match self {
            Self::Failed(Failed { uid, volume, .. }) | Self::Reported { uid, volume, .. } => {
                (uid.clone(), volume.clone())
            }
            Self::OfRuntime { uid, .. } | Self::OfPod { uid, .. } => (uid.clone(), String::new()),
        }
    }
}

impl Attempts {
    /// Takes the next one of the log, and whether it is proven.
    pub(super) fn push(&mut self, told: Told, is_proven: bool) {
        if self.count >= ATTEMPTS {
            self.forget_one();
        }
        self.of.entry(told.whose()).or_default().push_back((told, is_proven));
        self.count += 1;
    }

    /// Forgets one of the volume that most is said of: the first after the first one.
    fn forget_one(&mut self) {
        let Some(most) = self.of.values_mut().max_by_key(|told| told.len()) else { return };
        if most.len() > 2 {
            most.remove(1);
        } else if let Some((gone, _)) = most.pop_front() {
            // Of this one the beginning is not known any more.
            self.forgotten = self.forgotten.max(Some(gone.at()));
        }
        self.of.retain(|_, told| !told.is_empty());
        self.count -= 1;
    }

    /// Until when the first of a volume may be missing.
    pub(super) fn forgotten(&self) -> Option<Timestamp> {
        self.forgotten
    }

    /// All of them, in the order of time.
    pub(super) fn into_told(self) -> impl Iterator<Item = (Told, bool)> {
        let mut all: Vec<(Told, bool)> = self.of.into_values().flatten().collect();
        all.sort_by_key(|(told, _)| told.at());
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uid: &str, second: usize) -> Told {
        let at = Timestamp::from_second(second as i64).unwrap();
        Told::Reported { uid: uid.into(), volume: "v".into(), at, report: Report::TornDown }
    }

    #[test]
    fn a_volume_that_much_is_said_of_displaces_no_other() {
        let mut attempts = Attempts::default();
        attempts.push(told("quiet", 1), true);
        for second in 2..ATTEMPTS * 3 {
            attempts.push(told("loud", second), true);
        }
        attempts.push(told("quiet", ATTEMPTS * 3), true);
        assert_eq!(attempts.forgotten(), None);
        let all: Vec<Told> = attempts.into_told().map(|(told, _)| told).collect();
        assert_eq!(all.len(), ATTEMPTS);
        let of = |uid: &str| -> Vec<i64> {
            let of = all.iter().filter(|told| told.whose().0 == uid);
            of.map(|told| told.at().as_second()).collect()
        };
        assert_eq!(of("quiet"), [1, ATTEMPTS as i64 * 3]);
        let loud = of("loud");
        assert_eq!((loud[0], loud.last().copied()), (2, Some(ATTEMPTS as i64 * 3 - 1)));
        assert!(loud.is_sorted());
    }

    #[test]
    fn of_too_many_volumes_it_is_known_what_is_missing() {
        let mut attempts = Attempts::default();
        for second in 0..ATTEMPTS + 3 {
            attempts.push(told(&format!("pod-{second}"), second), true);
        }
        let forgotten = attempts.forgotten().unwrap();
        let all: Vec<Told> = attempts.into_told().map(|(told, _)| told).collect();
        assert_eq!(all.len(), ATTEMPTS);
        let missing = (0..ATTEMPTS as i64 + 3)
            .filter(|second| !all.iter().any(|told| told.at().as_second() == *second));
        assert_eq!(missing.max(), Some(forgotten.as_second()));
    }
}
