//! The stops of containers in the log of kubelet up to 1.20, which names the container alone by its ID
//! (`killContainer` in pkg/kubelet/kuberuntime).

use std::{collections::VecDeque, sync::LazyLock};

use jiff::Timestamp;
use regex::Regex;

use super::{attempts::Finding, fixed, pod_ids::PodIds};

/// Maximum number of stops by ID in one read.
const STOPS: usize = 2048;

static BY_ID: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"^Killing container "[a-z-]+://([0-9a-f]{64})" with ([0-9]+) second grace period$"#)
});

/// Stops whose pod is not known before the whole text was read.
#[derive(Default)]
pub(super) struct Stops {
    by_id: VecDeque<(String, Timestamp, u64)>,
    /// The last stop that was dropped or not understood.
    lost: Option<Timestamp>,
}

impl Stops {
    /// Takes a message of kubelet's.
    pub(super) fn listen(&mut self, message: &str, written: impl FnOnce() -> Option<Timestamp>) {
        if !message.starts_with("Killing container \"") {
            return;
        }
        let Some(at) = written() else { return };
        let stop =
            BY_ID.captures(message).and_then(|it| Some((it[1].into(), at, it[2].parse().ok()?)));
        match stop {
            Some(stop) => self.by_id.push_back(stop),
            None => self.lost = self.lost.max(Some(at)),
        }
        if self.by_id.len() > STOPS {
            self.lost = self.lost.max(self.by_id.pop_front().map(|(_, at, _)| at));
        }
    }

    /// IDs of the containers.
    pub(super) fn containers(&self) -> impl Iterator<Item = &str> {
        self.by_id.iter().map(|(id, ..)| id.as_str())
    }

    /// The time up to which a stop of any pod may be missing.
    pub(super) fn missing(&self, ids: &PodIds) -> Option<Timestamp> {
        let unknown = self.by_id.iter().filter(|(id, ..)| ids.pod(id).is_none());
        self.lost.max(unknown.map(|(_, at, _)| *at).max())
    }

    /// The stops whose pod is known.
    pub(super) fn into_findings(self, ids: &PodIds) -> impl Iterator<Item = Finding> {
        self.by_id.into_iter().filter_map(|(id, at, grace_s)| {
            let uid = ids.pod(&id)?.to_owned();
            Some(Finding::Killing { uid, at, grace_s: Some(grace_s) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn a_stop_by_id_is_its_pods_or_missing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut stops = Stops::default();
        for (digit, second) in [('a', 1), ('b', 2)] {
            let line =
                format!("Killing container \"docker://{}\" with 60 second grace period", id(digit));
            stops.listen(&line, || Some(at(second)));
        }
        let (none, one, both) = (
            vec![],
            vec![(id('a'), UID.into())],
            vec![(id('a'), UID.into()), (id('b'), UID.into())],
        );
        let missing = |known| stops.missing(&PodIds::new(known));
        assert_eq!(
            (missing(none), missing(one.clone()), missing(both)),
            (Some(at(2)), Some(at(2)), None)
        );
        let found: Vec<Finding> = stops.into_findings(&PodIds::new(one)).collect();
        let [Finding::Killing { uid, at: when, grace_s: Some(60) }] = &found[..] else { panic!() };
        assert_eq!((uid.as_str(), *when), (UID, at(1)));
    }

    #[test]
    fn a_stop_in_another_form_is_missing() {
        let at = Timestamp::from_second(9).unwrap();
        let mut stops = Stops::default();
        // kubelet before 1.6, which logs it before the hook.
        let line =
            format!("Killing container \"{} web shop/web\" with 30 second grace period", id('a'));
        stops.listen(&line, || Some(at));
        assert_eq!(stops.missing(&PodIds::new(Vec::new())), Some(at));
        assert_eq!(stops.into_findings(&PodIds::new(Vec::new())).count(), 0);
    }
}
