//! A kubelet that waits in a call on another pod's volume, and does nothing for the pod in question: its main loop reads
//! the directories of all pods, also of those that no longer exist.

use std::sync::Arc;

use jiff::SignedDuration;

use crate::{
    kubelet_steps,
    model::{
        chain::Who,
        evidence::Source,
        finding::Severity,
        identity::Target,
        node::{NodeSample, PodState},
        path::{safe, safe_path},
        pod_record::PodRecord,
        stuck::StuckThread,
    },
    tracker::Context,
    verdict::Draft,
};

/// How long the pod must outlast its grace period: kubelet learns of a deletion within a moment.
const LATE: SignedDuration = SignedDuration::from_secs(10);
/// What kubelet must do.
const MUST: &str = "return from its call";

/// The pod in question, in the last sample.
pub(super) struct Beside<'a> {
    pub(super) sample: &'a NodeSample,
    pub(super) pod: &'a PodState,
    pub(super) record: &'a PodRecord,
}

/// The finding that the pod in question waits for the call; `None` if kubelet has acted on the pod since the request to
/// delete it.
pub(super) fn beside(
    context: &Context<'_>,
    mut draft: Draft,
    seen: &StuckThread,
    beside: &Beside<'_>,
) -> Option<Draft> {
    let Beside { sample, pod, record } = beside;
    let (pid, steps) = (seen.thread.pid, context.kubelet_steps);
    let late = context.calendar.duration_since(record.deletion?);
    let requested = kubelet_steps::requested(record);
    let is_its = sample.kubelets[..] == [pid] && pod.populated == Some(true);
    let has_begun = steps.has_received(&pod.uid) || steps.has_acted(&pod.uid, requested);
    let mut groups = sample.cgroups.iter().filter(|group| group.uid == pod.uid);
    let is_killed = groups.any(|group| group.tasks.iter().any(|task| task.killed));
    if !is_its || late < LATE || has_begun || is_killed {
        return None;
    }
    let other = match &seen.target.pod {
        Some(of) => format!("a volume of another pod ({})", safe(of.uid.as_bytes())),
        None => "something of another pod".to_owned(),
    };
    let path = seen.path.as_deref().map(safe_path).unwrap_or_default();
    draft.target = Arc::new(Target { pod: Some(record.pod.clone()), ..Target::unknown() });
    (draft.severity, draft.blocks_deletion) = (Severity::Critical, Some(true));
    draft.held_by(Who::component("kubelet", Some(pid)));
    draft.must = Some(MUST);
    draft.fact(format!("the call is kubelet's own, on {other}: {path}"), Source::proc("/proc"));
    draft.fact(
        "the pod's deletionTimestamp has passed, and its containers still run",
        Source::Record,
    );
    draft.doubt(
        "whether this call keeps kubelet from handling the pod: only a stack trace of kubelet shows which part of it \
         waits",
    );
    draft.explanation = format!(
        "kubelet waits in a call on {other}, and has done nothing for this pod since its deletion was requested. \
         kubelet's main loop reads the directories of all pods of the node. While one of these reads does not \
         return, kubelet handles no change of any pod. {}",
        draft.explanation
    );
    draft.advice(
        "once the call returns, kubelet continues by itself. A restart of kubelet helps only until kubelet reads \
         that directory again",
        "none",
    );
    draft.is_settled = true;
    Some(draft)
}
