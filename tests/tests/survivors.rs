//! Processes that do not end, and file systems that are full or read-only: each lab is told by its
//! own name, with the right path, pod and process, and nothing of it is left behind.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use podstuck_tests::{Running, has_loop_devices, lab, root_and_btf, watch};
use serde_json::Value;

/// A lab and who watches its pod.
struct Played {
    lab: Running,
    ready: Value,
    watcher: Running,
}

fn play(case: &str) -> Played {
    let (lab, ready) = lab(case, &[]);
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let watcher = watch(&["--pod-uid", uid, "--kubelet-root", root]);
    lab.resume();
    Played { lab, ready, watcher }
}

impl Played {
    fn finding(&mut self, id: &str) -> Value {
        self.watcher.wait_for(id, |line| line["type"] == "finding" && line["id"] == id)
    }

    /// That nothing else was found, and that the lab leaves nothing behind.
    fn finish(self, id: &str) {
        let (lines, status) = self.watcher.stop();
        assert_eq!(status.code(), Some(1));
        for line in lines.iter().filter(|line| line["type"] == "finding") {
            assert_eq!(line["id"], id, "{line:#}");
        }
        let (_, status) = self.lab.stop();
        assert_eq!(status.code(), Some(0), "the lab");
        let uid = self.ready["pod_uid"].as_str().unwrap();
        let root = self.ready["root"].as_str().unwrap();
        assert!(!Path::new(root).exists(), "{root} is left");
        assert!(groups_of(uid).is_empty(), "{:?} are left", groups_of(uid));
        let loops = fs::read_dir("/sys/block")
            .unwrap()
            .flatten()
            .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        assert!(!loops.into_iter().any(|file| file.contains(root)), "a loop device is left");
    }
}

/// The groups of a pod, in whatever hierarchy the labs use.
fn groups_of(uid: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let trees = ["", "pids", "freezer"].map(|tree| root.join(tree));
    let groups = trees.map(|tree| tree.join("podstuck-lab").join(format!("pod{uid}")));
    groups.into_iter().filter(|group| group.exists()).collect()
}

/// The processes of a pod, by the kernel's word.
fn processes_of(uid: &str) -> Vec<u64> {
    let below = |group: PathBuf| {
        let inner = fs::read_dir(&group).unwrap().flatten().map(|entry| entry.path());
        inner.filter(|path| path.is_dir()).chain([group]).collect::<Vec<_>>()
    };
    let groups = groups_of(uid).into_iter().flat_map(below);
    let pids = groups.flat_map(|group| {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        text.lines().map(|pid| pid.parse().unwrap()).collect::<Vec<u64>>()
    });
    let mut pids: Vec<u64> = pids.collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn can_make_groups() -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let tree =
        if root.join("cgroup.controllers").exists() { root.into() } else { root.join("pids") };
    let group = tree.join(format!("podstuck-test-{}", std::process::id()));
    let made = fs::create_dir(&group).and_then(|()| fs::remove_dir(&group));
    if let Err(error) = &made {
        eprintln!("skipped: no control groups: {error}");
    }
    made.is_ok()
}

fn survivor(case: &str) -> Value {
    let mut played = play(case);
    let uid = played.ready["pod_uid"].as_str().unwrap().to_owned();
    let finding = played.finding(case);
    assert_eq!(finding["pod"]["uid"], uid.as_str());
    assert_eq!(finding["blocks_deletion"], true);
    let path = finding["call"]["path"].as_str().unwrap();
    assert!(groups_of(&uid).iter().any(|group| Path::new(path).starts_with(group)), "{path}");
    let pid = finding["actor"]["pid"].as_u64().unwrap();
    assert_eq!(processes_of(&uid), [pid]);
    played.finish(case);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    finding
}

#[test]
fn dstate_process() {
    if !root_and_btf() || !can_make_groups() || !has_loop_devices() {
        return;
    }
    let finding = survivor("dstate-process");
    assert_eq!(finding["actor"]["comm"], "touch");
    assert!(
        finding["explanation"].as_str().unwrap().contains("a frozen file system"),
        "{finding:#}"
    );
}

#[test]
fn cgroup_v1_frozen() {
    let has_freezer = Path::new("/sys/fs/cgroup/freezer/cgroup.procs").exists();
    if !root_and_btf() || !can_make_groups() || !has_freezer {
        eprintln!("skipped: no freezer of version 1, or one of the above");
        return;
    }
    let finding = survivor("cgroup-v1-frozen");
    let thaw = finding["remedies"][0]["command"].as_str().unwrap();
    assert!(thaw.starts_with("echo THAWED > /sys/fs/cgroup/freezer/podstuck-lab/pod"), "{thaw}");
}

#[test]
fn cgroup_populated_leftover() {
    if !root_and_btf() || !can_make_groups() {
        return;
    }
    assert_eq!(survivor("cgroup-populated-leftover")["actor"]["comm"], "sleep");
}

#[test]
fn the_remedy_for_a_leftover_ends_it() {
    if !root_and_btf() || !can_make_groups() {
        return;
    }
    let mut played = play("cgroup-populated-leftover");
    let finding = played.finding("cgroup-populated-leftover");
    let kill = finding["remedies"][1]["command"].as_str().unwrap();
    assert!(Command::new("sh").args(["-c", kill]).status().unwrap().success(), "{kill}");
    played.watcher.wait_for("the end", |line| line["state"] == "cleared");
    played.finish("cgroup-populated-leftover");
}

#[test]
fn node_fs_readonly() {
    if !root_and_btf() {
        return;
    }
    let mut played = play("node-fs-readonly");
    let finding = played.finding("node-fs-readonly");
    let root = played.ready["kubelet_root"].as_str().unwrap();
    let uid = played.ready["pod_uid"].as_str().unwrap();
    assert_eq!(finding["pod"]["uid"], uid);
    assert_eq!(finding["actor"]["component"], "kubelet");
    assert_eq!(finding["call"]["errno_name"], "EROFS");
    let path = finding["call"]["path"].as_str().unwrap();
    assert!(path.starts_with(&format!("{root}/pods/{uid}")), "{path}");
    let facts = finding["evidence"].as_array().unwrap();
    let read_only = format!("the file system at {root} is read-only");
    assert!(facts.iter().any(|f| f["fact"].as_str().unwrap().contains(&read_only)), "{facts:#?}");
    played.finish("node-fs-readonly");
}

#[test]
fn disk_full_runtime() {
    if !root_and_btf() {
        return;
    }
    let mut played = play("disk-full-runtime");
    let finding = played.finding("disk-full-runtime");
    assert_eq!(finding["call"]["path"], played.ready["kubelet_root"]);
    assert_eq!(finding["blocks_deletion"], Value::Null);
    assert!(finding["confidence"].as_f64().unwrap() < 0.8, "it is likely, and no more");
    played.finish("disk-full-runtime");
}
