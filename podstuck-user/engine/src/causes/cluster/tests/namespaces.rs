use serde_json::{Value, json};

use super::world::{World, commands, deleted, facts, ids, lease, living, the};
use crate::model::{
    cluster::{Key, Kind},
    evidence::Certainty::{Firm, Likely, Possible},
};
use crate::testing::holder_of;

fn namespace(conditions: Value) -> Value {
    json!({"metadata": deleted(None, "shop", json!({})), "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating", "conditions": conditions}})
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-11-28T09:51:00Z"})
}

fn key() -> Key {
    Key::global(Kind::NAMESPACE, "shop")
}

#[test]
fn a_namespace_waits_for_its_content() {
    let conditions = json!([
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "All resources successfully discovered"
        ),
        condition(
            "NamespaceContentRemaining",
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances, persistentvolumeclaims. has 1 resource instances"
        ),
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
        ),
    ]);
    let data = json!({"metadata": deleted(Some("shop"), "data", json!({"finalizers": ["example.com/x"]}))});
    let world = World::default()
        .with(Kind::NAMESPACE, namespace(conditions.clone()))
        .with(Kind::CLAIM, data);
    let judged = world.judged(&key());
    let found = the(&judged.case, "namespace-content-remains", Firm);
    assert_eq!(holder_of(&found.held_by), "PersistentVolumeClaim shop/data");
    assert_eq!(commands(&found), ["kubectl podstuck persistentvolumeclaim/data --namespace shop"]);
    the(judged.leaf(), "object-finalizer", Firm);
    // A condition may be outdated.
    let gone = World::default().with(Kind::NAMESPACE, namespace(conditions));
    the(&gone.case(&key()), "namespace-content-remains", Likely);
}

#[test]
fn a_namespace_that_is_empty_says_nothing_remains() {
    let conditions = json!([condition(
        "NamespaceContentRemaining",
        "False",
        "All content successfully removed"
    )]);
    let world = World::default().with(Kind::NAMESPACE, namespace(conditions));
    assert_eq!(ids(&world.case(&key())), [""; 0]);
}

#[test]
fn a_namespace_waits_for_an_api_that_is_not_available() {
    let conditions = json!([condition(
        "NamespaceDeletionDiscoveryFailure",
        "True",
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.example.com/v1"
    )]);
    let service = |available: &str| {
        json!({"metadata": living(None, "v1.metrics.example.com"),
            "spec": {"service": {"namespace": "monitoring", "name": "adapter"}},
            "status": {"conditions": [{"type": "Available", "status": available, "reason": "MissingEndpoints", "message": "no endpoints"}]}})
    };
    let world = || World::default().with(Kind::NAMESPACE, namespace(conditions.clone()));
    let found = the(
        &world().with(Kind::API_SERVICE, service("False")).case(&key()),
        "namespace-api-unavailable",
        Firm,
    );
    assert!(
        facts(&found).contains("v1.metrics.example.com is not available: MissingEndpoints"),
        "{}",
        facts(&found)
    );
    assert!(
        commands(&found)[0]
            .contains("/apis/apiregistration.k8s.io/v1/apiservices/v1.metrics.example.com")
    );
    // The API may be back, or its state may not be readable.
    the(
        &world().with(Kind::API_SERVICE, service("True")).case(&key()),
        "namespace-api-unavailable",
        Possible,
    );
    the(
        &world().without_right(Kind::API_SERVICE).case(&key()),
        "namespace-api-unavailable",
        Possible,
    );
}

#[test]
fn a_namespace_waits_for_a_conversion() {
    let of = |message: &str| {
        let conditions = json!([condition("NamespaceDeletionContentFailure", "True", message)]);
        World::default().with(Kind::NAMESPACE, namespace(conditions)).case(&key())
    };
    let failed = "Failed to delete all resource types, 1 remaining: conversion webhook for example.com/v1, Kind=Widget failed: Post \"https://w.guard.svc:443/convert\": no endpoints available";
    the(&of(failed), "namespace-conversion-fails", Firm);
    assert_eq!(
        ids(&of("Failed to delete all resource types, 1 remaining: context deadline exceeded")),
        [""; 0]
    );
}

/// The messages are those of a real API server (1.20) for an object of another kind and for one that is damaged.
#[test]
fn a_namespace_waits_for_an_object_that_cannot_be_read() {
    let widget = || Kind::named("example.com", "v1", "widgets", "Widget", true);
    let map = || Kind::named("", "v1", "configmaps", "ConfigMap", true);
    let eof = "unexpected EOF";
    let transform = "Internal error occurred: unable to transform key \"/registry/secrets/shop/s1\": invalid padding on input";
    let of = |message: &str, list: &str| {
        let message = format!("Failed to delete all resource types, 1 remaining: {message}");
        let conditions = json!([condition("NamespaceDeletionContentFailure", "True", &message)]);
        World::default()
            .with(Kind::NAMESPACE, namespace(conditions))
            .with_types(&[widget(), map()])
            .with_unreadable(map(), list)
            .case(&key())
    };
    let found = the(&of(eof, eof), "stored-object-unreadable", Firm);
    assert!(
        facts(&found)
            .contains("the list of configmaps in shop fails with the same message: unexpected EOF"),
        "{}",
        facts(&found)
    );
    assert!(
        format!("{:?}", found.remedies).contains("grep /configmaps/shop/"),
        "{:?}",
        found.remedies
    );
    let found = the(&of(transform, transform), "stored-object-unreadable", Firm);
    assert!(
        format!("{:?}", found.remedies).contains("--encryption-provider-config"),
        "{:?}",
        found.remedies
    );
    for (why, message, list) in [
        ("the list fails otherwise", eof, "no answer within 30 s"),
        ("admission refuses", "admission webhook \"x\" denied the request: no", "x"),
        ("the message is empty", eof, ""),
    ] {
        assert_eq!(ids(&of(message, list)), [""; 0], "{why}");
    }
}

#[test]
fn nothing_deletes_a_namespace_without_a_leader() {
    let world = |renewed: &str| {
        World::default()
            .with(Kind::NAMESPACE, namespace(json!([])))
            .with(Kind::LEASE, lease("kube-system", "kube-controller-manager", "cp_1", renewed))
    };
    the(&world("2026-11-28T09:40:00Z").case(&key()), "control-plane-without-leader", Firm);
    assert_eq!(ids(&world("2026-11-28T09:59:40Z").case(&key())), [""; 0]);
}
