//! Of each cause that gives a command: that a test runs it as printed, or why none does. Of each that gives
//! advice: what follows it, if anything does. The remedies of a cause are read from its findings in the
//! snapshots of the engine's scenarios and of the labs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/obeyed.rs"]
mod obeyed;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use obeyed::{AFTER_THE_FIRST, CURED, FOLLOWED, RELEASED, SECOND_CURES, SECOND_RELEASES};
use podstuck_engine::{
    catalogue,
    cause::{CauseId, TriedWith},
};
use podstuck_lab::find;
use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const LABS: &str = "tests/tests/snapshots";
const SNAPSHOTS: [&str; 2] = ["podstuck-user/engine/src/scenarios/snapshots", LABS];

/// Causes whose commands no test runs.
const NOT_RUN: &[(&str, &str)] = &[
    ("apparmor-signal-denied", "takes a kernel with AppArmor, which no test has"),
    (
        "fanotify-listener-hung",
        "late/reports.rs runs it as printed, on a real listener that answers no more",
    ),
    (
        "kernel-lock-held",
        "hung/kernel_lock.rs runs it as printed, on a real process that holds the lock",
    ),
    ("zombie-not-reaped", "runtimes/pid_namespace.rs runs it as printed, on a real container"),
    ("tracer-keeps-process", "runtimes/pid_namespace.rs runs it as printed, on a real container"),
    ("runtime-socket-gone", "restarts a service of the node, which no test may"),
    ("subvolume-readonly", "late/reports.rs runs it as printed, on a real subvolume of btrfs"),
    (
        "container-not-killed",
        "late/living.rs runs it as printed, on a real process of a runtime that has only a log",
    ),
    (
        "cni-teardown-failed",
        "removes a checkpoint of dockershim or cri-dockerd, which no test has: docs/reports.md runs it, as printed, on a \
         played one (kubernetes#44307)",
    ),
    ("csi-driver-error", "only its last resort: the unmount of csi-driver-lost-publish-state"),
    ("device-still-referenced", "takes a volume that kubelet has staged, and its log of it"),
    ("disk-full-runtime", "removes images and journals of the machine that the tests run on"),
    (
        "docker-containerd-state-desync",
        "runtimes/out_of_step.rs runs them as printed, with real daemons, in both directions",
    ),
    ("docker-log-driver-blocks", "restarts a service of the node, which no test may"),
    (
        "flexvolume-driver-error",
        "late/reports.rs runs it as printed, on a real mount of a kubelet that has only a log",
    ),
    (
        "image-volume-busy",
        "runtimes/image_volume.rs runs it as printed, where containerd 2.1 or later is installed",
    ),
    (
        "runtime-device-busy",
        "late/sandbox.rs runs it as printed, on a real device of a runtime that has only a log",
    ),
    ("mirror-pod-deleted", "takes an API server with the mirror pod of a kubelet's static pod"),
    (
        "nfs-server-unreachable",
        "late/nfs.rs runs it as printed, with a real server, where the kernel has one",
    ),
    (
        "kubelet-root-symlink",
        "paths/linked_root.rs runs it, of a kubelet that is played by the test",
    ),
    ("netns-busy", "late/sandbox.rs runs them on real mounts, of a runtime that has only a log"),
    (
        "nfs-stale-handle",
        "late/nfs.rs runs it as printed, with a real server, where the kernel has one",
    ),
    (
        "orphaned-pod-dir",
        "the lab's kubelet tries for as long as the lab lasts, so that its end shows no release",
    ),
    ("kubelet-step-fails", FORCED),
    ("image-pull-pending", "restarts the kubelet of the machine that the tests run on"),
    ("kubelet-missed-deletion", "restarts the kubelet of the machine that the tests run on"),
    ("pod-never-started", FORCED),
    (
        "poststart-hook-pending",
        "late/kubelets_part.rs runs it as printed, on a real process of a kubelet that has only a log",
    ),
    ("raw-block-volume-in-use", "takes a raw block volume that kubelet has mapped"),
    (
        "runtime-command-hung",
        "late/waits.rs runs it as printed, on a real plugin of a runtime that is a shell",
    ),
    ("runtime-down", "starts a service of the machine that the tests run on"),
    (
        "sandbox-not-stopped",
        "late/living.rs runs them as printed, on real processes of a runtime that has only a log",
    ),
    (
        "sandbox-shm-busy",
        "late/sandbox.rs runs them on real mounts, of a runtime that has only a log",
    ),
    ("slice-removal-times-out", "takes a systemd that has the slice of a pod"),
    ("shim-or-containerd-state-lost", "restarts a service of the machine that the tests run on"),
    (
        "volume-command-hung",
        "late/waits.rs runs it as printed, on a real program of a kubelet that is a shell",
    ),
    ("subpath-busy", "the unmount of subpath-source-deleted, held by somebody who is not found"),
];

