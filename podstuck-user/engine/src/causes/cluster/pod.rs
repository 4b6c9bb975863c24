//! Pods: the grace period, the node that has to end the pod, and then the finalizers.

use super::{
    case::{Case, State, Step, api, draft},
    device_driver, finalizer, node, refused, waiting, webhook,
};
use crate::{
    causes::pod_record,
    ids,
    model::{
        chain::Who,
        cluster::{Condition, Facts, Last, Object},
        path::safe,
    },
};

const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn not_deleted(case: &mut Case, pod: &Object, facts: &Facts) {
    let mut draft = draft(&pod_record::NOT_DELETED);
    draft.blocks_deletion = Some(false);
    draft.fact("it has no metadata.deletionTimestamp", api(facts.now));
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "no deletion of the pod was requested");
    case.waits_for = waiting::elsewhere(&mut draft, pod, facts);
    case.found(draft, facts.now);
}

pub(super) fn judge(case: &mut Case, pod: &Object, facts: &Facts) {
    let meta = &pod.metadata;
    case.node = Some(pod.spec.node_name.clone()).filter(|node| !node.is_empty());
    let Some(end) = meta.deletion_timestamp else { return };
    // kubelet's final deletion and a forced one have a grace period of 0; then only finalizers keep the record
    // (`ShouldDeleteDuringUpdate` in the API server's registry).
    let is_released = meta.deletion_grace_period_seconds == Some(0) && !meta.finalizers.is_empty();
    if is_released {
        return finalizer::judge(case, pod, facts, |_, _| None);
    }
    if facts.now < end {
        case.step = Some(Step::Grace);
        let mut draft = draft(&pod_record::IN_GRACE);
        draft.blocks_deletion = Some(false);
        let left = end.duration_since(facts.now).as_secs();
        let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
        draft.fact(
            format!("its grace period of {grace} s ends in {left} s, at {end:.0}"),
            api(facts.now),
        );
        draft.explanation = "It is not stuck yet: its containers may take that long to end. \
            Before Kubernetes 1.28, a preStop hook that hangs can add the same time again."
            .into();
        draft.advice("wait until the grace period has passed", "none");
        case.found(draft, facts.now);
        return;
    }
    case.step = Some(Step::Node);
    if meta.annotations.contains_key(MIRROR) {
        mirror(case, pod, facts);
        return;
    }
    if case.node.is_some() {
        node::judge(case, pod, facts);
    }
    if case.examine.is_some() {
        device_driver::judge(case, pod, facts);
        last_requests(case, pod, facts);
    }
    for name in &meta.finalizers {
        let mut draft = draft(&pod_record::FINALIZER);
        draft.is_later = true;
        draft.held_by(Who::object(format!("the finalizer {}", safe(name.as_bytes()))));
        draft.fact(format!("the finalizer {} is set", safe(name.as_bytes())), api(facts.now));
        draft.lacks("that nothing of the pod is left on its node");
        draft.explanation = "kubelet has not reported that the pod has ended, so the finalizer \
            does not keep the pod yet. It keeps the pod after the node has done its part."
            .into();
        draft.advice("examine the node first", "none");
        case.found(draft, facts.now);
    }
}

/// What makes kubelet's last requests fail, once nothing of the pod is left on its node.
fn last_requests(case: &mut Case, pod: &Object, facts: &Facts) {
    let has_ended = has_ended(pod) == Some(true);
    let requests = [Last::Status, Last::Deletion].map(Last::names);
    let unanswered = webhook::judge(case, pod, facts, &requests);
    let is_answered = unanswered.is_empty();
    for mut draft in unanswered.into_iter().filter(|_| has_ended) {
        draft.doubt(
            "whether kubelet has reached the deletion of the record: the API does not show the pod's mounted volumes",
        );
        case.found(draft, facts.now);
    }
    if is_answered {
        for draft in refused::of_kubelet(case, pod, has_ended, facts) {
            case.found(draft, facts.now);
        }
    }
}

/// Whether all containers have ended, by kubelet's report; `None` without a report.
fn has_ended(pod: &Object) -> Option<bool> {
    let all = &pod.status.container_statuses;
    (!all.is_empty()).then(|| all.iter().all(|it| it.state.contains_key("terminated")))
}

/// The names of the containers that run, by kubelet's report.
pub(super) fn running(pod: &Object) -> String {
    let all = pod.status.container_statuses.iter().filter(|it| it.state.contains_key("running"));
    let names: Vec<_> = all.map(|it| safe(it.name.as_bytes())).collect();
    names.join(", ")
}

/// The condition by which components of Kubernetes say, since 1.26, that and why they delete a pod.
pub(super) fn disruption(pod: &Object) -> Option<&Condition> {
    pod.condition("DisruptionTarget").filter(|it| it.status == "True")
}

fn mirror(case: &mut Case, pod: &Object, facts: &Facts) {
    let mut draft = draft(&pod_record::MIRROR);
    let place = ", in the directory of kubelet's staticPodPath";
    draft.held_by(Who::object("the static pod's manifest").and(place));
    draft.fact(
        format!("it has the annotation {MIRROR}, and its grace period has passed"),
        api(facts.now),
    );
    let running = running(pod);
    if !running.is_empty() {
        draft.fact(format!("kubelet reports that it runs {running}"), api(facts.now));
    }
    draft.explanation = "The record is the mirror pod of a static pod. Its deletion ends nothing \
        on the node: kubelet runs the pod as long as its manifest exists."
        .into();
    draft.advice(
        "to end the pod, move its manifest out of the directory of kubelet's staticPodPath on its node (kubeadm: \
         /etc/kubernetes/manifests)",
        "the static pod ends: where it is a part of the control plane, that part is down",
    );
    case.found(draft, facts.now);
    // The state of the node matters as for any other pod.
    if case.state == State::Overdue && case.node.is_some() {
        node::judge(case, pod, facts);
    }
}
