//! One of several kubelet roots does not answer, and nothing shows that its file system is dead: a listener of
//! fanotify(7) holds permission events and does not read them, as a security agent that has stalled. It is named, and the
//! others are read.

use std::{
    ffi::CString,
    fs,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::libc;
use podstuck_tests::{of_type, podstuck, requires, root_and_btf, summary, watch};
use serde_json::Value;

use crate::stuck_pod::StuckPod;

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

/// A process that opens this directory waits until the returned descriptor is closed.
fn stalled_over(directory: &Path) -> Option<OwnedFd> {
    let (class, flags) = (libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY);
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::fanotify_init(class, flags.cast_unsigned()) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel has just made it, and nothing else has it.
    let listener = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = CString::new(directory.as_os_str().as_bytes()).unwrap();
    let mask = libc::FAN_OPEN_PERM | libc::FAN_ONDIR;
    let (fd, add) = (listener.as_raw_fd(), libc::FAN_MARK_ADD);
    // SAFETY: the path ends with a zero and lives until the call has returned.
    let marked = unsafe { libc::fanotify_mark(fd, add, mask, libc::AT_FDCWD, path.as_ptr()) };
    (marked == 0).then_some(listener)
}

fn permission_events() -> Result<(), &'static str> {
    let at = tempfile::tempdir().unwrap();
    let there = stalled_over(at.path());
    there.map(drop).ok_or("no fanotify permission events (CONFIG_FANOTIFY_ACCESS_PERMISSIONS)")
}

/// With a pod that has a volume.
fn kubelet_root() -> tempfile::TempDir {
    let root = tempfile::tempdir_in("/run").unwrap();
    let pod = root.path().join("pods").join(UID);
    fs::create_dir_all(pod.join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    root
}

fn degraded(lines: &[Value]) -> Vec<String> {
    let all = summary(lines)["completeness"]["degraded"].as_array().unwrap().clone();
    all.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_root_that_does_not_answer_is_named_and_hides_no_other() {
    requires!(root_and_btf(), permission_events());
    let (silent, other) = (tempfile::tempdir_in("/run").unwrap(), kubelet_root());
    let pods = silent.path().join("pods");
    fs::create_dir(&pods).unwrap();
    let pod = StuckPod::build();
    let stalled = stalled_over(&pods).unwrap();
    let [silent, other] = [silent.path(), other.path()].map(|path| path.to_str().unwrap());

    // The one that does not answer comes first: it is believed more than the others.
    let roots = ["--kubelet-root", silent, "--kubelet-root", pod.root(), "--kubelet-root", other];
    let mut watching = watch(&roots);
    pod.start();
    pod.cause_is_found(&mut watching);
    let (lines, _) = watching.stop();
    let missing = degraded(&lines);
    assert!(missing.iter().any(|line| line.starts_with(silent)), "{missing:#?}");
    for healthy in [pod.root(), other] {
        assert!(!missing.iter().any(|line| line.contains(healthy)), "{missing:#?}");
    }
    pod.end();

    // A pod below another is found with what kubelet keeps of it.
    let mut tool = std::process::Command::new(podstuck());
    let options = ["--pod-uid", UID, "--api", "never", "--timeout", "12s", "--output", "json"];
    let roots = ["--kubelet-root", silent, "--kubelet-root", other];
    let output = tool.arg("diagnose").args(options).args(roots).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    drop(stalled);
    let diagnosis = of_type(&lines, "diagnosis")[0];
    println!("{diagnosis:#}");
    let volumes = diagnosis["stages"].to_string();
    assert!(volumes.contains(other), "{lines:#?}");
    let missing = degraded(&lines);
    assert!(missing.iter().any(|line| line.starts_with(silent)), "{missing:#?}");
    assert!(!missing.iter().any(|line| line.contains(other)), "{missing:#?}");
}
