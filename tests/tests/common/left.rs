//! What a lab that has ended must not leave.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use podstuck_tests::slowdown;
use serde_json::Value;

/// That no file, process, control group or loop device of a lab is left.
pub fn assert_nothing(ready: &Value) {
    let root = ready["root"].as_str().unwrap();
    assert!(!Path::new(root).exists(), "{root} is left");
    let process = format!("/proc/{}", ready["pid"]);
    assert!(!Path::new(&process).exists(), "{process} is left");
    let groups = groups_of(ready["pod_uid"].as_str().unwrap());
    assert!(groups.is_empty(), "{groups:?} are left");
    // A loop device goes when the last process with the mount does.
    for _ in 0..50 {
        if !loop_files().iter().any(|file| file.contains(root)) {
            return;
        }
        thread::sleep(Duration::from_millis(100) * slowdown());
    }
    panic!("{root} is still behind a loop device");
}

/// The control groups of a pod, in whatever hierarchy the labs use.
fn groups_of(uid: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let trees = ["", "pids", "freezer"].map(|tree| root.join(tree));
    let groups = trees.map(|tree| tree.join("podstuck-lab").join(format!("pod{uid}")));
    groups.into_iter().filter(|group| group.exists()).collect()
}

fn loop_files() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    devices.filter_map(|d| fs::read_to_string(d.path().join("loop/backing_file")).ok()).collect()
}
