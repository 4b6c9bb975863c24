//! The Job of a pod with the tracking finalizer, and when the Job controller removes that.

use crate::model::{
    cluster::{Facts, Key, Kind, Known, Object},
    path::safe,
};

/// Set on the pods of a Job since Kubernetes 1.22, by default since 1.23.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What the Job shows of the pod's finalizer, in a sentence.
pub(super) fn fact(pod: &Object, facts: &Facts) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref()?;
    let owner = pod.controller().filter(|owner| owner.kind == "Job")?;
    let key = Key::of(Kind::JOB, namespace, &owner.name);
    let shown = safe(key.to_string().as_bytes()).into_owned();
    let job = match facts.object(&key) {
        Known::Is(job) if job.metadata.uid == owner.uid => job,
        Known::Is(_) => {
            return Some(format!("the pod's {shown} was replaced by another of that name"));
        }
        Known::Missing => return Some(format!("the pod's {shown} does not exist")),
        Known::Unread => return None,
    };
    // A Job that replaces pods only once they have failed: so does one with a podFailurePolicy, which Kubernetes
    // records as this policy (`onlyReplaceFailedPods`).
    let phase = pod.status.phase.as_str();
    let has_ended = ["Succeeded", "Failed"].contains(&phase);
    (job.spec.pod_replacement_policy == "Failed" && !has_ended).then(|| {
        format!(
            "{shown} has the podReplacementPolicy Failed: the Job controller removes the finalizer after the pod's phase is \
             Succeeded or Failed, and it is {}",
            safe(phase.as_bytes())
        )
    })
}
