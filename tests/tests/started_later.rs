//! A kubelet that is started during a watch is known from the next read of the node on, without any mount
//! that shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use podstuck_tests::{
    Ending, UID, add_up, empty_dir, requires, root_and_btf, settle, slowdown, summary, watch,
};
use rustix::fs::{AtFlags, CWD, unlinkat};

/// Named like a kubelet's program, with the flag that says where its pods are, and it tries to remove a
/// directory in one of them again and again.
fn kubelet(program: &Path, root: &Path, directory: &Path) -> Ending {
    let script = r#"while :; do rmdir "$1"; sleep 0.1; done"#;
    run_for(Command::new(program).args(["-c", script, "sh"]).arg(directory), root)
}

/// One that sees mounts of its own, and does nothing.
fn kubelet_apart(program: &Path, root: &Path) -> Ending {
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount").arg(program).args(["-c", "while :; do sleep 1; done", "sh"]);
    run_for(&mut unshare, root)
}

fn run_for(command: &mut Command, root: &Path) -> Ending {
    Ending::start(command.arg("--root-dir").arg(root).stderr(Stdio::null()))
}

#[test]
fn a_kubelet_that_is_started_later_brings_its_root_directory() {
    requires!(root_and_btf());
    let (top, export) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = program(top.path());
    let root = top.path().join("its own");
    let volume = empty_dir(&root);
    fs::write(volume.join("file"), "").unwrap();
    let watching = watch(&["--export", export.path().to_str().unwrap()]);
    let kubelet = kubelet(&program, &root, &volume);
    // A read every two seconds, what it finds is shown to the probes, and then something is tried.
    thread::sleep(Duration::from_secs(8) * slowdown());
    drop(kubelet);
    settle();
    watching.stop();
    let table = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let its: Vec<&str> = table.lines().filter(|row| row.contains(UID)).collect();
    assert!(its.iter().any(|row| row.contains("ENOTEMPTY")), "{table}");
}

/// Two kubelets then have one directory, and the probes learn of the second while calls are made in it.
#[test]
fn a_kubelet_that_shares_a_root_directory_costs_no_count() {
    requires!(root_and_btf());
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = program(top.path());
    let root = top.path().join("shared");
    let volume = empty_dir(&root);
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root.to_str().unwrap()]);
    let (is_over, mut calls) = (AtomicBool::new(false), 0_u64);
    thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            let (path, mut calls) = (volume.join("file"), 0);
            let directory = fs::File::open(&volume).unwrap();
            while !is_over.load(Relaxed) {
                fs::write(&path, "").unwrap();
                unlinkat(CWD, &path, AtFlags::empty()).unwrap();
                fs::write(&path, "").unwrap();
                unlinkat(&directory, "file", AtFlags::empty()).unwrap();
                calls += 2;
            }
            calls
        });
        for _ in 0..3 {
            let kubelet = kubelet_apart(&program, &root);
            // A read every two seconds finds it, and then one finds that it is gone.
            thread::sleep(Duration::from_secs(5) * slowdown());
            drop(kubelet);
        }
        is_over.store(true, Relaxed);
        calls = deleting.join().unwrap();
    });
    settle();
    let (lines, _) = watching.stop();
    assert!(calls > 1000, "{calls}");
    assert_eq!(
        add_up(&[&summary(&lines)["by_outcome"]])["unlinkat ok"],
        calls,
        "{:#}",
        summary(&lines)
    );
}

fn program(folder: &Path) -> PathBuf {
    let program = folder.join("kubelet");
    symlink(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
    program
}
