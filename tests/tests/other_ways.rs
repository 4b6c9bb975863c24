//! Deletions that are not a plain system call on a path in its place: by the 32-bit interface, by
//! io_uring, and after a rename.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{fs, path::Path, process::Command};

use podstuck_tests::{UID, add_up, call, empty_dir, of_type, root_and_btf, summary, watch};

fn in_memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/dev/shm").unwrap()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_32_bit_programs_are_counted_or_said_to_be_missed() {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    if !root_and_btf() {
        return;
    }
    if !symbols.contains(" __ia32_sys_unlinkat\n") {
        eprintln!("skipped: this kernel has no 32-bit interface");
        return;
    }
    let top = in_memory();
    fs::write(top.path().join("file"), "").unwrap();
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    let tally = call(&["at-32".as_ref(), top.path().as_os_str(), "file".as_ref()]);
    assert_eq!(tally["unlinkat"]["ok"], 1, "{tally}");
    let (lines, _) = watching.stop();
    let start = of_type(&lines, "start")[0];
    let not_covered = start["not_covered"].as_array().unwrap();
    let told = not_covered.iter().any(|what| what.as_str().unwrap().contains("32-bit"));
    let counted = add_up(&[&summary(&lines)["by_outcome"]]);
    if start["backend"] == "fentry" {
        assert!(!told, "{start:#}");
        assert_eq!(counted, add_up(&[&tally]));
    } else {
        assert!(told, "{start:#}");
        assert!(counted.is_empty(), "{counted:?}");
    }
}

#[test]
fn a_deletion_by_io_uring_is_noticed_or_said_to_be_missed() {
    if !root_and_btf() {
        return;
    }
    let top = in_memory();
    let file = top.path().join("file");
    fs::write(&file, "").unwrap();
    let watching = watch(&["--path", top.path().to_str().unwrap(), "--fail-on-loss"]);
    let tally = call(&["io-uring".as_ref(), file.as_os_str()]);
    if tally["skipped"] == true {
        eprintln!("skipped: this kernel's io_uring cannot delete");
        return;
    }
    assert!(!file.exists());
    let (lines, status) = watching.stop();
    let not_covered = &of_type(&lines, "start")[0]["not_covered"];
    let told =
        not_covered.as_array().unwrap().iter().any(|w| w.as_str().unwrap().contains("io_uring"));
    let noticed = &summary(&lines)["completeness"]["io_uring_deletions"];
    if told {
        assert_eq!(noticed, 0);
    } else {
        assert_eq!(noticed, 1);
        assert_eq!(status.code(), Some(4), "--fail-on-loss");
    }
}

#[test]
fn a_volume_moved_away_and_then_deleted_is_still_its_pods() {
    if !root_and_btf() {
        return;
    }
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
    // What lies beside it there is nobody's.
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
    if !root_and_btf() {
        return;
    }
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
