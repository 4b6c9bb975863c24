//! A disk that does not answer: below the tool's own program, and below what it writes. With a
//! FUSE server that is stopped, natively; and with a disk that the kernel waits for, in a guest.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use podstuck_tests::{
    Running, of_type, podstuck, replay, settle, slowdown, started_by, summary, trace,
    wait_until_gone, watch,
};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::{
    silent_disks::{Disk, Silence, on_device_mapper, on_fuse},
    stuck_pod::StuckPod,
};

/// A run ends within this, whatever its disks do: usually within two seconds.
const END: Duration = Duration::from_secs(20);

/// Asks it to end, while the disk hangs.
pub(crate) fn ends(mut watch: Running) -> (Vec<Value>, ExitStatus) {
    watch.signal(Signal::SIGINT);
    let asked = Instant::now();
    while !watch.has_ended() {
        if asked.elapsed() > END * slowdown() {
            watch.signal(Signal::SIGKILL);
            panic!("it does not end: {:#?}", watch.so_far());
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("measured: it ended {:.1?} after it was asked to", asked.elapsed());
    watch.finish()
}

/// What was found, and what is found next, whatever the disk does.
pub(crate) fn next_attempt(pod: &StuckPod, found: &Value, watch: &mut Running) {
    let count = found["count"].as_u64();
    let later = |line: &Value| pod.is_found(line) && line["count"].as_u64() > count;
    watch.wait_for("an update", later);
}

pub(crate) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// A copy of the tool of which nothing is in memory: what of it is not kept there from its start on has to be read.
fn on_disk(disk: &dyn Disk) -> PathBuf {
    let program = disk.at().join("podstuck");
    fs::copy(podstuck(), &program).unwrap();
    let file = File::open(&program).unwrap();
    file.sync_all().unwrap();
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
    program
}

fn below_the_program(disk: &dyn Disk) {
    let program = on_disk(disk);
    let pod = StuckPod::build();
    let mut watch = trace(&program, "watch", &["--kubelet-root", pod.root()]);
    let silence = Silence::of(disk);
    pod.start();
    let found = pod.cause_is_found(&mut watch);
    next_attempt(&pod, &found, &mut watch);
    let (lines, status) = ends(watch);
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    summary(&lines);
    drop(silence);
    pod.end();
}

fn below_the_program_of_one_answer(disk: &dyn Disk) {
    let program = on_disk(disk);
    let pod = StuckPod::build();
    let options = ["--kubelet-root", pod.root(), "--pod-uid", pod.uid(), "--timeout", "60s"];
    let diagnose = trace(&program, "diagnose", &options);
    let silence = Silence::of(disk);
    pod.start();
    let (lines, status) = diagnose.finish();
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    let diagnosis = of_type(&lines, "diagnosis");
    assert_eq!(diagnosis[0]["causes"][0]["id"], "immutable-attribute", "{lines:#?}");
    drop(silence);
    pod.end();
}

fn below_export_and_recording(disk: &dyn Disk) {
    let (export, recording) = (disk.at().join("export"), disk.at().join("recording"));
    let pod = StuckPod::build();
    let options = ["--kubelet-root", pod.root(), "--export", export.to_str().unwrap()];
    let record = ["--record", recording.to_str().unwrap()];
    let mut watch = watch(&[&options[..], &record].concat());
    pod.start();
    let found = pod.cause_is_found(&mut watch);
    // Written down by now: recordings are taken to the disk four times a second.
    settle();
    let mut writers = started_by(watch.pid());
    writers.retain(|(_, name)| matches!(name.as_str(), "exporter\n" | "recorder\n"));
    assert_eq!(writers.len(), 2);
    let silence = Silence::of(disk);
    next_attempt(&pod, &found, &mut watch);
    let (lines, status) = ends(watch);
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    // Who still writes is named.
    let degraded = summary(&lines)["completeness"]["degraded"].to_string();
    let (exporter, _) = writers.iter().find(|(_, name)| name == "exporter\n").unwrap();
    assert!(degraded.contains(&format!("process {exporter} of podstuck")), "{degraded}");
    drop(silence);
    writers.iter().for_each(|(pid, _)| wait_until_gone(*pid));
    pod.end();
    // What was reported before is there, and each line is whole.
    let text = fs::read_to_string(export.join("findings.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_found = |line: &Value| line["id"] == found["id"] && line["pod"] == found["pod"];
    assert!(text.ends_with('\n') && lines.iter().any(is_found), "{text}");
    let (again, _) = replay(&recording, &[]);
    assert!(of_type(&again, "finding").into_iter().any(is_found), "{again:#?}");
}

#[test]
fn a_stopped_fuse_server_below_the_program_keeps_nothing_back() {
    on_fuse(below_the_program);
}

#[test]
fn a_stopped_fuse_server_below_the_program_keeps_no_diagnosis_back() {
    on_fuse(below_the_program_of_one_answer);
}

#[test]
fn a_stopped_fuse_server_below_export_and_recording_loses_nothing_that_was_reported() {
    on_fuse(below_export_and_recording);
}

#[test]
fn a_suspended_disk_below_the_program_keeps_nothing_back() {
    on_device_mapper(below_the_program);
}

#[test]
fn a_suspended_disk_below_export_and_recording_loses_nothing_that_was_reported() {
    on_device_mapper(below_export_and_recording);
}
