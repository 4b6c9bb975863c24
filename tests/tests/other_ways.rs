//! Deletions that are not a plain system call on a path in its place: by the 32-bit interface, by
//! io_uring, and after a rename.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[cfg(target_arch = "aarch64")]
#[path = "common/arm_program.rs"]
mod arm_program;

use std::{fs, path::Path, process::Command};

use podstuck_tests::{
    UID, add_up, call, empty_dir, missing, of_type, requires, root_and_btf, skip, slowdown,
    summary, watch,
};
use serde_json::Value;

fn in_memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/dev/shm").unwrap()
}

#[cfg(target_arch = "x86_64")]
fn has_32_bit_interface() -> Result<(), &'static str> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let there = symbols.contains(" __ia32_sys_unlinkat\n");
    if there { Ok(()) } else { Err("this kernel has no 32-bit interface") }
}

/// By the interface that a 64-bit program may use as well.
#[cfg(target_arch = "x86_64")]
fn call_as_32_bit(directory: &Path) -> Value {
    fs::write(directory.join("file"), "").unwrap();
    let tally = call(&["at-32".as_ref(), directory.as_os_str(), "file".as_ref()]);
    assert_eq!(tally["unlinkat"]["ok"], 1, "{tally}");
    tally
}

#[cfg(target_arch = "aarch64")]
fn has_32_bit_interface() -> Result<(), &'static str> {
    let program = in_memory();
    let run = arm_program::run(program.path(), program.path());
    run.map(drop).map_err(|_| "no 32-bit program runs here")
}

#[cfg(target_arch = "aarch64")]
fn call_as_32_bit(directory: &Path) -> Value {
    let program = in_memory();
    fs::write(directory.join("a"), "").unwrap();
    fs::write(directory.join("b"), "").unwrap();
    fs::create_dir(directory.join("c")).unwrap();
    let status = arm_program::run(program.path(), directory).unwrap();
    let left = fs::read_dir(directory).unwrap().count();
    assert!(status.success() && left == 0, "{status}, {left} left");
    serde_json::json!({"unlinkat": {"ok": 1}, "unlink": {"ok": 1}, "rmdir": {"ok": 1}})
}

#[test]
fn calls_of_32_bit_programs_are_counted_or_said_to_be_missed() {
    requires!(root_and_btf(), has_32_bit_interface());
    let top = in_memory();
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    let tally = call_as_32_bit(top.path());
    let (lines, _) = watching.stop();
    let start = of_type(&lines, "start")[0];
    let not_covered = start["not_covered"].as_array().unwrap();
    let is_reported = not_covered.iter().any(|what| what.as_str().unwrap().contains("32-bit"));
    let counted = add_up(&[&summary(&lines)["by_outcome"]]);
    if start["backend"] != "tracepoint" {
        assert!(!is_reported, "{start:#}");
        assert_eq!(counted, add_up(&[&tally]));
    } else {
        assert!(is_reported, "{start:#}");
        assert!(counted.is_empty(), "{counted:?}");
    }
}

/// How the probes see deletions by io_uring here, as the `start` line has it: counted, noticed, or not
/// at all.
fn io_uring_hooks(start: &Value) -> [bool; 2] {
    let hooks: Vec<&str> =
        start["probes_attached"].as_array().unwrap().iter().map(|h| h.as_str().unwrap()).collect();
    ["fexit:io_unlinkat", "tracepoint:io_uring:io_uring_queue_async_work"]
        .map(|hook| hooks.contains(&hook))
}

/// Where the kernel preempts what runs a program on a function, it runs that program for no other task on
/// that processor: not for the other workers of the ring. They are reported, and all of them are counted in
/// one of the attempts.
#[test]
fn deletions_by_io_uring_are_counted_or_noticed_or_said_to_be_missed() {
    requires!(root_and_btf());
    const ATTEMPTS: usize = 5;
    assert!((0..ATTEMPTS).any(|_| deletions_by_io_uring() == 0), "calls were missing each time");
}

