use serde_json::{Value, json};

use super::world::{World, commands, deleted, facts, ids, lease, living, overdue_pod, pod, the};
use crate::model::{
    cluster::{Key, Kind},
    evidence::Certainty::{Firm, Likely},
};
use crate::testing::holder_of;

const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// A deleted ResourceClaim with these consumers.
fn claim(reserved_for: &Value) -> Value {
    json!({"metadata": deleted(Some("shop"), "gpu", json!({"finalizers": [PROTECTION]})),
        "status": {"reservedFor": reserved_for, "allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]}}}})
}

fn of_pod(name: &str, uid: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": uid})
}

fn key() -> Key {
    Key::of(Kind::RESOURCE_CLAIM, "shop", "gpu")
}

fn living_pod(name: &str, phase: &str) -> Value {
    json!({"metadata": living(Some("shop"), name), "spec": {"nodeName": "n1"}, "status": {"phase": phase}})
}

fn controllers(renewed: &str) -> Value {
    lease("kube-system", "kube-controller-manager", "cp-1_uid", renewed)
}

#[test]
fn a_claim_stays_while_a_consumer_exists() {
    let consumers = json!([of_pod("train-0", "uid-of-train-0"), of_pod("gone-0", "uid-of-gone-0")]);
    let world = World::default()
        .with(Kind::RESOURCE_CLAIM, claim(&consumers))
        .with(Kind::POD, living_pod("train-0", "Running"));
    let case = world.case(&key());
    assert_eq!(ids(&case), ["resource-claim-reserved"]);
    let found = the(&case, "resource-claim-reserved", Firm);
    assert_eq!(holder_of(&found.held_by), "Pod shop/train-0");
    let text = facts(&found);
    for part in [
        "status.allocation has devices of gpu.example.com",
        "status.reservedFor names Pod shop/train-0, which exists with that UID and is not being deleted",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(commands(&found)[0].contains("\"uid\":\"uid-of-train-0\""), "{:?}", commands(&found));
}

#[test]
fn a_consumer_that_is_being_deleted_is_followed_to_its_node() {
    let consumers = json!([of_pod("run-0", "uid-of-run-0"), of_pod("train-0", "uid-of-train-0")]);
    let world = World::default()
        .with(Kind::RESOURCE_CLAIM, claim(&consumers))
        .with(Kind::POD, living_pod("run-0", "Running"))
        .with(Kind::POD, overdue_pod("train-0", json!({})))
        .with(
            Kind::NODE,
            json!({"metadata": living(None, "n1"),
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    let judged = world.judged(&key());
    let found = the(&judged.case, "resource-claim-reserved", Firm);
    assert_eq!(holder_of(&found.held_by), "Pod shop/train-0");
    assert_eq!(commands(&found), ["kubectl podstuck pod/train-0 --namespace shop"]);
    assert_eq!(judged.leaf().key, pod("train-0"));
    assert_eq!(judged.leaf().examine.as_deref(), Some("n1"));
}

/// In each of these the controller has to remove the entry, so that the claim is not reserved.
#[test]
fn a_consumer_that_is_gone_or_has_ended_holds_nothing() {
    let nowhere = json!({"metadata": deleted(Some("shop"), "train-0", json!({})), "spec": {}});
    for (why, world) in [
        ("does not exist", World::default()),
        ("another one has its name", {
            let mut other = living_pod("train-0", "Running");
            other["metadata"]["uid"] = json!("another");
            World::default().with(Kind::POD, other)
        }),
        ("has ended", World::default().with(Kind::POD, living_pod("train-0", "Succeeded"))),
        ("has ended", World::default().with(Kind::POD, nowhere)),
    ] {
        let world = world
            .with(Kind::RESOURCE_CLAIM, claim(&json!([of_pod("train-0", "uid-of-train-0")])))
            .with(Kind::LEASE, controllers("2026-11-28T09:59:58Z"));
        let case = world.case(&key());
        assert_eq!(ids(&case), ["resource-claim-not-released"], "{why}");
        // When the pod has ended is not known.
        let found = the(&case, "resource-claim-not-released", Likely);
        assert!(facts(&found).contains(why), "{why}: {}", facts(&found));
        let [.., last] = &commands(&found)[..] else { panic!("{found:?}") };
        assert!(last.contains("patch resourceclaims.resource.k8s.io gpu"), "{last}");
    }
}

#[test]
fn a_claim_that_is_not_reserved_is_released_within_a_minute() {
    let mut empty = claim(&json!([]));
    empty["metadata"]["managedFields"] = json!([
        {"manager": "kube-controller-manager", "time": "2026-11-28T09:51:00Z", "fieldsV1": {"f:status": {}}}]);
    let at = |time: &str| {
        let mut claim = empty.clone();
        claim["metadata"]["managedFields"][0]["time"] = json!(time);
        World::default()
            .with(Kind::RESOURCE_CLAIM, claim)
            .with(Kind::LEASE, controllers("2026-11-28T09:59:58Z"))
            .case(&key())
    };
    let found = the(&at("2026-11-28T09:51:00Z"), "resource-claim-not-released", Firm);
    assert!(facts(&found).contains("status.reservedFor is empty"));
    the(&at("2026-11-28T09:59:30Z"), "resource-claim-not-released", Likely);
    // Without a leader, no controller acts: that is the cause, and the finding about the finalizer stays beside it.
    let world = World::default()
        .with(Kind::RESOURCE_CLAIM, empty)
        .with(Kind::LEASE, controllers("2026-11-28T09:40:00Z"));
    let case = world.case(&key());
    assert_eq!(ids(&case), ["control-plane-without-leader", "object-finalizer"]);
}

#[test]
fn a_pod_that_may_not_be_read_decides_nothing() {
    let world = World::default()
        .with(Kind::RESOURCE_CLAIM, claim(&json!([of_pod("train-0", "uid-of-train-0")])))
        .with(Kind::LEASE, controllers("2026-11-28T09:59:58Z"))
        .without_right(Kind::POD);
    let case = world.case(&key());
    let found = case.findings.first().unwrap();
    assert_eq!(found.id.as_str(), "resource-claim-not-released");
    assert!(found.certainty < Firm, "{:?}", found.not_known);
    assert!(facts(found).contains("Pod shop/train-0, which was not read"), "{}", facts(found));
}

#[test]
fn a_consumer_of_another_type_is_looked_up_by_its_group() {
    let group = || Kind::named("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", true);
    let entry = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "uid-of-gang"}]);
    let world = || {
        World::default()
            .with(Kind::RESOURCE_CLAIM, claim(&entry))
            .with(Kind::LEASE, controllers("2026-11-28T09:59:58Z"))
    };
    // It exists, and is itself being deleted.
    let there = world().with_types(&[group()]).with(
        group(),
        json!({"metadata": deleted(Some("shop"), "gang", json!({"finalizers": ["scheduling.k8s.io/podgroup-protection"]}))}),
    );
    let judged = there.judged(&key());
    the(&judged.case, "resource-claim-reserved", Firm);
    assert_eq!(judged.leaf().key, Key::of(group(), "shop", "gang"));
    the(judged.leaf(), "object-finalizer", Firm);
    // It does not exist, or its type is not served: no version of the controller removes the entry of an unknown type.
    for gone in [world().with_types(&[group()]), world()] {
        let found = the(&gone.case(&key()), "resource-claim-not-released", Likely);
        assert!(
            found.remedies.iter().any(|it| format!("{it:?}").contains("status.reservedFor")),
            "{found:?}"
        );
    }
}

#[test]
fn of_an_alpha_version_only_the_finalizer_is_known() {
    let alpha = Kind::named("resource.k8s.io", "v1alpha3", "resourceclaims", "ResourceClaim", true);
    let claim =
        json!({"metadata": deleted(Some("shop"), "gpu", json!({"finalizers": [PROTECTION]}))});
    let case = World::default().with(alpha.clone(), claim).case(&Key::of(alpha, "shop", "gpu"));
    assert_eq!(ids(&case), ["object-finalizer"]);
}

/// An overdue pod on a node that reports, with a claim whose devices are of `gpu.example.com`.
fn with_devices(slices: &[Value]) -> World {
    let mut train = overdue_pod("train-0", json!({}));
    train["spec"]["resourceClaims"] =
        json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    train["status"] =
        json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    let mut claim = claim(&json!([of_pod("train-0", "uid-of-train-0")]));
    claim["metadata"] = living(Some("shop"), "gpu");
    let world = World::default()
        .with_types(&[Kind::RESOURCE_CLAIM_BETA_1, Kind::RESOURCE_SLICE_BETA_1])
        .with(Kind::RESOURCE_CLAIM_BETA_1, claim)
        .with(Kind::POD, train)
        .with(
            Kind::NODE,
            json!({"metadata": living(None, "n1"),
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    slices.iter().enumerate().fold(world, |world, (nth, spec)| {
        let slice = json!({"metadata": living(None, &format!("slice-{nth}")), "spec": spec});
        world.with(Kind::RESOURCE_SLICE_BETA_1, slice)
    })
}

#[test]
fn a_driver_that_publishes_nothing_for_the_node_is_likely() {
    let elsewhere = json!({"driver": "gpu.example.com", "nodeName": "n2"});
    let other = json!({"driver": "nic.example.com", "nodeName": "n1"});
    let case = with_devices(&[elsewhere, other]).case(&pod("train-0"));
    let found = the(&case, "device-driver-not-on-node", Likely);
    assert_eq!(holder_of(&found.held_by), "the DRA driver gpu.example.com on n1");
    assert_eq!(case.examine.as_deref(), Some("n1"), "the node decides");
    for (why, world) in [
        (
            "it publishes devices there",
            with_devices(&[json!({"driver": "gpu.example.com", "nodeName": "n1"})]),
        ),
        (
            "it publishes for all nodes",
            with_devices(&[json!({"driver": "gpu.example.com", "allNodes": true})]),
        ),
        ("slices may not be read", with_devices(&[]).without_right(Kind::RESOURCE_SLICE_BETA_1)),
        ("the claim is gone", with_devices(&[]).without("gpu")),
        ("the node is off", with_devices(&[]).without("n1")),
    ] {
        let case = world.case(&pod("train-0"));
        assert!(!ids(&case).contains(&"device-driver-not-on-node"), "{why}");
    }
}
