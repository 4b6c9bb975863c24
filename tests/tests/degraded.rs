//! What a part of the tool cannot do any more stands beside the findings that are made by it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/stuck_pod.rs"]
mod stuck_pod;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{Running, empty_dir, requires, root_and_btf, summary, watch};
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

/// A file system on a disk that can be suspended, as device-mapper does it for multipath and snapshots.
struct Suspendable {
    top: tempfile::TempDir,
    device: String,
    disk: String,
}

impl Suspendable {
    fn mount() -> Self {
        let top = tempfile::tempdir().unwrap();
        let (image, at) = (top.path().join("image"), top.path().join("at"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let disk = said(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        let device = format!("podstuck-{}", std::process::id());
        let this = Self { top, device, disk };
        let table = format!("0 {} linear {} 0", (16 << 20) / 512, this.disk);
        said(Command::new("dmsetup").args(["create", &this.device, "--table", &table]));
        let node = format!("/dev/mapper/{}", this.device);
        said(Command::new("mkfs.ext4").args(["-q", &node]));
        said(Command::new("mount").arg(&node).arg(&at));
        this
    }

    fn at(&self) -> PathBuf {
        self.top.path().join("at")
    }

    fn suspend(&self) {
        // What is read from now on waits; nothing is written before.
        said(Command::new("dmsetup").args(["suspend", "--nolockfs", "--noflush", &self.device]));
    }

    fn resume(&self) {
        said(Command::new("dmsetup").args(["resume", &self.device]));
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        let run = |command: &mut Command| drop(command.output());
        run(Command::new("dmsetup").args(["resume", &self.device]));
        run(Command::new("umount").arg(self.at()));
        run(Command::new("dmsetup").args(["remove", "--retry", &self.device]));
        run(Command::new("losetup").args(["--detach", &self.disk]));
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn device_mapper() -> Result<(), &'static str> {
    let there = Command::new("dmsetup").arg("targets").output();
    match there {
        Ok(targets) if targets.status.success() => Ok(()),
        _ => Err("no device-mapper"),
    }
}

/// What the summary of a watch of half a dozen looks says of what could not be done.
fn degraded_of(watching: Running) -> String {
    thread::sleep(Duration::from_secs(6));
    let (lines, _) = watching.stop();
    summary(&lines)["completeness"]["degraded"].to_string()
}

#[test]
fn nobody_is_sent_to_a_disk_that_is_suspended() {
    requires!(root_and_btf());
    requires!(device_mapper());
    let disk = Suspendable::mount();
    let root = disk.at().join("kubelet");
    empty_dir(&root);
    let of = |root: &Path| watch(&["--kubelet-root", root.to_str().unwrap()]);
    let told = degraded_of(of(&root));
    assert!(!told.contains("is not looked at"), "{told}");
    said(Command::new("sync").arg("--file-system").arg(&root));
    disk.suspend();
    let told = degraded_of(of(&root));
    disk.resume();
    assert!(told.contains("is not looked at") && told.contains("dm/suspended"), "{told}");
    assert!(!told.contains("does not come back"), "{told}");
}
