//! Without probes, the state of the node still answers, and what was not watched is said.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

use podstuck_tests::{lab_if_possible, of_type, podstuck, requires, root_and_btf, run, skip};
use serde_json::Value;

/// A case that shows in no call.
const CASE: &str = "cgroup-v1-frozen";

fn lines(text: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The answer is right and firm, and says that no call was watched.
fn assert_answered(lines: &[Value], status: Option<i32>, why: &str) {
    let start = of_type(lines, "start")[0];
    assert_eq!(start["backend"], "none", "{start:#}");
    let not_covered = start["not_covered"][0].as_str().unwrap();
    assert!(not_covered.starts_with("all calls: ") && not_covered.contains(why), "{not_covered}");
    let answer = of_type(lines, "diagnosis")[0];
    let first = &answer["causes"][0];
    assert_eq!((&first["id"], &first["certainty"]), (&CASE.into(), &"firm".into()), "{answer:#}");
    assert_eq!(status, Some(1));
}

#[test]
fn the_state_answers_where_no_probe_is_wanted_or_let_in() {
    requires!(root_and_btf());
    let Some((lab, ready)) = lab_if_possible(CASE, &[]) else {
        skip(format!("lab {CASE} cannot be played here"));
        return;
    };
    lab.resume();
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let asked = ["diagnose", "--output", "json", "--pod-uid", uid, "--kubelet-root", root];

    let unwanted = run(&[&asked[..], &["--no-trace"]].concat());
    assert_answered(&lines(&unwanted.stdout), unwanted.status.code(), "--no-trace");

    let mut refused = Command::new("setpriv");
    let without = "--bounding-set=-sys_admin,-bpf,-perfmon";
    let refused = refused.arg(without).arg(podstuck()).args(asked).output().unwrap();
    assert_answered(&lines(&refused.stdout), refused.status.code(), "missing capability");

    // A watch is about calls: it does not begin.
    let mut watch = Command::new("setpriv");
    let watch = watch.arg(without).arg(podstuck()).args(["watch", "--duration", "1s"]).output();
    assert_eq!(watch.unwrap().status.code(), Some(3));
}
