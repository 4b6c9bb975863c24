//! What shows only in what does not happen, or in what stays: each lab is named for what it is,
//! after a short patience; a healthy pod is not; and one lab beside another is told apart.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use podstuck_tests::{Running, lab, of_type, root_and_btf, settle, watch};
use serde_json::Value;

const PATIENCE: &str = "4s";

/// A case that is watched for its pod alone.
struct Played {
    lab: Running,
    ready: Value,
    watch: Running,
}

fn start(case: &str) -> Played {
    let (lab, ready) = lab(case, &[]);
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let watch = watch(&["--pod-uid", uid, "--kubelet-root", root, "--untried-after", PATIENCE]);
    Played { lab, ready, watch }
}

fn finding(played: &mut Played) -> Value {
    played.watch.wait_for("finding", |line| line["type"] == "finding")
}

/// Plays a case; its one finding, whose path ends as the object does.
fn expect(case: &str, id: &str, object: &str, blocks: bool) -> Value {
    let mut played = start(case);
    played.lab.resume();
    let found = finding(&mut played);
    assert_told(&played, &found, id, object, blocks);
    // Whatever else is told about it is the same.
    settle();
    let (lines, status) = played.watch.stop();
    assert_eq!(status.code(), Some(1));
    for told in of_type(&lines, "finding") {
        assert_eq!(told["id"], id, "{told:#}");
    }
    found
}

fn assert_told(played: &Played, found: &Value, id: &str, object: &str, blocks: bool) {
    assert_eq!(found["id"], id, "{found:#}");
    assert_eq!(found["state"], "new", "{found:#}");
    assert_eq!(found["blocks_deletion"], blocks, "{found:#}");
    assert_eq!(found["pod"]["uid"], played.ready["pod_uid"], "{found:#}");
    assert_eq!(found["pod"]["name"], played.ready["lab"], "{found:#}");
    let path = found["call"]["path"].as_str().unwrap();
    let directory = format!(
        "{}/pods/{}/",
        played.ready["kubelet_root"].as_str().unwrap(),
        played.ready["pod_uid"].as_str().unwrap()
    );
    assert!(path.starts_with(&directory) && path.ends_with(object), "{path}");
    for list in ["evidence", "remedies"] {
        assert!(!found[list].as_array().unwrap().is_empty(), "{found:#}");
    }
}

/// No call shows it, and none is claimed.
fn assert_silent(found: &Value) {
    assert!(found["actor"].is_null() && found["call"]["syscall"].is_null(), "{found:#}");
    assert!(found["call"]["errno"].is_null() && found["call"]["errno_name"].is_null());
}

#[test]
fn a_driver_that_forgot_is_told_by_the_silence_of_everybody() {
    if !root_and_btf() {
        return;
    }
    let case = "csi-driver-lost-publish-state-silent";
    assert_silent(&expect(case, "csi-driver-lost-publish-state", "/mount", true));
}

#[test]
fn a_driver_that_is_not_there() {
    if !root_and_btf() {
        return;
    }
    let id = "csi-driver-not-registered";
    assert_silent(&expect(id, id, "/mount", true));
}

#[test]
fn kubelet_lost_its_data_of_a_volume() {
    if !root_and_btf() {
        return;
    }
    let id = "vol-data-missing-or-corrupt";
    assert_silent(&expect(id, id, "/vol_data.json", true));
}

#[test]
fn data_under_a_mount_point() {
    if !root_and_btf() {
        return;
    }
    let id = "data-under-mountpoint";
    let found = expect(id, id, "/mount", true);
    assert_eq!(found["call"]["errno_name"], "ENOTEMPTY");
    assert!(found.to_string().contains("export"), "what lies there: {found:#}");
}

#[test]
fn a_subpath_that_was_skipped() {
    if !root_and_btf() {
        return;
    }
    let id = "subpath-source-deleted";
    let found = expect(id, id, "/volume-subpaths/data/app", true);
    assert_eq!(found["call"]["errno_name"], "ENOTEMPTY");
    assert_eq!(found["container"], "app");
}

#[test]
fn somebody_who_goes_on_writing() {
    if !root_and_btf() {
        return;
    }
    let id = "writer-still-alive";
    let found = expect(id, id, "/data/export", true);
    assert!(found["confidence"].as_f64().unwrap() > 0.8, "he was found: {found:#}");
}

#[test]
fn an_orphan_is_nobodys_cause() {
    if !root_and_btf() {
        return;
    }
    let id = "orphaned-pod-dir";
    let found = expect(id, id, "/volumes", false);
    assert_eq!(found["severity"], "info");
}

#[test]
fn what_is_told_of_a_state_is_over_when_the_state_is() {
    if !root_and_btf() {
        return;
    }
    let mut played = start("csi-driver-lost-publish-state-silent");
    played.lab.resume();
    let found = finding(&mut played);
    let remedy = found["remedies"][0]["command"].as_str().unwrap();
    let cured = std::process::Command::new("sh").args(["-c", remedy]).status().unwrap();
    assert!(cured.success(), "the remedy itself: {remedy}");
    let cleared = played.watch.wait_for("cleared", |line| line["state"] == "cleared");
    assert_eq!(cleared["id"], found["id"]);
    let tally = played.lab.wait_for("tally", |line| line["calls"].is_object());
    assert_eq!(tally["pods_removed"], 1, "{tally:#}");
}

#[test]
fn healthy_pods_pass_through_all_of_it() {
    if !root_and_btf() {
        return;
    }
    let (mut running, ready) = lab("healthy", &["--duration", "14s"]);
    let root = ready["kubelet_root"].as_str().unwrap();
    let uid = ready["pod_uid"].as_str().unwrap();
    let watch = watch(&["--pod-uid", uid, "--kubelet-root", root, "--untried-after", PATIENCE]);
    running.resume();
    running.wait_for("tally", |line| line["calls"].is_object());
    let (lines, status) = watch.stop();
    assert_eq!(of_type(&lines, "finding"), Vec::<&Value>::new());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn one_beside_another_is_told_apart() {
    if !root_and_btf() {
        return;
    }
    for (one, other) in [
        ("csi-driver-not-registered", "csi-driver-lost-publish-state-silent"),
        ("orphaned-pod-dir", "vol-data-missing-or-corrupt"),
        ("data-under-mountpoint", "writer-still-alive"),
    ] {
        let (mut first, mut second) = (start(one), start(other));
        first.lab.resume();
        second.lab.resume();
        for (case, played) in [(one, &mut first), (other, &mut second)] {
            let id = case.strip_suffix("-silent").unwrap_or(case);
            let found = finding(played);
            assert_told(played, &found, id, "", id != "orphaned-pod-dir");
        }
    }
}

#[test]
fn a_node_is_watched_without_being_told_where_its_pods_are() {
    if !root_and_btf() {
        return;
    }
    let (lab, ready) = lab("csi-driver-not-registered", &[]);
    let mut node = watch(&["--untried-after", PATIENCE]);
    lab.resume();
    let found = node.wait_for("finding", |line| {
        line["type"] == "finding" && line["pod"]["uid"] == ready["pod_uid"]
    });
    assert_eq!(found["id"], "csi-driver-not-registered", "{found:#}");
}
