//! The printed way out, tried as printed: it ends what keeps the pod, and the finding is over.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

use podstuck_tests::{Running, lab_if_possible, root_and_btf, skip, watch};
use serde_json::Value;

/// Plays a case until a remedy was tried and its finding cleared; the lab, if it can be played here.
fn cure(case: &str, options: &[&str], remedy: usize) -> Option<Running> {
    if let Err(reason) = root_and_btf() {
        skip(reason);
        return None;
    }
    let Some((lab, ready)) = lab_if_possible(case, &[]) else {
        skip(format!("{case} cannot be played here"));
        return None;
    };
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let mut pod = watch(&[&["--pod-uid", uid, "--kubelet-root", root], options].concat());
    lab.resume();
    let found = pod.wait_for("finding", |line| line["type"] == "finding");
    let command = found["remedies"][remedy]["command"].as_str().unwrap();
    let cured = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(cured.success(), "the remedy itself: {command}");
    let cleared = pod.wait_for("cleared", |line| line["state"] == "cleared");
    assert_eq!(cleared["id"], found["id"]);
    assert_eq!(cleared["pod"]["uid"], uid);
    Some(lab)
}

fn assert_pod_goes(mut lab: Running) {
    let tally: Value = lab.wait_for("tally", |line| line["calls"].is_object());
    assert_eq!(tally["pods_removed"], 1, "{tally:#}");
}

#[test]
fn a_finding_is_cleared_when_the_call_succeeds() {
    if let Some(lab) = cure("immutable-attribute", &[], 0) {
        assert_pod_goes(lab);
    }
}

#[test]
fn a_finding_about_a_state_is_cleared_when_the_state_is_over() {
    let case = "csi-driver-lost-publish-state-silent";
    if let Some(lab) = cure(case, &["--untried-after", "4s"], 0) {
        assert_pod_goes(lab);
    }
}

#[test]
fn a_process_that_is_left_is_ended() {
    // The first one only looks.
    if let Some(lab) = cure("cgroup-populated-leftover", &[], 1) {
        assert_pod_goes(lab);
    }
}
