//! A pod that was deleted while its containers were being created: kubelet ends it only after its pending request to the
//! runtime returns, which is mostly the pull of an image.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, seen, way},
    causes::{kubelet_state::suspect::Suspect, shared::unit::restart_kubelet},
    command::Step,
    ids,
    kubelet_steps::NotAsked,
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        identity::Component,
        node::NodeSample,
        path::safe,
        pod_group::Task,
        pod_record::{ContainerRecord, ContainerState, PodRecord},
    },
    verdict::Draft,
};

/// A kubelet that waits for the runtime.
pub(crate) static PULL_PENDING: Cause = Cause {
    id: ids::IMAGE_PULL_PENDING,
    title: "kubelet waits for the runtime to create a container, mostly to pull its image, \
        before it ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The pod was deleted after its sandbox was created and before its containers were. \
        kubelet has received the deletion, but some versions act on it only after their pending \
        request to the runtime returns: the runtime pulls an image from a registry that is slow \
        or does not answer. Until then no component asks the runtime to stop the sandbox.",
    confirmed_by: &[
        seen(
            "the pod's deletionTimestamp has passed, and its record shows a container that is \
            not created yet",
            &[Origin::Api],
        ),
        seen("the only living process of the pod is its sandbox's own", &[Origin::Proc]),
        seen("kubelet's log has `SyncLoop DELETE` of the pod", &[Origin::Log]),
        absent("kubelet's log has no `Killing container` since", Feed::Logs),
        hidden("kubelet waits for an image: its request to the runtime is not visible"),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("wait for the pull, or restore the registry", ""),
        way(
            "restart kubelet: its request ends, and the runtime aborts the pull",
            "low: containers keep running",
        ),
    ],
    field: &["kubernetes#123365", "kubernetes#121435", "kubernetes#15925", "kubernetes#125050"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/pod_workers.go, podWorkerLoop",
        "kubernetes pkg/kubelet/images/image_manager.go, EnsureImageExists",
    ],
};

/// The finding, if kubelet has learned of the deletion and has not asked for the end of a container.
pub(super) fn draft(
    suspect: &Suspect<'_>,
    record: &PodRecord,
    not_asked: Option<&NotAsked<'_>>,
    sample: &NodeSample,
) -> Option<Draft> {
    let not_asked = not_asked.filter(|it| it.received.is_some())?;
    let container = pending(record)?;
    let groups = sample.cgroups.iter().filter(|group| group.uid == record.pod.uid);
    let tasks: Vec<&Task> = groups.flat_map(|group| &group.tasks).collect();
    if tasks.is_empty() || !tasks.iter().all(|task| task.is_pause() && task.is_alive()) {
        return None;
    }
    let mut draft = suspect.draft(&PULL_PENDING);
    let name = safe(container.name.as_bytes()).into_owned();
    let why = container.reason.as_ref().map(|why| format!(" ({})", safe(why.as_bytes())));
    let why = why.unwrap_or_default();
    draft
        .fact(format!("its record shows container {name} as not created yet{why}"), Source::Record);
    for task in tasks.iter().take(1) {
        let fact =
            format!("the only living process of the pod is its sandbox's own: {}", task.who());
        draft.fact(fact, Source::proc("control groups"));
    }
    draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    let runtime = sample.runtimes.first();
    let who = match runtime {
        Some(it) => it.who(),
        None => Who::component("the runtime", None),
    };
    draft.held_by(who.and(&format!(", which creates container {name}")));
    draft.must = Some("finish that");
    if runtime.is_some_and(|it| it.component == Component::Containerd) {
        let list = "ctr --namespace k8s.io content active";
        draft.remedy(Step::new("list what containerd downloads, and since when", list), "none");
    }
    draft.advice("wait for the pull, or restore the registry: kubelet then ends the pod", "none");
    let then = "its request ends, and the runtime aborts the pull";
    draft.remedies.push(restart_kubelet(Some(sample), then));
    draft.explanation = format!(
        "kubelet waits until the runtime has created container {name}, and ends the pod only \
        then. The pod does not wait for the sandbox's own process."
    );
    Some(draft)
}

/// A container that is not created yet, if no container of the pod runs and none has failed.
fn pending(record: &PodRecord) -> Option<&ContainerRecord> {
    let all = record.containers.as_ref()?;
    let is_pending = |it: &&ContainerRecord| it.id.is_none() && it.is_being_started();
    let mut waiting = all.iter().filter(|it| it.state == ContainerState::Waiting);
    let runs = all.iter().any(|it| it.state == ContainerState::Running);
    let first = waiting.clone().find(is_pending).filter(|_| !runs)?;
    waiting.all(|it| is_pending(&it)).then_some(first)
}
