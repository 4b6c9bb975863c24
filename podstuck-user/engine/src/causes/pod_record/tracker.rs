//! The pod's record, judged by how far the deletion has come on this node: at each look at it, since the
//! record says the same from the first moment on, and the node comes on.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    causes::pod_record::verdict::{Here, verdict},
    event::{Event, What},
    model::{diagnosis::Stage, node::NodeSample, pod_record::PodRecord},
    stage,
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// What is known of pods.
#[derive(Default)]
pub(crate) struct PodRecords {
    sample: Option<Arc<NodeSample>>,
    /// By UID.
    records: BTreeMap<String, Known>,
}

/// What is known of one.
struct Known {
    record: PodRecord,
    /// The name of this node.
    node: String,
    /// What the last verdict was about.
    told: Option<u64>,
    /// The node was not done when the record was read.
    was_left: bool,
}

impl PodRecords {
    fn judge(&mut self, context: &Context<'_>, steps: &mut Steps) {
        let sample = self.sample.as_deref();
        self.records.values_mut().for_each(|known| known.judge(sample, context, steps));
    }
}

impl Known {
    fn judge(&mut self, sample: Option<&NodeSample>, context: &Context<'_>, steps: &mut Steps) {
        let Self { record, node, .. } = &*self;
        let now = context.calendar;
        // `None` while nobody has looked.
        let stage = sample.and_then(|sample| stage::stage(&record.pod, sample));
        let stage = stage.map(|known| known.stage);
        let was_left = self.was_left || stage.is_some_and(|stage| stage < Stage::Directories);
        let found = verdict(record, Here { node, stage, was_left, now, at: context.now });
        let told = found.as_ref().map(|draft| draft.target_id);
        if let (Some(target_id), None) = (self.told, told) {
            let tracker = TrackerId::PodRecord;
            steps.say([Verdict::Over { tracker, target_id, at: context.now }]);
        }
        (self.told, self.was_left) = (told, was_left);
        steps.found(found);
    }
}

impl Tracker for PodRecords {
    fn id(&self) -> TrackerId {
        TrackerId::PodRecord
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Sample(sample) => {
                self.sample = Some(sample.clone());
                self.judge(context, steps);
            }
            What::Record { record, node } => {
                let (record, node) = (PodRecord::clone(record), node.clone());
                let before = self.records.remove(&record.pod.uid);
                let (told, was_left) = before.map_or((None, false), |it| (it.told, it.was_left));
                let known = Known { record, node, told, was_left };
                self.records.insert(known.record.pod.uid.clone(), known);
                // What the record means depends on the node, which is looked at within a moment.
                if self.sample.is_some() {
                    self.judge(context, steps);
                }
            }
            // The looks may hang. Then the record is all there is.
            What::WindowEnded if self.sample.is_none() => self.judge(context, steps),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{evidence::Certainty, identity::Pod, node::PodState, time::Monotonic},
        testing::{Alone, found},
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn record(deletion: Timestamp, finalizers: &[&str]) -> What {
        let pod =
            Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("cart".into()) };
        let record = PodRecord {
            pod,
            deletion: Some(deletion),
            grace_s: 30,
            finalizers: finalizers.iter().map(|name| (*name).into()).collect(),
            node: Some("here".into()),
            is_mirror: false,
            all_terminated: true,
            read: None,
            claims: Vec::new(),
            bidirectional: None,
        };
        What::Record { record: Box::new(record), node: "here".into() }
    }

    fn sample(populated: Option<bool>) -> What {
        let pod = PodState {
            seen_by: None,
            uid: UID.into(),
            directory: format!("/k/pods/{UID}").into(),
            started: true,
            before_boot: false,
            populated,
            changed: None,
            volume_removed: None,
            volumes: Vec::new(),
            devices: Vec::new(),
        };
        What::Sample(NodeSample { pods: vec![pod], ..NodeSample::default() }.into())
    }

    fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    fn ids(records: &mut Alone<PodRecords>, second: u64, what: What) -> Vec<&'static str> {
        let verdicts = records.take(at(second), what).verdicts;
        found(verdicts).iter().map(|draft| draft.id()).collect()
    }

    #[test]
    fn a_finalizer_is_told_at_the_first_look() {
        let mut records = Alone::<PodRecords>::new();
        let passed = record(Timestamp::UNIX_EPOCH, &["example.org/backup"]);
        assert!(ids(&mut records, 1, passed).is_empty(), "nobody has looked");
        assert_eq!(ids(&mut records, 2, sample(Some(true))), ["pod-finalizer"]);
        assert_eq!(ids(&mut records, 4, sample(Some(false))), ["pod-finalizer"]);
    }

    #[test]
    fn a_record_from_before_the_node_was_done_may_be_outdated() {
        let certainty = |first: Option<bool>| {
            let mut records = Alone::<PodRecords>::new();
            ids(&mut records, 1, record(Timestamp::UNIX_EPOCH, &["example.org/backup"]));
            ids(&mut records, 2, sample(first));
            found(records.take(at(4), sample(Some(false))).verdicts)[0].certainty()
        };
        assert_eq!(certainty(Some(false)), Certainty::Firm);
        assert_eq!(certainty(Some(true)), Certainty::Likely, "it may have been removed meanwhile");
    }

    #[test]
    fn a_record_is_judged_without_a_look_when_there_is_none() {
        let mut records = Alone::<PodRecords>::new();
        ids(&mut records, 1, record(Timestamp::UNIX_EPOCH, &["example.org/backup"]));
        assert_eq!(ids(&mut records, 250, What::WindowEnded), ["pod-finalizer"]);
    }

    #[test]
    fn a_grace_that_ends_is_over() {
        let mut records = Alone::<PodRecords>::new();
        let soon = Timestamp::UNIX_EPOCH.checked_add(jiff::SignedDuration::from_secs(9)).unwrap();
        ids(&mut records, 1, record(soon, &[]));
        assert_eq!(ids(&mut records, 2, sample(None)), ["grace-period-or-prestop"]);
        let verdicts = records.take(at(20), sample(None)).verdicts;
        assert!(matches!(verdicts[..], [Verdict::Over { .. }]), "{verdicts:?}");
        assert!(records.take(at(22), sample(None)).verdicts.is_empty());
    }
}
