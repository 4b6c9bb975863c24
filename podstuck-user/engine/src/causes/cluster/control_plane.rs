//! A control plane whose controller manager is inactive: no replica holds its Lease.

use std::time::Duration;

use super::case::{api, draft};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
        remedy::Remedy,
    },
    verdict::Draft,
};

/// Age from which a Lease is stale. It is renewed every two seconds and valid for fifteen; another replica takes over
/// after that. Four times that is longer than a change of leaders.
pub(super) const STALE: Duration = Duration::from_secs(60);

/// No replica renews the Lease of kube-controller-manager.
pub(crate) static WITHOUT_LEADER: Cause = Cause {
    id: ids::CONTROL_PLANE_WITHOUT_LEADER,
    title: "no kube-controller-manager holds its Lease: its controllers do nothing",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "kube-controller-manager runs the namespace controller, the garbage collectors, the \
        protection of claims and volumes, and the Job controller. Only the replica that holds \
        the Lease kube-system/kube-controller-manager acts. That Lease was not renewed for a \
        minute: every object that waits for one of these controllers stays.",
    confirmed_by: &[seen(
        "spec.renewTime of the Lease kube-system/kube-controller-manager is older than 60 s and its leaseDurationSeconds",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[
        like(
            ids::NODE_NOT_HEARD,
            "the controller manager, which writes the conditions of nodes, does not renew its Lease",
        ),
        like(
            ids::DAEMONSET_NOT_SYNCED,
            "no replica of the controller manager renews its Lease: none of its controllers acts",
        ),
        like(
            ids::RESOURCE_CLAIM_NOT_RELEASED,
            "no replica of the controller manager renews its Lease: none of its controllers acts",
        ),
    ],
    ways_out: &[
        way("restart kube-controller-manager on a control plane node, and read its log", ""),
        way("if the cluster is managed, ask its provider", ""),
    ],
    field: &[],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go"],
};

/// The state of the Lease by which replicas of a controller elect a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    /// The Lease was renewed in time.
    Fresh,
    /// The Lease was not renewed in time.
    Stale,
    /// The Lease does not exist, has no holder, or was not read.
    NotKnown,
}

pub(super) fn leader(lease: &Object, facts: &Facts) -> Leader {
    let Some(renewed) = lease.spec.renew_time else { return Leader::NotKnown };
    let held = lease.spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    // A replica that ends releases its Lease.
    if !held {
        return Leader::NotKnown;
    }
    let good_for = lease.spec.lease_duration_seconds.unwrap_or_default().max(0).unsigned_abs();
    let limit = STALE.max(Duration::from_secs(good_for));
    let age = Duration::try_from(facts.now.duration_since(renewed)).unwrap_or_default();
    if age > limit { Leader::Stale } else { Leader::Fresh }
}

pub(super) fn lease(facts: &Facts) -> Known<std::sync::Arc<Object>> {
    facts.object(&Key::of(cluster::Kind::LEASE, "kube-system", "kube-controller-manager"))
}

/// A command that shows where the controller manager runs.
pub(super) fn show_pods() -> Remedy {
    super::remedy::show(
        "show the pods of the controller manager, if they are pods".into(),
        "kubectl --namespace kube-system get pods --selector component=kube-controller-manager --output wide".into(),
    )
}

/// The finding, if the Lease is stale.
pub(super) fn judge(facts: &Facts) -> Option<Draft> {
    let lease = lease(facts).is()?;
    if leader(&lease, facts) != Leader::Stale {
        return None;
    }
    let mut draft = draft(&WITHOUT_LEADER);
    let renewed = lease.spec.renew_time?;
    let age = facts.now.duration_since(renewed).as_secs();
    let holder = lease.spec.holder_identity.as_deref().unwrap_or_default();
    draft.held_by(Who::component("kube-controller-manager", None).and(", which has no leader"));
    draft.fact(
        format!(
            "the Lease kube-system/kube-controller-manager was last renewed at {renewed:.0}, {age} s ago, by {}",
            safe(holder.as_bytes())
        ),
        api(facts.now),
    );
    draft.rule_out(ids::NODE_NOT_HEARD, "it is the controller manager whose Lease is not renewed");
    draft.suffices_beside(ids::DAEMONSET_NOT_SYNCED);
    draft.suffices_beside(ids::RESOURCE_CLAIM_NOT_RELEASED);
    draft.remedies.push(show_pods());
    draft.advice(
        "restart kube-controller-manager on a control plane node, and read its log; if the \
        cluster is managed, ask its provider",
        "none",
    );
    Some(draft)
}
