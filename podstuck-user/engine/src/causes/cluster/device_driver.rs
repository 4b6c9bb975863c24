//! The driver of a pod's devices (dynamic resource allocation): kubelet waits for it before the pod's deletion goes on.

use super::{
    case::{Case, State, api, draft},
    resource_claim,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
        shell::is_object_name,
    },
};

/// The API group of ResourceClaims.
const GROUP: &str = "resource.k8s.io";
/// ResourceClaims of a pod that are read.
const READ: usize = 8;

/// The driver publishes nothing for the node.
pub(crate) static NOT_ON_NODE: Cause = Cause {
    id: ids::DEVICE_DRIVER_NOT_ON_NODE,
    title: "the DRA driver of the pod's devices publishes nothing for the node, and kubelet needs it to end the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "After the containers of a pod have ended, kubelet asks the driver of each of its ResourceClaims to unprepare \
        it (NodeUnprepareResources), and repeats that until the driver answers. kubelet removes the ResourceSlices of a \
        driver that is no longer registered on its node: where none of that driver is left for the node, there is mostly no \
        driver that could answer. kubelet cannot tell a driver that was removed for good from one that restarts.",
    confirmed_by: &[
        seen(
            "a ResourceClaim of the overdue pod is reserved for it, and has devices of the driver",
            &[Origin::Api],
        ),
        seen(
            "no ResourceSlice of the driver names the pod's node, and none is for several nodes",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("start the DRA driver on the node again: kubelet's next attempt then goes on", ""),
        way(
            "if the driver was removed for good, delete the pod's record with a grace period of 0",
            "the devices stay prepared on the node, and are allocated to other pods",
        ),
    ],
    field: &["kubernetes#129402", "kubernetes#131957", "gpu-operator#2571"],
    tried: &[TriedWith::Objects],
    source: &[
        "kubernetes pkg/kubelet/cm/dra/manager.go, unprepareResources",
        "kubernetes pkg/kubelet/cm/dra/plugin, wipeResourceSlices",
    ],
};

/// The names of the pod's ResourceClaims.
fn claims(pod: &Object) -> impl Iterator<Item = &str> {
    pod.spec.resource_claims.iter().filter_map(|claim| {
        let of_template = || {
            let created = &pod.status.resource_claim_statuses;
            created.iter().find(|it| it.name == claim.name)?.resource_claim_name.as_deref()
        };
        claim.resource_claim_name.as_deref().or_else(of_template)
    })
}

/// Whether a ResourceSlice of the driver is for the node; `None` if not known.
fn publishes(driver: &str, node: &str, kind: &cluster::Kind, facts: &Facts) -> Option<bool> {
    let slices = facts.all_with(kind, "spec.driver", driver).is()?;
    // One without a node is for several, which a driver publishes from elsewhere.
    Some(slices.iter().any(|it| it.spec.node_name.is_empty() || it.spec.node_name == node))
}

/// Adds a finding for each driver of the overdue pod that publishes nothing for its node.
pub(super) fn judge(case: &mut Case, pod: &Object, facts: &Facts) {
    let Some(namespace) = case.key.namespace.clone().filter(|_| case.state == State::Overdue)
    else {
        return;
    };
    if claims(pod).next().is_none() {
        return;
    }
    let Known::Is(types) = facts.types(GROUP) else { return };
    let known =
        |plural: &str| types.iter().find(|it| it.plural == plural && it.is_known()).cloned();
    let Some((claim, slice)) = known("resourceclaims").zip(known("resourceslices")) else {
        return;
    };
    let node = pod.spec.node_name.as_str();
    let mut missing: Vec<(String, String)> = Vec::new();
    for name in claims(pod).take(READ) {
        let key = Key::of(claim.clone(), &namespace, name);
        let Known::Is(object) = facts.object(&key) else { continue };
        if !object.status.reserved_for.iter().any(|it| it.uid == pod.metadata.uid) {
            continue;
        }
        for driver in resource_claim::drivers(&object) {
            let is_new = !missing.iter().any(|(of, _)| of == driver);
            if is_new
                && is_object_name(driver)
                && publishes(driver, node, &slice, facts) == Some(false)
            {
                missing.push((driver.to_owned(), key.to_string()));
            }
        }
    }
    for (driver, claim) in missing {
        let node = safe(node.as_bytes()).into_owned();
        let mut draft = draft(&NOT_ON_NODE);
        draft.held_by(
            Who::component(format!("the DRA driver {driver}"), None).and(&format!(" on {node}")),
        );
        draft.fact(
            format!(
                "{} is reserved for the pod, and status.allocation has devices of {driver}",
                safe(claim.as_bytes())
            ),
            api(facts.now),
        );
        draft.fact(
            format!(
                "no ResourceSlice of {driver} names the node {node}, and none is for several nodes"
            ),
            api(facts.now),
        );
        draft.doubt(
            "whether kubelet has come to unprepare the claim: only its log on the node names the driver that it cannot reach",
        );
        draft.advice(
            format!("start the DRA driver {driver} on {node}: kubelet's next attempt then goes on"),
            "none",
        );
        case.found(draft, facts.now);
    }
}
