//! Tests of what shows that the DaemonSet controller does not act.

use serde_json::{Value, json};

use super::world::{World, commands, facts, ids, lease, living, the};
use crate::model::{
    cluster::{Key, Kind},
    evidence::Certainty::{Firm, Likely},
};

fn agent() -> Key {
    Key::of(Kind::DAEMON_SET, "shop", "agent")
}

/// A DaemonSet that was last changed at `changed`, with its generation, and what its controller has recorded: the
/// generation, and the number of nodes that have to run its pod and that have one.
fn set(changed: Value, generation: i64, observed: i64, desired: i64, current: i64) -> World {
    let mut meta = living(Some("shop"), "agent");
    meta["generation"] = json!(generation);
    meta["managedFields"] = json!([
        {"manager": "helm", "time": changed, "fieldsV1": {"f:metadata": {}, "f:spec": {}}},
        {"manager": "kube-controller-manager", "time": "2026-11-28T09:59:59Z", "fieldsV1": {"f:status": {}}}]);
    let status = json!({"observedGeneration": observed, "desiredNumberScheduled": desired,
        "currentNumberScheduled": current, "numberMisscheduled": 0});
    let template = json!({"metadata": {"labels": {"app": "agent"}}});
    World::default()
        .with(
            Kind::DAEMON_SET,
            json!({"metadata": meta, "spec": {"template": template}, "status": status}),
        )
        .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
}

fn leads(renewed: &str) -> Value {
    lease("kube-system", "kube-controller-manager", "cp-1", renewed)
}

/// A pod of the DaemonSet with this UID.
fn of(set: &str, name: &str, node: &str) -> Value {
    let mut meta = living(Some("shop"), name);
    meta["ownerReferences"] =
        json!([{"kind": "DaemonSet", "name": "agent", "uid": set, "controller": true}]);
    json!({"metadata": meta, "spec": {"nodeName": node}})
}

const BEFORE: &str = "2026-11-28T09:50:00Z";

/// kubernetes#62928
#[test]
fn a_change_that_is_not_processed_for_a_minute_is_firm() {
    let case = set(json!(BEFORE), 3, 2, 4, 4)
        .with(Kind::LEASE, leads("2026-11-28T09:59:58Z"))
        .case(&agent());
    let found = the(&case, "daemonset-not-synced", Firm);
    let fact = facts(&found);
    assert!(fact.contains("metadata.generation is 3, and status.observedGeneration 2"), "{fact}");
    assert!(
        fact.contains("helm last changed the DaemonSet at 2026-11-28T09:50:00Z, 600 s ago"),
        "{fact}"
    );
    assert_eq!(commands(&found)[0], "kubectl --namespace shop describe daemonset agent");
    // Without the right to read Leases.
    let case = set(json!(BEFORE), 3, 2, 4, 4).without_right(Kind::LEASE).case(&agent());
    the(&case, "daemonset-not-synced", Firm);
    // It may be about to be processed, or nothing shows when it was changed.
    for changed in [json!("2026-11-28T09:59:30Z"), json!(null)] {
        the(&set(changed, 3, 2, 4, 4).case(&agent()), "daemonset-not-synced", Likely);
    }
    // Its webhooks were not read: one may refuse its pods.
    let case = set(json!(BEFORE), 3, 2, 4, 4).without_right(Kind::VALIDATING).case(&agent());
    the(&case, "daemonset-not-synced", Likely);
}

#[test]
fn a_controller_manager_without_a_leader_is_the_cause() {
    let case = set(json!(BEFORE), 3, 2, 4, 4)
        .with(Kind::LEASE, leads("2026-11-28T09:30:00Z"))
        .case(&agent());
    assert_eq!(ids(&case), ["control-plane-without-leader"]);
    let found = the(&case, "control-plane-without-leader", Firm);
    assert!(facts(&found).contains("its status counts 4 nodes"), "{}", facts(&found));
}

#[test]
fn a_pod_that_the_status_still_counts_makes_it_likely() {
    let with = |pods: &[Value]| {
        let world = set(json!(BEFORE), 2, 2, 3, 3);
        pods.iter().fold(world, |world, pod| world.with(Kind::POD, pod.clone())).case(&agent())
    };
    let mine = |name: &str, node: &str| of("uid-of-agent", name, node);
    let found = the(&with(&[mine("a", "n1"), mine("b", "n2")]), "daemonset-not-synced", Likely);
    assert!(
        facts(&found).contains("the API server has pods of it on 2 nodes"),
        "{}",
        facts(&found)
    );
    // One more waits for the scheduler.
    assert_eq!(ids(&with(&[mine("a", "n1"), mine("b", "n2"), mine("c", "")])), [""; 0]);
    // Two on one node, and one of another DaemonSet.
    let case = with(&[mine("a", "n1"), mine("b", "n2"), mine("c", "n2"), of("other", "d", "n3")]);
    the(&case, "daemonset-not-synced", Likely);
}

#[test]
fn a_webhook_without_endpoints_refuses_its_pods() {
    let hook = |labels: Value| {
        let hook = json!({"name": "v.example.com", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": "guard", "name": "webhook"}},
            "objectSelector": {"matchLabels": labels},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
        json!({"metadata": living(None, "guard"), "webhooks": [hook]})
    };
    // Kubernetes up to 1.25 records no generation while the creation of a pod fails; later releases do.
    for (observed, current) in [(2, 4), (3, 1)] {
        let of = |labels: Value| {
            set(json!(BEFORE), 3, observed, 4, current)
                .with(Kind::POD, of("uid-of-agent", "a", "n1"))
                .with(Kind::VALIDATING, hook(labels))
        };
        let case = of(json!({"app": "agent"})).case(&agent());
        assert_eq!(ids(&case), ["webhook-unavailable"]);
        let found = the(&case, "webhook-unavailable", Firm);
        assert!(
            found.explanation.contains("before it admits a pod of the DaemonSet"),
            "{}",
            found.explanation
        );
        // It is called for other pods.
        let other = of(json!({"app": "other"})).case(&agent());
        assert_eq!(
            ids(&other).contains(&"daemonset-not-synced"),
            observed == 2,
            "{:?}",
            ids(&other)
        );
        assert!(!ids(&other).contains(&"webhook-unavailable"));
    }
}
