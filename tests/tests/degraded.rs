//! What a part of the tool cannot do any more stands beside the findings that are made by it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/stuck_pod.rs"]
mod stuck_pod;

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{requires, root_and_btf, summary, watch};
use serde_json::Value;
use stuck_pod::StuckPod;

/// The process from which the watch starts its helpers.
fn fork_server_of(watch: u32) -> Pid {
    let children = fs::read_to_string(format!("/proc/{watch}/task/{watch}/children")).unwrap();
    let mut pids = children.split_whitespace();
    let is_it = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "fork server\n")
    };
    Pid::from_raw(pids.find(is_it).unwrap().parse().unwrap())
}

fn lacks(line: &Value) -> bool {
    line["degraded"].to_string().contains("no helper can be asked")
}

#[test]
fn a_finding_that_helpers_made_says_that_there_are_none_any_more() {
    requires!(root_and_btf());
    let (pod, later) = (StuckPod::build(), StuckPod::build());
    let mut watching = watch(&["--kubelet-root", pod.root(), "--kubelet-root", later.root()]);
    pod.start();
    let found = pod.cause_is_found(&mut watching);
    assert!(found.get("degraded").is_none(), "{found:#}");
    kill(fork_server_of(watching.pid()), Signal::SIGKILL).unwrap();
    let kept = watching
        .wait_for("the finding, with what it may lack", |line| pod.is_found(line) && lacks(line));
    assert_eq!((&kept["id"], &kept["state"]), (&found["id"], &"update".into()), "{kept:#}");
    // What is found from now on is not as sure, and says why.
    later.start();
    let made = watching.wait_for("another pod's finding", |line| later.is_found(line));
    assert!(lacks(&made) && made["certainty"] != "firm", "{made:#}");
    let (lines, _) = watching.stop();
    let told = summary(&lines)["completeness"]["degraded"].to_string();
    assert!(told.contains("no helper can be asked"), "{told}");
    pod.end();
    later.end();
}
