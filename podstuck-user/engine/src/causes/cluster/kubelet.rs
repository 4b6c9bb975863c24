//! Checks whether kubelet's own list of its pods has the deletion of a pod that does not go. The list is read only if
//! the caller asks for it, since the right for it permits more than reading.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    case::{Case, State, api, draft},
    node,
};
use crate::{
    causes::{
        kubelet_state::MISSED_DELETION,
        shared::{
            kubelets_list::{lacks_deletion, takes_changes},
            unit::KUBELET_RISK,
        },
    },
    model::{
        chain::Who,
        cluster::{self, AGAIN, Facts, Key, Kubelet, KubeletsList, Object},
        path::safe,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// Maximal age of a heartbeat: kubelet reports an unchanged condition every five minutes.
const REPORTED: Duration = Duration::from_secs(6 * 60);

fn age(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}

/// Whether kubelet's list gives the cause: it has the pod without its deletion. Adds the finding.
pub(super) fn judge(case: &mut Case, pod: &Object, node: &Object, facts: &Facts) -> bool {
    let name = node.metadata.name.as_str();
    let may_ask = facts.asks_kubelets && case.state == State::Overdue && is_object_name(name);
    let Some(renewed) = heard(name, facts).filter(|_| may_ask) else { return false };
    let uid = pod.metadata.uid.as_str();
    let own = |about| {
        let all = facts.kubelets_pods(name, about).is()?;
        Some(KubeletsList::of(all.iter().map(|it| &it.metadata), |it| it == uid))
    };
    let Some(first) = own(Kubelet::Pods) else { return false };
    let shown = safe(name.as_bytes()).into_owned();
    match first.entry(uid) {
        Some(own) if own.deletion.is_none() => {}
        Some(_) => {
            let said = format!(
                "kubelet on {shown} has received the deletion: its own list of its pods has it"
            );
            case.kubelet = Some(said);
            return false;
        }
        None => {
            case.kubelet = Some(format!(
                "kubelet on {shown} does not have the pod in its own list of its pods"
            ));
            return false;
        }
    }
    let Some(second) = own(Kubelet::PodsAgain) else { return false };
    // Meanwhile kubelet has received the deletion, or has lost the pod: no finding.
    if second.entry(uid).is_none_or(|own| own.deletion.is_some()) {
        return false;
    }
    let Some(end) = pod.metadata.deletion_timestamp else { return false };
    let mut draft = draft(&MISSED_DELETION);
    draft.held_by(Who::component("kubelet", None).and(&format!(" on {shown}")));
    let late = facts.now.duration_since(end).as_secs();
    draft.fact(format!("its deletionTimestamp ({end:.0}) passed {late} s ago"), api(facts.now));
    lacks_deletion(&mut draft, AGAIN);
    draft.fact(format!("kubelet of {shown} renewed its Lease at {renewed:.0}"), api(facts.now));
    if let Some(requested) = pod.metadata.requested() {
        let is_well = || facts.kubelet_is_well(name);
        takes_changes(&mut draft, requested, facts.now, second.latest.as_ref(), is_well);
    }
    is_ready(&mut draft, node, facts);
    draft.explanation = format!(
        "The API server has the deletion, and kubelet on {shown} does not: the change was lost \
        between the two, and kubelet does not end the pod until it lists its pods again."
    );
    draft.advice(
        format!(
            "restart kubelet on {shown} (`systemctl restart kubelet`, where it is a service of that name): it lists its pods \
             again, and ends this one"
        ),
        KUBELET_RISK,
    );
    case.found(draft, facts.now);
    true
}

/// When kubelet last renewed its Lease, if that is recent.
pub(super) fn heard(node: &str, facts: &Facts) -> Option<Timestamp> {
    let lease = facts.object(&Key::of(cluster::Kind::LEASE, "kube-node-lease", node)).is()?;
    lease.spec.renew_time.filter(|at| age(*at, facts.now) <= node::SILENT)
}

/// Adds whether the node is Ready: without its runtime, kubelet processes no change either.
fn is_ready(draft: &mut Draft, node: &Object, facts: &Facts) {
    let is_new = |at: Option<Timestamp>| at.is_some_and(|at| age(at, facts.now) <= REPORTED);
    let ready = node.condition("Ready");
    match ready.filter(|it| it.status == "True" && is_new(it.last_heartbeat_time)) {
        Some(_) => draft.fact("kubelet reports that the node is Ready", api(facts.now)),
        None => draft.doubt(
            "whether kubelet works on its pods at all: it does not report that its node is Ready",
        ),
    }
}
