//! What a part of the tool cannot do any more stands beside the findings that are made by it; and no helper is sent
//! where nothing answers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/stuck.rs"]
#[expect(dead_code, reason = "each uses a part of it")]
mod stuck;
#[path = "common/stuck_pod.rs"]
#[expect(dead_code, reason = "each uses a part of it")]
mod stuck_pod;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{requires, root_and_btf, slowdown, summary, watch};
use procfs::process::Process;
use serde_json::Value;
use stuck::Lab;
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
    let degraded = summary(&lines)["completeness"]["degraded"].to_string();
    assert!(degraded.contains("no helper can be asked"), "{degraded}");
    pod.end();
    later.end();
}

/// What a watch that searches for pods where the mount of this lab is says that it could not do.
fn degraded_below(lab: &Lab, path: &str) -> String {
    thread::sleep(Duration::from_secs(1) * slowdown());
    let watching = watch(&["--kubelet-root", path]);
    // Three looks.
    thread::sleep(Duration::from_secs(6) * slowdown());
    let (lines, _) = watching.stop();
    let degraded = summary(&lines)["completeness"]["degraded"].to_string();
    assert!(!degraded.contains("of podstuck hangs at"), "{}: {degraded}", lab.text("lab"));
    degraded
}

/// Waits until a request to the server of the FUSE file system there stays unanswered for a second: the one
/// that begins the connection is among them, and is answered.
fn until_requests_wait(lab: &Lab, point: &Path) {
    let (mut looks, end) = (0, Instant::now() + Duration::from_secs(60) * slowdown());
    while looks < 20 {
        assert!(Instant::now() < end, "nobody waits at {}, or it is not shown", point.display());
        thread::sleep(Duration::from_millis(50));
        looks = if requests_wait(lab, point) { looks + 1 } else { 0 };
    }
}

/// Whether one is unanswered now, as the lab sees it.
fn requests_wait(lab: &Lab, point: &Path) -> bool {
    let pid = lab.ready["pid"].as_i64().unwrap();
    let mounts = Process::new(i32::try_from(pid).unwrap()).unwrap().mountinfo().unwrap();
    let Some(mount) = mounts.iter().find(|mount| mount.mount_point == point) else { return false };
    let number = mount.majmin.split_once(':').unwrap().1;
    let waiting = format!("/sys/fs/fuse/connections/{number}/waiting");
    fs::read_to_string(waiting).is_ok_and(|requests| requests.trim() != "0")
}

#[test]
fn no_helper_is_sent_to_a_server_that_does_not_answer() {
    requires!(root_and_btf());
    let lab = Lab::build("fuse-daemon-hung");
    lab.start();
    let path = format!("{}/m", lab.text("path"));
    until_requests_wait(&lab, Path::new(&path));
    let degraded = degraded_below(&lab, &path);
    assert!(
        degraded.contains("is not examined") && degraded.contains("requests unanswered"),
        "{degraded}"
    );
    lab.end();
}

/// Writes what is in memory only, and waits for it.
struct Sync(Child);

impl Sync {
    fn begin(lab: &Lab) -> Self {
        let mut command = Command::new("nsenter");
        command.args(["--target", &lab.ready["pid"].to_string(), "--mount"]);
        command.args(["sync", "--file-system", lab.text("path")]);
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        // It ends when the disk does.
        let _ = self.0.kill();
    }
}

#[test]
fn no_helper_is_sent_to_a_disk_that_completes_nothing() {
    requires!(root_and_btf());
    let lab = Lab::build("umount-kernel-hang");
    let sync = Sync::begin(&lab);
    let degraded = degraded_below(&lab, lab.text("path"));
    assert!(
        degraded.contains("is not examined") && degraded.contains("completed none"),
        "{degraded}"
    );
    drop(sync);
    lab.end();
}
