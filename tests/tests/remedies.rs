//! The printed way out, tried as printed: it ends what keeps the pod, the finding is over, and what shows that
//! it worked says so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use podstuck_lab::find;
use podstuck_tests::{lab_if_possible, root_and_btf, slowdown, watch};
use serde_json::Value;

/// Labs whose pod goes within a minute once the first command of the finding has run. The others end with advice,
/// or with a command that stops a loss or releases a device, and no pod.
const RELEASED: &[&str] = &[
    "csi-driver-lost-publish-state",
    "csi-driver-lost-publish-state-silent",
    "nested-mount-under-volume",
    "mount-over-volume",
    "volume-held-by-host-process",
    "volume-held-by-hosttocontainer-agent",
    "swapfile-active",
    "fuse-daemon-hung",
    "fuse-daemon-dead",
    "immutable-attribute",
    "append-only-attribute",
    "data-under-mountpoint",
    "node-fs-readonly",
    "cgroup-populated-leftover",
    "cgroup-v1-frozen",
    "filesystem-frozen",
    "subpath-source-deleted",
    "writer-still-alive",
];

/// How many are played at a time: they mostly wait.
const AT_A_TIME: usize = 3;

fn main() {
    let threads = if slowdown() == 1 { AT_A_TIME } else { 1 };
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::from_args() };
    let trials =
        RELEASED.iter().map(|case| Trial::ignorable_test(case.replace('-', "_"), || release(case)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Plays a case until its remedy was tried, its finding is over, and the pod is gone.
fn release(case: &str) -> Result<Completion, Failed> {
    if let Err(reason) = root_and_btf() {
        return Ok(Completion::ignored_with(reason));
    }
    let Some((mut lab, ready)) = lab_if_possible(case, &[]) else {
        return Ok(Completion::ignored_with("this machine lacks what it needs"));
    };
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let options = find(case).unwrap().watch_options;
    let mut pod = watch(&[&["--pod-uid", uid, "--kubelet-root", root], options].concat());
    lab.resume();
    let found = pod.wait_for("finding with a way out", |line| remedy(line).is_some());
    let remedy = remedy(&found).unwrap();
    let command = remedy["command"].as_str().unwrap();
    run(command)?;
    let verify = remedy["verify"].as_str().filter(|command| !command.starts_with("kubectl"));
    if let Some(verify) = verify {
        run(verify)?;
    }
    let cleared = pod.wait_for("cleared", |line| line["state"] == "cleared");
    assert_eq!((&cleared["id"], &cleared["pod"]["uid"]), (&found["id"], &uid.into()), "{case}");
    let tally: Value = lab.wait_for("tally", |line| line["calls"].is_object());
    assert_eq!(tally["pods_removed"], 1, "{tally:#} after {command}");
    Ok(Completion::Completed)
}

/// The first that does not only show something.
fn remedy(line: &Value) -> Option<&Value> {
    let mut remedies = line["remedies"].as_array()?.iter();
    remedies.find(|remedy| {
        remedy["kind"] == "command" && !remedy["risk"].as_str().unwrap().starts_with("none")
    })
}

fn run(command: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    if status.success() { Ok(()) } else { Err(format!("{status} of {command}")) }
}
