//! A pod that was deleted while a postStart hook runs: kubelet ends it only after the hook.

use std::collections::BTreeMap;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, seen, way},
    causes::kubelet_state::suspect::Suspect,
    command::{Process, kill},
    ids,
    kubelet_steps::{KubeletSteps, requested},
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        node::NodeSample,
        path::safe,
        pod_group::Task,
        pod_record::{ContainerRecord, PodRecord},
    },
    verdict::Draft,
};

/// Processes named.
const NAMED: usize = 4;
const RISK: &str = "low for a pod that is to be deleted: the container ends at once, without its own clean-up, and the \
    hook with it";

/// A kubelet that waits for a postStart hook.
pub(crate) static HOOK_PENDING: Cause = Cause {
    id: ids::POSTSTART_HOOK_PENDING,
    title: "kubelet waits for a container's postStart hook before it ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet runs a container's postStart hook after it has started the container, and starts no other container \
        until the hook has returned. Up to 1.26, kubelet handles the pod's deletion only after that, too: a hook that \
        never returns keeps the pod for ever, and its grace period does not matter.",
    confirmed_by: &[
        seen(
            "the pod's deletionTimestamp has passed, and its record shows a container with a postStart hook as not \
             started",
            &[Origin::Api],
        ),
        seen("a process of a container of the pod lives", &[Origin::Proc]),
        absent(
            "neither kubelet's log nor the runtime's has a stop of a container since the request",
            Feed::Logs,
        ),
        hidden("kubelet waits for the hook: its request to the runtime is not visible"),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[way("end the container's first process, and the hook with it", RISK)],
    field: &["kubernetes#30042", "kubernetes#116032"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go, startContainer",
        "kubernetes pkg/kubelet/pod_workers.go, podWorkerLoop",
    ],
};

/// The finding, if kubelet has asked for the end of no container.
pub(super) fn draft(
    suspect: &Suspect<'_>,
    record: &PodRecord,
    steps: &KubeletSteps,
    sample: &NodeSample,
) -> Option<Draft> {
    let container = with_hook(record)?;
    if steps.has_acted(&record.pod.uid, requested(record)) {
        return None;
    }
    let groups = sample.cgroups.iter().filter(|group| group.uid == record.pod.uid);
    let alive =
        groups.flat_map(|group| &group.tasks).filter(|task| task.is_alive() && !task.is_pause());
    let mut containers: BTreeMap<_, Vec<&Task>> = BTreeMap::new();
    alive.for_each(|task| containers.entry(&task.group).or_default().push(task));
    // The hook is a process of its own in the container's group.
    let mut tasks = containers.into_values().max_by_key(Vec::len)?;
    tasks.sort_by_key(|task| (task.started, task.pid));
    let mut draft = suspect.draft(&HOOK_PENDING);
    let name = safe(container.name.as_bytes()).into_owned();
    let why = container.reason.as_ref().map(|why| format!(" ({})", safe(why.as_bytes())));
    draft.fact(
        format!(
            "its record shows container {name}, which has a postStart hook, as not started{}",
            why.unwrap_or_default()
        ),
        Source::Record,
    );
    let named: Vec<String> = tasks.iter().take(NAMED).map(|task| task.who().to_string()).collect();
    draft.fact(
        format!("processes of one of its containers are alive: {}", named.join(", ")),
        Source::proc("control groups"),
    );
    if let Some(log) = steps.log(&record.pod.uid) {
        let fact = "neither kubelet's log nor the runtime's has a stop of a container of the pod since the request";
        draft.fact(fact, Source::Log(log.to_owned()));
    }
    draft.held_by(Who::object(format!("the postStart hook of container {name}")));
    draft.must = Some("return");
    let first = tasks.first()?;
    draft.remedy(
        kill("kill -9", Process::thread(first)).so(", the first process of the hook's container"),
        RISK,
    );
    draft.explanation = format!(
        "kubelet waits until the postStart hook of container {name} returns, and ends the pod only then. The pod waits \
         for no signal, and its grace period does not matter."
    );
    Some(draft)
}

/// A container with a postStart hook that kubelet has not reported as started.
fn with_hook(record: &PodRecord) -> Option<&ContainerRecord> {
    record.containers.as_ref()?.iter().find(|it| it.has_post_start && it.is_being_started())
}
