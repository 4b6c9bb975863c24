//! What the pod's own record says: whether anything is stuck at all, and whether the node is where
//! to look.

use std::sync::Arc;

use jiff::Timestamp;

use super::draft::{Draft, Family};
use crate::{
    identity::pod_record::PodRecord,
    model::{
        diagnosis::Stage,
        finding::Severity,
        identity::{Target, TargetKind},
        path::{safe, shell_word},
        time::Monotonic,
    },
};

const SOURCE: &str = "the pod's record";

/// Where the record is read.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// This node's name.
    pub node: &'a str,
    /// How far the deletion has come here, if that is known.
    pub stage: Option<Stage>,
    /// Now.
    pub now: Timestamp,
    /// The same by the kernel's clock.
    pub at: Monotonic,
}

/// The cause that the record shows, if it shows one.
pub fn verdict(record: &PodRecord, here: Here<'_>) -> Option<Draft> {
    let Some(deletion) = record.deletion else { return Some(not_deleted(record, here)) };
    if here.now < deletion {
        return Some(in_grace(record, here, deletion));
    }
    let nothing_left = matches!(here.stage, Some(Stage::Directories | Stage::Gone));
    let elsewhere = record.node.as_deref().filter(|node| *node != here.node);
    match elsewhere {
        Some(node) if here.stage == Some(Stage::Gone) => Some(not_here(record, here, node)),
        _ if !record.finalizers.is_empty() => Some(finalizer(record, here, nothing_left)),
        _ => None,
    }
}

fn draft(id: &'static str, record: &PodRecord, here: Here<'_>, confidence: f64) -> Draft {
    let target = Target {
        kind: TargetKind::PodDirectory,
        pod: Some(record.pod.clone()),
        ..Target::unknown()
    };
    let id_of_pod = podstuck_common::component::name_hash(record.pod.uid.as_bytes());
    let path = format!("pods/{}", record.pod.uid).into();
    let mut draft =
        Draft::about_state(Family::Record, id, id_of_pod, Arc::new(target), path, here.at);
    draft.confidence = confidence;
    draft.severity = Severity::Info;
    draft
}

fn not_deleted(record: &PodRecord, here: Here<'_>) -> Draft {
    let mut draft = draft("pod-not-deleted", record, here, 0.95);
    draft.blocks_deletion = Some(false);
    draft.fact("it has no metadata.deletionTimestamp", SOURCE);
    draft.explanation = "Nobody has asked for this pod to be deleted, or the request was refused: \
        a PodDisruptionBudget makes an eviction wait."
        .into();
    draft
}

fn in_grace(record: &PodRecord, here: Here<'_>, deletion: Timestamp) -> Draft {
    let mut draft = draft("grace-period-or-prestop", record, here, 0.9);
    draft.blocks_deletion = Some(false);
    let left = deletion.duration_since(here.now).as_secs();
    draft.fact(
        format!("its {} seconds of grace end in {left} s, at {deletion}", record.grace_s),
        SOURCE,
    );
    draft.explanation = "It is not stuck yet: its containers may take that long to end. A preStop \
        hook that hangs can add as long again."
        .into();
    draft
}

fn not_here(record: &PodRecord, here: Here<'_>, node: &str) -> Draft {
    let mut draft = draft("pod-not-on-this-node", record, here, 0.9);
    draft.blocks_deletion = Some(false);
    let node = safe(node.as_bytes());
    draft.fact(format!("spec.nodeName is {node}, and this node is {}", here.node), SOURCE);
    draft.fact("this node has no directory, cgroup or mount of it", "kubelet's directories");
    draft.explanation = format!(
        "Look on {node}. If that node is down, its kubelet cannot say \
        that the containers have ended, and the pod stays until it can, or until the node is deleted."
    );
    draft
}

fn finalizer(record: &PodRecord, here: Here<'_>, nothing_left: bool) -> Draft {
    let confidence = if nothing_left { 0.95 } else { 0.4 };
    let mut draft = draft("pod-finalizer", record, here, confidence);
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    for name in &record.finalizers {
        draft.fact(
            format!("the finalizer {} is set: {}", safe(name.as_bytes()), owner(name)),
            SOURCE,
        );
    }
    if nothing_left {
        draft.fact("nothing of the pod is left on this node to wait for", "kubelet's directories");
        if record.all_terminated {
            draft.fact("all its containers have ended", SOURCE);
        }
        draft.explanation = "The node has done its part. The record stays until whoever set the \
            finalizer removes it: look at that controller first."
            .into();
    } else {
        draft.explanation =
            "The node has not done its part yet, so this is not what holds the pod \
            now; it will when the node is done."
                .into();
    }
    let (namespace, name) = (
        record.pod.namespace.as_deref().unwrap_or("default"),
        record.pod.name.as_deref().unwrap_or_default(),
    );
    draft.remedy(
        format!(
            "kubectl -n {} patch pod {} --type=json -p \
             '[{{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}}]'",
            shell_word(namespace.as_ref()),
            shell_word(name.as_ref()),
        ),
        "skips whatever the controller wanted to clean up, for all finalizers",
    );
    draft
}

/// Who is known to set it.
fn owner(finalizer: &str) -> &'static str {
    match finalizer {
        "batch.kubernetes.io/job-tracking" => "the Job controller removes it",
        "foregroundDeletion" | "orphan" => "the garbage collector waits for dependents",
        _ => "the controller of that name removes it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Pod;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn record() -> PodRecord {
        PodRecord {
            pod: Pod { uid: "u".into(), namespace: Some("shop".into()), name: Some("cart".into()) },
            deletion: Some(NOW),
            grace_s: 30,
            finalizers: vec!["batch.kubernetes.io/job-tracking".into()],
            node: Some("here".into()),
            is_mirror: false,
            all_terminated: true,
        }
    }

    fn told(record: &PodRecord, stage: Stage) -> Option<(&'static str, f64)> {
        let here = Here { node: "here", stage: Some(stage), now: NOW, at: Monotonic(1) };
        verdict(record, here).map(|draft| (draft.id, draft.confidence))
    }

    #[test]
    fn a_finalizer_is_the_cause_only_when_the_node_is_done() {
        assert_eq!(told(&record(), Stage::Directories), Some(("pod-finalizer", 0.95)));
        assert_eq!(told(&record(), Stage::Volumes), Some(("pod-finalizer", 0.4)));
        let without = PodRecord { finalizers: Vec::new(), ..record() };
        assert_eq!(told(&without, Stage::Directories), None);
    }

    #[test]
    fn what_is_not_stuck_is_not_called_so() {
        let alive = PodRecord { deletion: None, ..record() };
        assert_eq!(told(&alive, Stage::Containers), Some(("pod-not-deleted", 0.95)));
        let soon = NOW.checked_add(jiff::SignedDuration::from_secs(9)).unwrap();
        let ending = PodRecord { deletion: Some(soon), ..record() };
        assert_eq!(told(&ending, Stage::Containers), Some(("grace-period-or-prestop", 0.9)));
    }

    #[test]
    fn another_node_is_named_only_when_nothing_is_here() {
        let other = PodRecord { node: Some("there".into()), ..record() };
        assert_eq!(told(&other, Stage::Gone), Some(("pod-not-on-this-node", 0.9)));
        assert_eq!(told(&other, Stage::Volumes), Some(("pod-finalizer", 0.4)));
    }
}
