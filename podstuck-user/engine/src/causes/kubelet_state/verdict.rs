//! A kubelet that cannot act: nobody else ends the pod, unmounts its volumes or lets its record go.

use std::sync::Arc;

use podstuck_common::component::name_hash;

use crate::{
    cause::{Cause, Kind, TriedWith, like, way},
    causes::{
        kubelet_state::tracker::{State, Suspect},
        shared::halted,
    },
    command::Process,
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Target, TargetKind},
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// It is there, and does not run.
pub(crate) static KUBELET_STOPPED: Cause = Cause {
    id: ids::KUBELET_STOPPED,
    title: "kubelet is kept from running: nobody ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet's process is there, and does nothing: a signal has stopped it, its control group is frozen, or it \
        has used up its file descriptors. It alone ends the pods of its node and unmounts their volumes: the deletion \
        of every pod of the node waits. Containers that run go on.",
    confirmed_by: &[
        "the process of the node's only kubelet is stopped (state T), or its control group is frozen, or it has all \
         descriptors open that it may, for 5 s",
        "the pod's deletionTimestamp has passed, or kubelet's log says that it is to be deleted",
    ],
    log: None,
    look_alikes: &[like(ids::KUBELET_DOWN, "its process is there")],
    ways_out: &[way("have it go on (`kill -CONT`, or thaw its control group)", "")],
    field: &[],
    tried: &[TriedWith::RealKubelet],
    source: &["kubernetes pkg/kubelet/pod_workers.go, SyncTerminatingPod"],
};

/// It is not there.
pub(crate) static KUBELET_DOWN: Cause = Cause {
    id: ids::KUBELET_DOWN,
    title: "no kubelet runs on this node: nobody ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "No process of kubelet is on this node. It alone ends the pods of its node and unmounts their volumes: the \
        deletion of every pod of the node waits until kubelet is started. Containers that run go on.",
    confirmed_by: &[
        "no process is a kubelet, for 10 s",
        "the pod's deletionTimestamp has passed, or kubelet's log says that it is to be deleted",
    ],
    log: None,
    look_alikes: &[like(ids::KUBELET_STOPPED, "no process of it is there")],
    ways_out: &[way("start kubelet; its own log says why it ended", "")],
    field: &["kubernetes#109414"],
    tried: &[TriedWith::RealKubelet],
    source: &["kubernetes pkg/kubelet/pod_workers.go, SyncTerminatingPod"],
};

/// The finding about one pod.
pub(crate) fn draft(suspect: &Suspect<'_>) -> Draft {
    let Suspect { pod, state, word, since, at } = suspect;
    let cause = match state {
        State::Halted(_) => &KUBELET_STOPPED,
        State::Down => &KUBELET_DOWN,
    };
    let target = Target {
        kind: TargetKind::PodDirectory,
        root: pod.directory.clone(),
        pod: Some(pod.named()),
        ..Target::unknown()
    };
    let mut draft = Draft::about_state(
        TrackerId::KubeletState,
        cause,
        name_hash(pod.uid.as_bytes()),
        Arc::new(target),
        pod.directory.clone(),
        *at,
    );
    draft.first = *since;
    draft.severity = Severity::Critical;
    draft.blocks_deletion = Some(true);
    draft.is_settled = true;
    let why = match state {
        State::Halted(kubelet) => {
            draft.held_by(format!("kubelet (pid {})", kubelet.pid));
            let how = halted::go_on(
                &mut draft,
                Process::new(kubelet.pid, kubelet.started, Some("kubelet")),
                &kubelet.halted,
            );
            draft.rule_out(ids::KUBELET_DOWN, "its process is there");
            format!("kubelet (pid {}) does nothing: its {how}.", kubelet.pid)
        }
        State::Down => {
            draft.held_by("kubelet, which does not run");
            draft.fact("no process of kubelet is on this node", Source::proc("/proc/*/cmdline"));
            draft.advice(
                "start kubelet (`systemctl start kubelet`, where it is a service of that name), and read in its log \
                 why it ended (`journalctl -u kubelet`)",
                "low: it finds the node's pods and volumes again, and goes on with their deletion",
            );
            draft.rule_out(ids::KUBELET_STOPPED, "no process of it is there");
            draft.doubt(
                "whether a program that is not known for a kubelet does its work on this node",
            );
            "No kubelet runs on this node.".to_owned()
        }
    };
    let seconds = at.since(*since).as_secs();
    draft.fact_since(format!("it has been so for at least {seconds} s"), Source::Samples, *since);
    match word {
        Some(word) => word.tell(&mut draft),
        None => draft.doubt("whether the pod is to be deleted: its record was not read"),
    }
    draft.explanation = format!(
        "{why} Nobody else on the node ends the pod's containers, unmounts its volumes and lets the pod go: as long \
         as that is so, every deletion on this node waits."
    );
    draft
}
