//! A pod that was deleted while its containers were being created: kubelet ends it only after its pending request to the
//! runtime returns, which is mostly the pull of an image.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, seen, way},
    causes::kubelet_state::steps::{Suspect, restart},
    command::Step,
    ids,
    kubelet_steps::NotAsked,
    model::{
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

/// The name of a sandbox's own process.
const PAUSE: &str = "pause";

/// A kubelet that waits for the runtime.
pub(crate) static PULL_PENDING: Cause = Cause {
    id: ids::IMAGE_PULL_PENDING,
    title: "kubelet still waits for a container to be made, mostly for its image, before it ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The pod was deleted after its sandbox was made and before its containers were. kubelet has heard of the \
        deletion, but some versions act on it only when the request that they wait for has returned: the runtime pulls \
        an image, from a registry that is slow or does not answer. Until then no component asks for the sandbox's end.",
    confirmed_by: &[
        seen(
            "the pod's deletionTimestamp has passed, and by the record a container waits to be made",
            &[Origin::Api],
        ),
        seen("of the pod's processes only the sandbox's own lives", &[Origin::Proc]),
        seen("kubelet's log has `SyncLoop DELETE` of the pod", &[Origin::Log]),
        absent("kubelet's log has no `Killing container` since", Feed::Logs),
        hidden("it is an image that kubelet waits for: its request to the runtime is not seen"),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("wait for the pull, or have the registry answer", ""),
        way(
            "restart kubelet: with its request the runtime gives up the pull",
            "low: containers go on",
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
    if tasks.is_empty() || !tasks.iter().all(|task| task.comm == PAUSE && task.is_alive()) {
        return None;
    }
    let mut draft = suspect.draft(&PULL_PENDING);
    let name = safe(container.name.as_bytes()).into_owned();
    let why = container.reason.as_ref().map(|why| format!(" ({})", safe(why.as_bytes())));
    let why = why.unwrap_or_default();
    draft.fact(format!("by its record container {name} waits to be made{why}"), Source::Record);
    for task in tasks.iter().take(1) {
        let fact =
            format!("of its processes only its sandbox's own lives: {PAUSE} (pid {})", task.pid);
        draft.fact(fact, Source::proc("control groups"));
    }
    draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    let runtime = sample.runtimes.first();
    draft.held_by(match runtime {
        Some(it) => {
            format!("{} (pid {}), which makes container {name}", it.component.name(), it.pid)
        }
        None => format!("the runtime, which makes container {name}"),
    });
    draft.must = Some("finish that");
    if runtime.is_some_and(|it| it.component == Component::Containerd) {
        let list = "ctr --namespace k8s.io content active";
        draft.remedy(Step::new("list what containerd downloads, and since when", list), "none");
    }
    draft.advice(
        "wait for the pull, or have the registry answer: kubelet then ends the pod",
        "none",
    );
    restart(
        &mut draft,
        "its request ends with it, and the runtime gives up the pull; started again, kubelet ends the pod",
    );
    draft.explanation = format!(
        "kubelet waits for container {name} to be made, and ends the pod only then. The sandbox's own process is not what \
         the pod waits for."
    );
    Some(draft)
}

/// A container that is not created yet, if no container of the pod runs and none has failed.
fn pending(record: &PodRecord) -> Option<&ContainerRecord> {
    let all = record.containers.as_ref()?;
    let is_pending = |it: &&ContainerRecord| {
        let usual = [None, Some("ContainerCreating"), Some("PodInitializing")];
        it.id.is_none() && usual.contains(&it.reason.as_deref())
    };
    let mut waiting = all.iter().filter(|it| it.state == ContainerState::Waiting);
    let runs = all.iter().any(|it| it.state == ContainerState::Running);
    let first = waiting.clone().find(is_pending).filter(|_| !runs)?;
    waiting.all(|it| is_pending(&it)).then_some(first)
}
