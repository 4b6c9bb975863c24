//! Tests of what kubelet's own list of its pods proves.

use serde_json::{Value, json};

use super::world::{World, deleted, facts, ids, lease, living, overdue_pod, pod, the};
use crate::model::{
    cluster::Kind,
    evidence::Certainty::{Firm, Likely, Possible},
};
use crate::testing::holder_of;

const HEARD: &str = "2026-11-28T09:59:55.000000Z";

/// A node whose kubelet renews its Lease and last reported this condition at `reported`, with this pod.
fn node(ready: &str, reported: &str, pod: Value) -> World {
    let condition = json!({"type": "Ready", "status": ready, "lastHeartbeatTime": reported});
    let node = json!({"metadata": living(None, "n1"), "status": {"conditions": [condition]}});
    World::default()
        .with(Kind::NODE, node)
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", HEARD))
        .with(Kind::POD, overdue_pod("cart-0", pod))
}

fn ready() -> World {
    node("True", "2026-11-28T09:58:00Z", json!({}))
}

fn deleted_at(time: &str) -> World {
    node("True", HEARD, json!({"deletionTimestamp": time}))
}

/// The pod in kubelet's list, from before its deletion.
fn unaware() -> Value {
    json!({"metadata": living(Some("shop"), "cart-0")})
}

fn aware() -> Value {
    json!({"metadata": deleted(Some("shop"), "cart-0", json!({"deletionGracePeriodSeconds": 30}))})
}

/// Another pod of the node, with this metadata.
fn other(more: Value) -> Value {
    let mut other = json!({"metadata": living(Some("shop"), "other")});
    other["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    other
}

fn later() -> Value {
    // kubelet notes the source of each pod.
    other(
        json!({"creationTimestamp": "2026-11-28T09:55:00Z", "annotations": {"kubernetes.io/config.source": "api"}}),
    )
}

#[test]
fn a_kubelet_that_hears_of_others_has_missed_this_deletion() {
    let list = json!([unaware(), later()]);
    let case = ready().with_kubelet([list.clone(), list], false).case(&pod("cart-0"));
    let found = the(&case, "kubelet-missed-deletion", Firm);
    assert_eq!((case.examine, holder_of(&found.held_by)), (None, "kubelet on n1".to_owned()));
    let facts = facts(&found);
    assert!(
        facts.contains("has this UID without deletionTimestamp, in two reads 2 s apart"),
        "{facts}"
    );
    assert!(facts.contains("a later change, of shop/other at 2026-11-28T09:55:00Z"), "{facts}");
    assert!(found.remedies[0].words().starts_with("restart kubelet on n1"), "{found:#?}");
    // The containers run: no remedy deletes the record without kubelet.
    assert!(!found.remedies.iter().any(|it| it.words().contains("record")), "{found:#?}");
}

#[test]
fn a_quiet_kubelet_that_says_it_is_well_has_missed_it() {
    let list = || json!([unaware()]);
    let case = ready().with_kubelet([list(), list()], true).case(&pod("cart-0"));
    let found = the(&case, "kubelet-missed-deletion", Firm);
    assert!(facts(&found).contains("/healthz is ok"), "{found:#?}");
    // kubelet's loop may be blocked for five minutes before its health check fails.
    let world = deleted_at("2026-11-28T09:56:00Z");
    let case = world.with_kubelet([list(), list()], true).case(&pod("cart-0"));
    the(&case, "kubelet-missed-deletion", Likely);
}

#[test]
fn a_kubelet_that_takes_no_change_at_all_is_not_proven_to_have_missed_one() {
    let list = |more: Value| json!([unaware(), more]);
    for old in [
        other(json!({"creationTimestamp": "2026-11-28T09:00:00Z"})),
        // kubelet's own final deletion: the time of the request is not known.
        other(
            json!({"deletionTimestamp": "2026-11-28T09:55:00Z", "deletionGracePeriodSeconds": 0}),
        ),
        // A static pod comes from a file.
        other(
            json!({"creationTimestamp": "2026-11-28T09:55:00Z", "annotations": {"kubernetes.io/config.source": "file"}}),
        ),
    ] {
        let case = ready().with_kubelet([list(old.clone()), list(old)], false).case(&pod("cart-0"));
        the(&case, "kubelet-missed-deletion", Likely);
    }
    // Without its runtime kubelet processes no changes; an old report does not show whether it has one.
    for world in [node("False", HEARD, json!({})), node("True", "2026-11-28T09:30:00Z", json!({}))]
    {
        let case = world.with_kubelet([list(later()), list(later())], false).case(&pod("cart-0"));
        the(&case, "kubelet-missed-deletion", Likely);
    }
    let case = node("False", HEARD, json!({}))
        .with_kubelet([json!([unaware()]), json!([unaware()])], false);
    the(&case.case(&pod("cart-0")), "kubelet-missed-deletion", Possible);
}

#[test]
fn a_kubelet_that_has_received_the_deletion_is_examined_on_its_node() {
    let list = || json!([aware(), later()]);
    let case = ready().with_kubelet([list(), list()], true).case(&pod("cart-0"));
    assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")));
    assert!(case.kubelet.unwrap().contains("has received the deletion"));
    // A kubelet that receives the deletion between the two reads has not missed it.
    let case =
        ready().with_kubelet([json!([unaware(), later()]), list()], true).case(&pod("cart-0"));
    assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")));
    // A pod of the same name with another UID is another pod.
    let mut namesake = unaware();
    namesake["metadata"]["uid"] = json!("another");
    let list = || json!([namesake.clone(), later()]);
    let case = ready().with_kubelet([list(), list()], true).case(&pod("cart-0"));
    assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")));
    assert!(case.kubelet.unwrap().contains("does not have the pod"));
}

#[test]
fn no_kubelet_is_asked_unless_the_caller_wants_it_or_before_the_pod_is_late() {
    let case = ready().case(&pod("cart-0"));
    assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")));
    let list = || json!([unaware(), later()]);
    let world = deleted_at("2026-11-28T09:59:50Z");
    let case = world.with_kubelet([list(), list()], true).case(&pod("cart-0"));
    assert_eq!(ids(&case), [""; 0]);
}