const FORCED: &str = "deletes a pod's record: the tests that run commands have no API server";

/// Causes whose advice nothing follows.
const NOT_FOLLOWED: &[&str] = &[
    "cephfs-evicted",
    "device-not-responding",
    "device-still-referenced",
    "docker-log-driver-blocks",
    "efs-stunnel-dead",
    "flexvolume-driver-error",
    "gpu-driver-dstate",
    "image-pull-pending",
    "kernel-lock-held",
    "kubelet-down",
    "kubelet-root-symlink",
    "mirror-pod-deleted",
    "mount-table-storm",
    "nfs-server-unreachable",
    "oci-hook-fails",
    "raw-block-volume-in-use",
    "runtime-command-hung",
    "runtime-handler-gone",
    "slice-removal-times-out",
    "smb-host-down",
    "status-update-refused",
    "umount-kernel-hang",
    "volume-command-hung",
];

/// In what is said in the place of a command that would not be safe.
const WITHHELD: &str = "no command is given, because";

#[derive(Default)]
struct Given {
    /// A command that does not only show something.
    command: bool,
    advice: bool,
}

#[test]
fn each_command_is_run_by_a_test_or_it_is_said_why_not() {
    let given = given();
    let run = run();
    let commands = given.iter().filter(|(_, given)| given.command).map(|(id, _)| id.as_str());
    let left: BTreeSet<&str> = commands.filter(|id| !run.contains(id)).collect();
    let listed: BTreeSet<&str> = NOT_RUN.iter().map(|(id, _)| *id).collect();
    let (unlisted, run): (Vec<_>, Vec<_>) =
        (left.difference(&listed).collect(), listed.difference(&left).collect());
    assert!(
        unlisted.is_empty(),
        "common/obeyed.rs needs the lab, or NOT_RUN the reason, of: {unlisted:?}"
    );
    assert!(
        run.is_empty(),
        "a test runs a command of these, or they give none; they go from NOT_RUN: {run:?}"
    );
    assert!(NOT_RUN.iter().all(|(_, why)| !why.is_empty()));
}

/// The second command of a finding, too.
#[test]
fn each_command_of_a_lab_is_run_in_a_lab_of_its_own() {
    for entry in fs::read_dir(Path::new(WORKSPACE).join(LABS)).unwrap() {
        let path = entry.unwrap().path();
        let lab = path.file_stem().unwrap().to_str().unwrap();
        let found = findings_in(&path);
        let is_excused = |id: &Value| NOT_RUN.iter().any(|(not_run, _)| id == not_run);
        let found = found.iter().filter(|finding| !is_excused(&finding["id"]));
        let commands = found.map(|finding| remedies(finding).filter(|it| acts(it)).count()).max();
        let first = RELEASED.iter().chain(CURED);
        let second = SECOND_RELEASES.iter().chain(SECOND_CURES).chain(AFTER_THE_FIRST);
        // Its first is run as it is before its second.
        let before = usize::from(lab == "removal-crosses-mount");
        let run = first.chain(second).filter(|run| **run == lab).count() + before;
        let commands = commands.unwrap_or_default();
        assert_eq!(
            run, commands,
            "{lab}: how often common/obeyed.rs names it, and its finding's commands"
        );
    }
}

