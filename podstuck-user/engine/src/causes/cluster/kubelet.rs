//! Checks whether kubelet's own list of its pods has the deletion of a pod that does not go. The list is read only if
//! the caller asks for it, since the right for it permits more than reading.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    case::{Case, State, api, draft},
    node,
};
use crate::{
    causes::kubelet_state::{MISSED_DELETION, RESTART_RISK},
    model::{
        cluster::{self, AGAIN, Facts, Key, Known, Kubelet, Object},
        evidence::Source,
        path::safe,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// kubelet's health check fails after five minutes without a round of its loop.
const ROUND: Duration = Duration::from_secs(5 * 60);
/// Maximal age of a heartbeat: kubelet reports an unchanged condition every five minutes.
const REPORTED: Duration = Duration::from_secs(6 * 60);
/// Annotation that kubelet sets on each pod in its list: `api`, or for a static pod `file` or `http`.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

fn age(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}

/// Whether kubelet's list gives the cause: it has the pod without its deletion. Adds the finding.
pub(super) fn judge(case: &mut Case, pod: &Object, node: &Object, facts: &Facts) -> bool {
    let name = node.metadata.name.as_str();
    let may_ask = facts.asks_kubelets && case.state == State::Overdue && is_object_name(name);
    let Some(renewed) = heard(name, facts).filter(|_| may_ask) else { return false };
    let own = |about| facts.kubelets_pods(name, about);
    let Known::Is(first) = own(Kubelet::Pods) else { return false };
    let shown = safe(name.as_bytes()).into_owned();
    match entry(&first, pod) {
        Some(own) if own.metadata.deletion_timestamp.is_none() => {}
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
    let Known::Is(second) = own(Kubelet::PodsAgain) else { return false };
    // Meanwhile kubelet has received the deletion, or has lost the pod: no finding.
    if entry(&second, pod).is_none_or(|own| own.metadata.deletion_timestamp.is_some()) {
        return false;
    }
    let Some(end) = pod.metadata.deletion_timestamp else { return false };
    let mut draft = draft(&MISSED_DELETION);
    draft.held_by(format!("kubelet on {shown}"));
    let late = facts.now.duration_since(end).as_secs();
    draft.fact(format!("its deletionTimestamp ({end:.0}) passed {late} s ago"), api(facts.now));
    draft.fact(
        format!(
            "kubelet's own list of its pods has this UID without deletionTimestamp, in two reads {} s apart",
            AGAIN.as_secs()
        ),
        Source::Kubelet,
    );
    draft.fact(format!("kubelet of {shown} renewed its Lease at {renewed:.0}"), api(facts.now));
    takes_changes(&mut draft, pod, &second, name, facts);
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
        RESTART_RISK,
    );
    case.found(draft, facts.now);
    true
}

/// When kubelet last renewed its Lease, if that is recent.
fn heard(node: &str, facts: &Facts) -> Option<Timestamp> {
    let lease = facts.object(&Key::of(cluster::Kind::LEASE, "kube-node-lease", node)).is()?;
    lease.spec.renew_time.filter(|at| age(*at, facts.now) <= node::SILENT)
}

fn entry<'a>(list: &'a [Object], pod: &Object) -> Option<&'a Object> {
    list.iter().find(|own| own.metadata.uid == pod.metadata.uid)
}

/// Adds the evidence that kubelet processes changes. A kubelet whose loop is blocked has the same list, for another
/// cause.
fn takes_changes(draft: &mut Draft, pod: &Object, list: &[Object], node: &str, facts: &Facts) {
    let Some(requested) = pod.metadata.requested() else { return };
    let last = |own: &Object| {
        let meta = &own.metadata;
        let source = meta.annotations.get(CONFIG_SOURCE);
        let of_api = source.is_none_or(|source| source == "api") && meta.uid != pod.metadata.uid;
        // kubelet's own final deletion has a grace period of 0, and so hides when the deletion was requested.
        let requested = meta.requested().filter(|_| meta.deletion_grace_period_seconds > Some(0));
        let last = meta.creation_timestamp.max(requested).filter(|_| of_api)?;
        Some((last, format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name)))
    };
    let later = list.iter().filter_map(last).max().filter(|(at, _)| *at > requested);
    if let Some((at, name)) = later {
        let name = safe(name.as_bytes()).into_owned();
        let fact = format!(
            "kubelet's own list has a later change, of {name} at {at:.0}: kubelet receives other \
            changes"
        );
        draft.fact(fact, Source::Kubelet);
    } else if facts.kubelet_is_well(node) && age(requested, facts.now) > ROUND {
        draft.fact(
            "kubelet's /healthz is ok: its loop, which processes changes, completed a round \
            after the deletion was requested",
            Source::Kubelet,
        );
    } else {
        draft.doubt(
            "whether kubelet processes any change: its list has none that is later than this \
            deletion",
        );
    }
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
