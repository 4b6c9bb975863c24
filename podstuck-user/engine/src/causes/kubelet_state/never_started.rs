//! A pod that kubelet has rejected or could not create, and whose record it does not delete.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, log, seen, way},
    causes::{
        kubelet_state::suspect::{FRESH, IN_MEMORY, Suspect},
        shared::{forced_deletion, repeated::Repeated},
    },
    ids,
    model::{
        degraded::Feed, diagnosis::Stage, evidence::Source, node::PodState, path::safe,
        pod_record::PodRecord,
    },
    verdict::Draft,
};

/// A pod that kubelet never started.
pub(crate) static NEVER_STARTED: Cause = Cause {
    id: ids::POD_NEVER_STARTED,
    title: "kubelet has started no container of the pod, and does not delete its record",
    stage: Stage::Directories,
    kind: Kind::Cause,
    meaning: "kubelet has rejected the pod, or could not create its containers, and finds \
        nothing of the pod to end. Some versions of kubelet then never report that the pod has \
        ended, and the record stays. Nothing on the node holds the pod.",
    confirmed_by: &[
        seen(
            "the pod's deletionTimestamp has passed, and no container of it has an id",
            &[Origin::Api],
        ),
        seen(
            "the record or kubelet's log says why kubelet has not started it",
            &[Origin::Api, Origin::Log],
        ),
        absent("no process of the pod is left on the node", Feed::Node),
        hidden("kubelet's memory has no container of the pod that is to be ended"),
    ],
    log: log("kubelet", "Predicate failed on Pod"),
    look_alikes: &[],
    ways_out: &[
        way(forced_deletion::WAY, forced_deletion::WAY_RISK),
        way(
            "update kubelet: 1.27.3 ends pods that it has rejected",
            "low: containers keep running",
        ),
    ],
    field: &[
        "kubernetes#118286",
        "kubernetes#118472",
        "kubernetes#118497",
        "kubernetes#23742",
        "kubernetes#22480",
        "kubernetes#24819",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/pod_workers.go",
        "kubernetes pkg/kubelet/status/status_manager.go",
    ],
};

/// The finding that kubelet has started no container, if nothing of the pod is in the way.
pub(super) fn never_started(
    suspect: &Suspect<'_>,
    record: &PodRecord,
    complaints: &[Repeated],
) -> Option<Draft> {
    let PodState { devices, .. } = suspect.pod;
    if record.never_started() != Some(true) || !suspect.pod.is_free() || !devices.is_empty() {
        return None;
    }
    // A known complaint belongs to another rule.
    let is_fresh = |complaint: &&Repeated| suspect.now.since(complaint.last) <= FRESH;
    if complaints.iter().filter(is_fresh).any(|complaint| complaint.said.complaint.is_some()) {
        return None;
    }
    let rejects =
        |text: &str| ["Predicate", "rejected", "Admit"].iter().any(|it| text.contains(it));
    let makes = |text: &str| {
        let words = [
            "StartContainer",
            "CreateContainer",
            "RegistryUnavailable",
            "ImagePull",
            "InvalidImageName",
        ];
        words.iter().any(|word| text.contains(word))
    };
    let why = complaints
        .iter()
        .filter(|complaint| rejects(&complaint.said.text) || makes(&complaint.said.text));
    let why = why.max_by_key(|complaint| complaint.last);
    if why.is_none() && record.reason.is_none() {
        return None;
    }
    let mut draft = suspect.draft(&NEVER_STARTED);
    draft.held_by(suspect.kubelet());
    if let Some(why) = why {
        why.tell(&mut draft);
    }
    if let Some(reason) = &record.reason {
        draft
            .fact(format!("its status has the reason {}", safe(reason.as_bytes())), Source::Record);
    }
    draft.fact("according to its record, none of its containers was ever created", Source::Record);
    draft.fact("no process of the pod is on this node", Source::proc("control groups"));
    draft.doubt(IN_MEMORY);
    let is_rejected = record.reason.is_some() || why.is_some_and(|why| rejects(&why.said.text));
    let why = match is_rejected {
        true => {
            "kubelet has rejected the pod and has no worker that ends it; after a restart, \
            kubelet rejects the pod again as long as the reason holds."
        }
        false => {
            "kubelet could not create the pod's containers, and treats a container that was \
            never created as one that has not ended."
        }
    };
    suspect.force(&mut draft);
    if !is_rejected {
        draft.advice(
            "or let kubelet create the container: remove the obstacle that the error \
            names",
            "none",
        );
    }
    draft.explanation = format!(
        "{why} Nothing on the node holds the pod, and there is nothing to unmount by hand."
    );
    Some(draft)
}
