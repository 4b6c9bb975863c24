//! Causes that show only in what does not happen, or in what stays: one lab is distinguished from another beside it, also
//! by a watch without an option that says where the pods are.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use podstuck_lab::find;
use podstuck_tests::{Running, lab, requires, root_and_btf, watch};
use serde_json::Value;

/// Far sooner than by default.
const NOT_ATTEMPTED_AFTER: &str = "4s";

/// A case that is watched for its pod alone.
struct Played {
    lab: Running,
    ready: Value,
    watch: Running,
}

fn start(case: &str) -> Played {
    let (lab, ready) = lab(case, &[]);
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let watch = watch(&[
        "--pod-uid",
        uid,
        "--kubelet-root",
        root,
        "--not-attempted-after",
        NOT_ATTEMPTED_AFTER,
    ]);
    Played { lab, ready, watch }
}

fn finding(played: &mut Played) -> Value {
    played.watch.wait_for("finding", |line| line["type"] == "finding")
}

fn assert_reported(played: &Played, found: &Value, id: &str) {
    assert_eq!(found["id"], id, "{found:#}");
    assert_eq!(found["state"], "new", "{found:#}");
    assert_eq!(found["pod"]["uid"], played.ready["pod_uid"], "{found:#}");
    assert_eq!(found["pod"]["name"], played.ready["lab"], "{found:#}");
    let path = found["call"]["path"].as_str().unwrap();
    let directory = format!(
        "{}/pods/{}/",
        played.ready["kubelet_root"].as_str().unwrap(),
        played.ready["pod_uid"].as_str().unwrap()
    );
    assert!(path.starts_with(&directory), "{path}");
    for list in ["evidence", "remedies"] {
        assert!(!found[list].as_array().unwrap().is_empty(), "{found:#}");
    }
}

#[test]
fn one_beside_another_is_distinguished() {
    requires!(root_and_btf());
    for (one, other) in [
        ("csi-driver-not-registered", "csi-driver-lost-publish-state-silent"),
        ("orphaned-pod-dir", "vol-data-missing-or-corrupt"),
        ("data-under-mountpoint", "writer-still-alive"),
    ] {
        let (mut first, mut second) = (start(one), start(other));
        first.lab.resume();
        second.lab.resume();
        for (case, played) in [(one, &mut first), (other, &mut second)] {
            let found = finding(played);
            assert_reported(played, &found, find(case).unwrap().cause.unwrap().as_str());
        }
    }
}

#[test]
fn a_node_is_watched_without_an_option_for_where_its_pods_are() {
    requires!(root_and_btf());
    let (lab, ready) = lab("csi-driver-not-registered", &[]);
    let mut node = watch(&["--not-attempted-after", NOT_ATTEMPTED_AFTER]);
    lab.resume();
    let found = node.wait_for("finding", |line| {
        line["type"] == "finding" && line["pod"]["uid"] == ready["pod_uid"]
    });
    assert_eq!(found["id"], "csi-driver-not-registered", "{found:#}");
}
