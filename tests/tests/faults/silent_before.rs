//! A disk that does not answer already when the tool is started: below kubelet's own directory, and below its logs.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use podstuck_tests::{of_type, podstuck, requires, root_and_btf, slowdown, summary, watch};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use serde_json::{Value, json};

use crate::{
    silent_disks::{Disk, Silence, Suspended, device_mapper, on_device_mapper, on_fuse},
    stuck_pod::StuckPod,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
/// A command ends within this: usually within some seconds.
const END: Duration = Duration::from_secs(40);
const FILES: u32 = 50;

/// Helpers that one run may lose to one server: the first, and those that try again after 2, 4 and 8 s.
const HUNG: usize = 4;

/// What it says until it ends by itself. However many directories a server has, it is waited for once.
fn answer(command: &str, options: &[&str]) -> (Vec<Value>, Option<i32>) {
    let (out, log) = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap()).into();
    let mut tool = Command::new(podstuck());
    let mut tool = tool
        .args([command, "--output", "json", "-v"])
        .args(options)
        .stdout(out.reopen().unwrap())
        .stderr(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(out.path()).unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = tool.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > END * slowdown() {
            tool.kill().unwrap();
            panic!("{command} does not end: {}", said());
        }
        thread::sleep(Duration::from_millis(20));
    };
    let log = fs::read_to_string(log.path()).unwrap();
    let hung = log.matches(" hangs at ").count();
    println!("measured: {command} took {:.1?}, {hung} helpers hung", begun.elapsed());
    assert!(hung > 0 && hung <= HUNG, "{log}");
    let lines = said().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, status.code())
}

/// A kubelet's directory with a pod that is known by nothing else.
fn kubelet_root(disk: &dyn Disk) -> String {
    let root = disk.at().join("var/lib/kubelet");
    fs::create_dir_all(root.join("pods").join(UID)).unwrap();
    fs::create_dir_all(disk.at().join("var/log/pods")).unwrap();
    root.to_str().unwrap().into()
}

fn degraded(lines: &[Value]) -> String {
    summary(lines)["completeness"]["degraded"].to_string()
}

fn below_kubelet(disk: &dyn Disk) {
    let root = kubelet_root(disk);
    let pod = StuckPod::build();
    let silence = Silence::of(disk);
    let (checks, status) = answer("doctor", &["--kubelet-root", &root]);
    let check = of_type(&checks, "check").into_iter().find(|check| check["name"] == "kubelet root");
    assert_eq!(check.unwrap()["ok"], false, "{checks:#?}");
    assert_eq!(status, Some(0), "{checks:#?}");

    // It cannot be said that there is no such pod.
    let wanted = ["--kubelet-root", &root, "--pod-uid", UID, "--timeout", "15s"];
    let (lines, status) = answer("diagnose", &wanted);
    assert!(degraded(&lines).contains(&root), "{lines:#?}");
    let diagnosis = of_type(&lines, "diagnosis")[0];
    assert_eq!(diagnosis["stages"], json!([]), "{lines:#?}");
    assert!(diagnosis["notes"].to_string().contains("cannot be read"), "{lines:#?}");
    assert_eq!(status, Some(5), "{lines:#?}");

    // Another pod's cause is found.
    let mut watching = watch(&["--kubelet-root", pod.root(), "--kubelet-root", &root]);
    pod.start();
    pod.cause_is_found(&mut watching);
    let (lines, _) = watching.stop();
    assert!(degraded(&lines).contains(&root), "{lines:#?}");
    drop(silence);
    pod.end();
}

#[test]
fn a_stopped_fuse_server_below_kubelets_directory_keeps_no_start_back() {
    on_fuse(below_kubelet);
}

#[test]
fn a_suspended_disk_below_kubelets_directory_keeps_no_start_back() {
    on_device_mapper(below_kubelet);
}

fn from_memory() -> Result<(), &'static str> {
    let (flags, mode, memory) = (OFlags::PATH, Mode::empty(), ResolveFlags::CACHED);
    let opened = openat2(CWD, "/", flags, mode, memory);
    opened.map(drop).map_err(|_| "no RESOLVE_CACHED (Linux 5.12)")
}

/// A disk that is busy beyond its rate completes nothing for seconds, either.
#[test]
fn what_is_deleted_on_a_disk_that_was_suspended_before_is_counted_from_the_first_call_on() {
    requires!(root_and_btf(), device_mapper(), from_memory());
    let at = tempfile::tempdir().unwrap();
    let disk = Suspended::mount(at.path());
    let root = kubelet_root(&disk);
    let data = Path::new(&root).join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/data");
    fs::create_dir_all(&data).unwrap();
    for number in 0..FILES {
        fs::write(data.join(number.to_string()), "").unwrap();
    }
    // Opened, so that it stays in memory.
    let _pods = fs::File::open(Path::new(&root).join("pods")).unwrap();
    let silence = Silence::of(&disk);
    let watching = watch(&["--kubelet-root", &root, "--pod-uid", UID]);
    drop(silence);
    // By a descriptor: a path would say it all.
    fs::remove_dir_all(&data).unwrap();
    let (lines, _) = watching.stop();
    assert_eq!(summary(&lines)["by_outcome"]["unlinkat"]["ok"], FILES, "{lines:#?}");
}