/// How many the kernel kept from the probes.
fn deletions_by_io_uring() -> u64 {
    let top = in_memory();
    let volume = empty_dir(top.path());
    let root = top.path().to_str().unwrap();
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root, "--fail-on-loss"]);
    let tally = call(&["io-uring".as_ref(), volume.as_os_str()]);
    // The same outside the pod, which is not to be counted.
    let outside = in_memory();
    call(&["io-uring".as_ref(), outside.path().as_os_str()]);
    if tally["skipped"] == true {
        skip("this kernel's io_uring cannot delete");
        return 0;
    }
    let deletions = 2 * 12;
    let (lines, status) = watching.stop();
    let start = of_type(&lines, "start")[0];
    let not_covered = start["not_covered"].as_array().unwrap();
    let missed = not_covered.iter().any(|what| what.as_str().unwrap().contains("io_uring"));
    let summary = summary(&lines);
    let noticed = &summary["completeness"]["io_uring_deletions"];
    match io_uring_hooks(start) {
        [true, false] => {
            assert_eq!(tally["unlinkat"]["ok"], 9, "{tally}");
            assert_eq!((noticed, missed), (&Value::from(0), false));
            let missing = missing(summary, &[&tally]);
            if missing == 0 && slowdown() == 1 {
                assert_eq!(status.code(), Some(0), "--fail-on-loss: {lines:#?}");
            } else if missing > 0 {
                assert_eq!(status.code(), Some(4), "--fail-on-loss: {lines:#?}");
            }
            return missing;
        }
        [false, true] => {
            // Its own calls.
            let counted = add_up(&[&summary["by_outcome"]]);
            assert_eq!(counted, [("unlinkat ENOENT", 1), ("unlinkat ok", 1)].map(to_owned).into());
            assert_eq!((noticed, missed), (&Value::from(deletions), false));
            assert_eq!(status.code(), Some(4), "--fail-on-loss");
        }
        hooks => {
            assert_eq!(hooks, [false, false]);
            assert_eq!((noticed, missed), (&Value::from(0), true));
        }
    }
    0
}

fn to_owned((name, count): (&str, u64)) -> (String, u64) {
    (name.to_owned(), count)
}

#[test]
fn a_path_too_long_to_be_kept_is_counted_without_a_target() {
    requires!(root_and_btf());
    let top = in_memory();
    let mut long = top.path().to_path_buf();
    for _ in 0..5 {
        long.push("d".repeat(250));
    }
    fs::create_dir_all(&long).unwrap();
    let path = top.path().to_str().unwrap();
    let watching = watch(&["--path", path]);
    // An absolute path, which is joined to the directory.
    let tally = call(&["io-uring".as_ref(), top.path().as_os_str(), long.as_os_str()]);
    if tally["skipped"] == true {
        skip("this kernel's io_uring cannot delete");
        return;
    }
    assert_eq!(tally["unlinkat+AT_REMOVEDIR"]["ok"], 1, "{tally}");
    let (lines, _) = watching.stop();
    let summary = summary(&lines);
    if io_uring_hooks(of_type(&lines, "start")[0])[0] {
        assert_eq!(summary["calls"], 0);
        assert!(summary["completeness"]["unresolved"].as_u64().unwrap() >= 1, "{summary:#}");
    } else {
        skip("in part: deletions by io_uring are not counted here");
    }
}

#[test]
fn a_volume_moved_away_and_then_deleted_is_still_its_pods() {
    requires!(root_and_btf());
    const FILES: u64 = 40;
    let top = in_memory();
    let volume = empty_dir(top.path());
    fs::create_dir(volume.join("deep")).unwrap();
    for i in 0..FILES {
        fs::write(volume.join("deep").join(format!("f{i}")), "").unwrap();
    }
    let trash = top.path().join("trash");
    fs::create_dir(&trash).unwrap();
    let export = in_memory();
    let root = top.path().to_str().unwrap();
    let export_to = export.path().to_str().unwrap();
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root, "--export", export_to]);
    let moved = trash.join("old");
    call(&["move".as_ref(), volume.as_os_str(), moved.as_os_str()]);
    assert!(Command::new("rm").arg("-rf").arg(&moved).status().unwrap().success());
    // What lies beside it there belongs to no pod.
    fs::write(trash.join("other"), "").unwrap();
    fs::remove_file(trash.join("other")).unwrap();
    let (lines, _) = watching.stop();
    let counted = &summary(&lines)["by_outcome"];
    assert_eq!(counted["unlinkat"]["ok"], FILES, "{counted:#}");
    assert_eq!(counted["unlinkat+AT_REMOVEDIR"]["ok"], 2, "{counted:#}");
    assert_eq!(counted["unlink"].as_object().unwrap().len(), 0, "{counted:#}");
    let csv = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let row = format!("unlinkat,ok,{UID},data,other,{FILES},");
    assert!(csv.lines().any(|line| line.starts_with(&row)), "{csv}");
}

#[test]
fn a_file_renamed_within_its_volume_changes_nothing() {
    requires!(root_and_btf());
    let top = in_memory();
    let volume = empty_dir(top.path());
    fs::write(volume.join("new"), "").unwrap();
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    call(&["move".as_ref(), volume.join("new").as_os_str(), volume.join("old").as_os_str()]);
    let tally = call(&["unlink".as_ref(), volume.join("old").as_os_str()]);
    call(&["unlink".as_ref(), Path::new("/nonexistent").as_os_str()]);
    let (lines, _) = watching.stop();
    assert_eq!(add_up(&[&summary(&lines)["by_outcome"]]), add_up(&[&tally]));
}
