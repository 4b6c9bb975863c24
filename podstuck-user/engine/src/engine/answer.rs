//! The answer of a run that was asked one question.

use std::time::Duration;

use super::Engine;
use crate::{
    model::{
        diagnosis::{Diagnosis, PodStage, Stage},
        finding::FindingState,
        identity::Pod,
        node::NodeSample,
        path::{safe, safe_path},
        time::Monotonic,
    },
    rank,
    rules::{claim, pod_record},
    stage,
};

/// A firm verdict may still be followed by a better one, from the same attempt.
const SETTLED: Duration = Duration::from_secs(2);
/// One that the pod does not wait for may stand beside what it does wait for: kubelet's tries are
/// that far apart in the beginning.
const SETTLED_HARMLESS: Duration = Duration::from_secs(8);
/// One that is likely, and to which watching for longer adds nothing, may still be followed by another
/// cause's: looks that take their time, and the first of kubelet's tries.
const SETTLED_LIKELY: Duration = Duration::from_secs(8);

impl Engine {
    /// Whether there is an answer at this time, and it had time to become a better one. What holds up
    /// no pod is an answer only if one target was asked about: on a node there is always such a thing.
    pub fn is_firm(&self, now: Monotonic) -> bool {
        let is_settled = |since| now.since(since) >= SETTLED_LIKELY;
        if self.run.has_target() && self.settled_since.is_some_and(is_settled) {
            return true;
        }
        let Some(since) = self.firm_since else { return false };
        let mut firm = self.ledger.all().filter(|finding| rank::is_firm(finding));
        if firm.any(|finding| finding.blocks_deletion == Some(true)) {
            now.since(since) >= SETTLED
        } else {
            self.run.has_target() && now.since(since) >= SETTLED_HARMLESS
        }
    }

    /// Why the target is stuck.
    pub fn diagnosis(&self) -> Diagnosis {
        let target = self.run.start.target.as_deref();
        let stages = self.stages();
        let said = self.said.of(stages.iter().map(|stage| stage.pod.uid.as_str()));
        let window = self.window().as_secs_f64();
        let is_left = stages.iter().any(|pod| pod.stage != Stage::Gone);
        let notes = match &self.sample {
            Some(sample) if is_left || !sample.unread.is_empty() => self.notes(sample),
            Some(_) => Vec::new(),
            None => vec![
                "the node was not looked at: the look has not come to its end. Whether anything of the pod is \
                 left, what is mounted, and whether kubelet runs is not known; a process or a file system that \
                 the look reads does not answer"
                    .into(),
            ],
        };
        let answer = rank::diagnosis(target, stages, said, window, self.ledger.all());
        Diagnosis { notes, ..answer }
    }

    /// Whether anybody will try again.
    fn notes(&self, sample: &NodeSample) -> Vec<String> {
        let mut notes = Vec::new();
        if sample.kubelets.is_empty() {
            notes.push(
                "no kubelet runs on this node: nobody tries to remove the pod until one does \
                 (`systemctl status kubelet`)"
                    .into(),
            );
        }
        notes.extend(sample.stopped.iter().map(|pid| {
            format!(
                "kubelet (pid {pid}) is stopped by a signal: it tries nothing until somebody has it go on \
                 (SIGCONT)"
            )
        }));
        if !sample.silent.is_empty() {
            let pids: Vec<String> = sample.silent.iter().map(u32::to_string).collect();
            notes.push(format!(
                "what these processes have mounted is not known: pid {}. They hang where they execute a program, \
                 and the kernel shows little of them until that is over",
                pids.join(", ")
            ));
        }
        notes.extend(sample.unread.iter().map(|root| {
            format!(
                "kubelet's directory {} cannot be read: which pods have anything there is not known",
                safe_path(root)
            )
        }));
        notes.extend(self.nodes.iter().filter_map(|node| {
            let ready = node.ready.as_ref().filter(|ready| ready.status != "True")?;
            let since = ready.since.map(|since| format!(" since {since}")).unwrap_or_default();
            let [name, reason] = [&node.node, &ready.reason].map(|text| safe(text.as_bytes()));
            Some(format!(
                "the API server takes node {name} for not ready{since} ({reason}): while kubelet does not \
                 report, the pod's record stays, whatever is done here"
            ))
        }));
        notes.extend(self.record.iter().flat_map(|record| claim::notes(record, sample)));
        notes
    }

    /// Whether the pod in question may have a directory on this node: it has one by the last look, or nobody
    /// could look.
    pub fn pod_may_be_left(&self) -> bool {
        let Some(pod) = &self.run.pod else { return false };
        let Some(sample) = &self.sample else { return true };
        sample.may_have_pod(&pod.uid)
    }

    /// Whether all that was found is that nobody has asked for the pod to be deleted.
    pub fn pod_is_to_stay(&self) -> bool {
        let mut causes =
            self.ledger.all().filter(|it| it.state != FindingState::Cleared).peekable();
        causes.peek().is_some() && causes.all(pod_record::says_to_stay)
    }

    /// How far the pod in question has come, or those that something was found of.
    fn stages(&self) -> Vec<PodStage> {
        // Before the first look, nothing is known.
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut pods: Vec<&Pod> = match &self.run.pod {
            Some(pod) => vec![pod],
            None => self.ledger.all().filter_map(|finding| finding.pod.as_ref()).collect(),
        };
        pods.sort();
        pods.dedup();
        pods.into_iter().filter_map(|pod| stage::stage(pod, sample)).collect()
    }
}
