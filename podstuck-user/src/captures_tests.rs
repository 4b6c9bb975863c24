//! Checks the verdict about a pod from the state of a node with kubelet 1.36, captured 40 to 75 s after the deletion:
//! the pod's record, its mounts, the times of its directories, its control groups, and the logs. No call is seen, and
//! only the table below knows the answer.
//!
//! Files are reduced to the lines about the pod. A sample of the node, which the captures lack, is built from what
//! was done to the pod (`captures/looks.rs`).

#[path = "captures/capture.rs"]
mod capture;
#[path = "captures/looks.rs"]
mod looks;
#[path = "captures/play.rs"]
mod play;

use std::{collections::BTreeSet, fs, time::Duration};

use capture::{Capture, folder};
use play::{answer, live, words};

/// Case, first cause, and certainty.
const CASES: &[(&str, &str, &str)] = &[
    ("bind-mount-with-holder", "emptydir-bidirectional-submount", "firm"),
    ("busy", "emptydir-bidirectional-submount", "firm"),
    ("csi-driver-and-registrar-gone", "csi-driver-down", "firm"),
    ("csi-driver-stopped", "csi-unpublish-hung-lock", "firm"),
    ("csi-mount-held", "volume-held-by-host-process", "firm"),
    ("csi-volume-unknown", "csi-driver-error", "firm"),
    ("csidead-gone", "csi-driver-down", "firm"),
    ("csidead-stale", "csi-driver-down", "firm"),
    ("csidead-unreg", "csi-driver-not-registered", "firm"),
    ("csigone", "csi-driver-error", "firm"),
    ("csilost", "csi-driver-lost-publish-state", "firm"),
    ("deleted-while-kubelet-stopped", "kubelet-down", "likely"),
    ("force-deleted-held", "volume-held-by-host-process", "firm"),
    ("frozen", "cgroup-v1-frozen", "firm"),
    ("fz", "pod-finalizer", "firm"),
    ("hung", "fuse-daemon-hung", "firm"),
    ("image-volume-held-containerd-2", "image-volume-busy", "firm"),
    ("imm", "immutable-attribute", "firm"),
    ("mem", "volume-held-by-host-process", "firm"),
    ("prestop-hangs", "grace-period-or-prestop", "firm"),
    ("raw-block-held", "raw-block-volume-in-use", "firm"),
    ("rb1", "shim-rootfs-busy", "firm"),
    ("rb2", "shim-rootfs-busy", "firm"),
    ("ro", "mount-over-volume", "firm"),
    ("rootfs-and-tmpfs-held", "shim-rootfs-busy", "firm"),
    ("static-pod", "volume-held-by-host-process", "firm"),
    ("subpath-held", "volume-held-by-host-process", "firm"),
];

/// Time limit of an answer: a FUSE server must have been silent for 30 s, and is seen since the first sample.
const SOON: Duration = Duration::from_secs(32);

#[test]
fn a_late_arrival_names_what_holds_the_pod_in_each_case_that_was_captured() {
    let mut wrong = Vec::new();
    for (case, cause, certainty) in CASES {
        let capture = Capture::read(case);
        let (answer, took) = answer(&capture);
        let first = answer.causes.first();
        let verdict = first.map(|it| (it.id.as_str(), words(it.certainty), it.blocks_deletion));
        let blocks = capture.blocks();
        if verdict != Some((cause, (*certainty).to_owned(), Some(blocks))) || took > SOON {
            wrong.push(format!("{case}: {verdict:?} after {took:?}: {answer:#?}"));
        } else {
            println!("{case}: {verdict:?} after {took:?}");
        }
        assert!(first.is_none_or(|it| it.pod.as_ref().is_some_and(|pod| pod.uid == capture.uid)));
        for remedy in answer.causes.iter().flat_map(|cause| &cause.remedies) {
            let length = remedy.does.as_ref().map_or(0, |does| does.chars().count());
            let fits = if remedy.command.is_some() { 1..=100 } else { 0..=0 };
            assert!(fits.contains(&length), "{case}: {remedy:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Time limit since the first failing call or line, if a log or a call shows the fault; a FUSE server must have been
/// silent for 30 s, and a group must have been frozen for 10.
const LIVE: Duration = Duration::from_secs(15);

#[test]
fn a_run_that_was_there_before_names_the_same_cause_and_no_other_and_soon() {
    let mut wrong = Vec::new();
    for (case, cause, certainty) in CASES {
        let capture = Capture::read(case);
        let (after, others) = live(&capture, cause, certainty);
        let longest = if *case == "hung" { SOON } else { LIVE };
        if after.is_none_or(|after| after > longest) || !others.is_empty() {
            wrong.push(format!("{case}: {cause} after {after:?}, and told: {others:?}"));
        } else {
            println!("{case}: {cause} after {after:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_capture_has_its_answer() {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let texts = files.filter(|path| path.extension().is_some_and(|it| it == "txt"));
    let cases: BTreeSet<String> =
        texts.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(cases, CASES.iter().map(|(case, ..)| (*case).to_owned()).collect());
}
