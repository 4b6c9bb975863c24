//! The answer of `diagnose`, from all that a run knows.

use std::time::Duration;

use jiff::Timestamp;

use super::session::Session;
use crate::{
    detect::{
        Verdict, rank,
        record::{self, Here},
        stage,
    },
    identity::pod_record::PodRecord,
    kernel::facts,
    model::{diagnosis::PodStage, identity::Pod, time::Monotonic},
};

/// A firm verdict may still be followed by a better one, from the same attempt.
const SETTLED: Duration = Duration::from_secs(2);
/// One that the pod does not wait for may stand beside what it does wait for: kubelet's tries are
/// that far apart in the beginning.
const SETTLED_HARMLESS: Duration = Duration::from_secs(8);

impl Session {
    /// Whether there is an answer, and it had time to become a better one. What holds up no pod is
    /// an answer only if one target was asked about: on a node there is always such a thing.
    pub(super) fn is_firm(&self, one_target: bool) -> bool {
        let Some(since) = self.firm_since else { return false };
        let mut firm = self.ledger.all().filter(|finding| rank::is_firm(finding));
        if firm.any(|finding| finding.blocks_deletion == Some(true)) {
            since.elapsed() >= SETTLED
        } else {
            one_target && since.elapsed() >= SETTLED_HARMLESS
        }
    }

    /// Judges the pod's record by how far the deletion has come here.
    pub(super) fn judge(&mut self, record: &PodRecord, pod: Option<&Pod>) {
        let stage = self.stages(pod).first().map(|stage| stage.stage);
        let node = facts::node_name();
        let here = Here { node: &node, stage, now: Timestamp::now(), at: Monotonic::now() };
        if let Some(draft) = record::verdict(record, here) {
            self.tell(Verdict::Found(Box::new(draft)));
        }
    }

    /// Answers why the target is stuck.
    pub(super) fn diagnose(&self, target: Option<&str>, pod: Option<&Pod>) {
        let stages = self.stages(pod);
        let window_s = self.window().as_secs_f64();
        let answer = rank::diagnosis(target, stages, window_s, self.ledger.all());
        self.reporter.diagnosis(&answer);
    }

    /// How far the pod in question has come, or those that something was found of.
    fn stages(&self, pod: Option<&Pod>) -> Vec<PodStage> {
        // Before the first look, nothing is known.
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut pods: Vec<&Pod> = match pod {
            Some(pod) => vec![pod],
            None => self.ledger.all().filter_map(|finding| finding.pod.as_ref()).collect(),
        };
        pods.sort();
        pods.dedup();
        let state = |pod: &Pod| sample.pods.iter().find(|state| state.uid == pod.uid);
        pods.into_iter().map(|pod| stage::stage(pod, state(pod))).collect()
    }
}