#[test]
fn each_advice_is_followed_by_a_fixture_or_it_is_listed() {
    let given = given();
    let labs = FOLLOWED.iter().filter_map(|lab| cause(lab));
    let followed: BTreeSet<&str> = labs.chain(on_node(|case| case.contains("advised: "))).collect();
    let advice = given.iter().filter(|(_, given)| given.advice).map(|(id, _)| id.as_str());
    let left: BTreeSet<&str> = advice.filter(|id| !followed.contains(id)).collect();
    let listed: BTreeSet<&str> = NOT_FOLLOWED.iter().copied().collect();
    let (unlisted, followed): (Vec<_>, Vec<_>) =
        (left.difference(&listed).collect(), listed.difference(&left).collect());
    assert!(
        unlisted.is_empty(),
        "FOLLOWED of common/obeyed.rs needs the lab, or NOT_FOLLOWED the cause: {unlisted:?}"
    );
    assert!(
        followed.is_empty(),
        "the advice of these is followed, or they give no advice; they go from NOT_FOLLOWED: {followed:?}"
    );
}

/// A cause without a finding here could give anything.
#[test]
fn all_causes_are_reported_somewhere() {
    let given = given();
    // What the API server shows has tests of its own, which run its commands: podstuck-user/cluster/tests/cluster.rs.
    let of_node = catalogue::all().filter(|cause| !cause.tried.contains(&TriedWith::Objects));
    let silent: Vec<CauseId> = of_node.map(|cause| cause.id).collect();
    let silent: Vec<_> = silent.iter().filter(|id| !given.contains_key(id.as_str())).collect();
    assert!(
        silent.is_empty(),
        "no scenario of the engine and no snapshot of a lab tells these: {silent:?}"
    );
}

/// By cause.
fn given() -> BTreeMap<String, Given> {
    let mut given = BTreeMap::<String, Given>::new();
    for finding in SNAPSHOTS.iter().flat_map(|folder| findings(&Path::new(WORKSPACE).join(folder)))
    {
        let id = finding["id"].as_str().unwrap();
        let of_cause = given.entry(id.to_owned()).or_default();
        for remedy in remedies(&finding) {
            of_cause.command |= acts(remedy);
            // One that only says why there is no command is not there to be followed.
            let withheld = remedy["advice"].as_str().is_some_and(|text| text.contains(WITHHELD));
            of_cause.advice |= remedy["kind"] == "advice" && !withheld;
        }
    }
    given
}

fn remedies(finding: &Value) -> impl Iterator<Item = &Value> {
    finding["remedies"].as_array().into_iter().flatten()
}

/// Whether it is a command that does not only show something.
fn acts(remedy: &Value) -> bool {
    remedy["kind"] == "command" && !remedy["risk"].as_str().unwrap().starts_with("none")
}

fn findings(folder: &Path) -> Vec<Value> {
    fs::read_dir(folder).unwrap().flat_map(|entry| findings_in(&entry.unwrap().path())).collect()
}

/// A scenario's snapshot has one on a line, a lab's is a list.
fn findings_in(snapshot: &Path) -> Vec<Value> {
    let text = fs::read_to_string(snapshot).unwrap();
    let text = text.splitn(3, "---\n").nth(2).unwrap();
    if text.starts_with('[') {
        return serde_json::from_str(text).unwrap();
    }
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Of a lab.
fn cause(lab: &str) -> Option<&'static str> {
    find(lab).unwrap().cause.map(CauseId::as_str)
}

/// Causes whose command a test runs as printed: in a lab, with a runtime, or on a node.
fn run() -> BTreeSet<&'static str> {
    let labs = RELEASED.iter().chain(CURED).filter_map(|lab| cause(lab));
    // A test that obeys its finding.
    let tests = include_str!("runtimes.rs").split("#[test]").filter(|test| test.contains("obey(&"));
    let runtimes = tests.filter_map(|test| named(test, "finding(&mut watch, \""));
    // A case that no other end is given for.
    let node = on_node(|case| !case.contains("end: "));
    let run: BTreeSet<&str> = labs.chain(runtimes).chain(node).collect();
    assert!(
        ["removal-crosses-mount", "emptydir-bidirectional-submount"]
            .iter()
            .all(|id| run.contains(id))
    );
    run
}

/// Of those cases on a node.
fn on_node(which: impl Fn(&&str) -> bool) -> impl Iterator<Item = &'static str> {
    let files = [include_str!("on_node/cases.rs"), include_str!("on_node/troubles.rs")];
    let cases = files.into_iter().flat_map(|file| file.split("    Case {").skip(1));
    cases.filter(which).filter_map(|case| named(case, "cause: \""))
}

/// The word after another one.
fn named<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split('"').next()
}
