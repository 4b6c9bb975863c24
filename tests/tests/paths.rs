//! Full paths of objects in every form in which a call can name them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "paths/file_systems.rs"]
mod file_systems;
#[path = "paths/linked_root.rs"]
mod linked_root;
#[path = "common/observer.rs"]
mod observer;
#[path = "paths/own_namespace.rs"]
mod own_namespace;
#[path = "paths/resolved.rs"]
mod resolved;

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use observer::{check, disk, elsewhere, expect, failed, hooked, observe, words};
use podstuck_common::record::{flaw, reason};
use podstuck_node::identity::target_root;
use podstuck_probe::decode::{CUT_MARK, Record, UNREACHABLE_MARK};
use podstuck_tests::{Mounted, call, empty_dir, requires, root_and_btf, skip};
use serde_json::Value;

#[test]
fn by_descriptor_by_absolute_path_and_from_the_working_directory() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let file = volume.join("file");
    fs::write(&file, "").unwrap();
    expect("at", &[&volume, Path::new("file")], &file);
    expect("rmdir", &[&file], &file);
    expect("cwd", &[&volume, Path::new("./file")], &file);
    let above = volume.parent().unwrap();
    expect("cwd", &[above, Path::new("data//file")], &file);
    expect("at", &[above, Path::new("data/file")], &file);
}

#[test]
fn by_io_uring() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let file = volume.join("file");
    fs::write(&file, "").unwrap();
    for (dir, name) in [(volume.as_path(), Path::new("file")), (Path::new("/"), &file)] {
        let mut tally = Value::Null;
        let records = observe(|| tally = call(&words("io-uring", &[dir, name])));
        if tally["skipped"] == true || !hooked("fexit:io_unlinkat") {
            skip("in part: deletions by io_uring are not counted here");
            return;
        }
        assert_eq!(tally["unlinkat+AT_REMOVEDIR"]["ENOTDIR"], 1, "{tally}");
        let record = failed(&records);
        check(record, &file);
        assert_ne!(record.head.tgid, record.head.tid, "no worker did it");
        assert_eq!(record.head.actor.comm, *b"podstuck-call\0\0\0");
    }
}

#[test]
fn names_of_any_byte_and_of_255() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    for name in [b"\xff\xfe \x1b[31m\n".as_slice(), &[b'n'; 255], b"..x", b"."] {
        let name = Path::new(OsStr::from_bytes(name));
        let dir = volume.join("dir");
        fs::create_dir_all(&dir).unwrap();
        if name == Path::new(".") {
            continue;
        }
        fs::write(dir.join(name), "").unwrap();
        expect("at", &[&dir, name], &dir.join(name));
        // The name as a directory on the way, too.
        let deep = volume.join(name);
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        expect("at", &[&deep, Path::new("file")], &deep.join("file"));
    }
}

#[test]
fn a_directory_renamed_while_it_is_open_has_its_new_name() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let (old, new) = (volume.join("old"), volume.parent().unwrap().join("other").join("new"));
    fs::create_dir_all(new.parent().unwrap()).unwrap();
    fs::create_dir(&old).unwrap();
    fs::write(old.join("file"), "").unwrap();
    let records = observe(|| {
        call(&words("renamed", &[&old, &new, Path::new("file")]));
    });
    let failures: Vec<&Record> = records.iter().filter(|r| r.head.errno == 20).collect();
    let paths: Vec<PathBuf> = failures.iter().map(|r| r.path()).collect();
    assert_eq!(paths, [old.join("file"), new.join("file")]);
    for (record, path) in failures.iter().zip(&paths) {
        assert_eq!(target_root(path).unwrap().1.target, record.head.target, "{path:?}");
    }
}

#[test]
fn through_a_bind_mount_and_inside_a_chroot() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let source = top.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "").unwrap();
    let point = volume.join("bound");
    fs::create_dir(&point).unwrap();
    let point = Mounted::bind(&source, point);
    let records = observe(|| {
        call(&words("at", &[&point.join("sub"), Path::new("file")]));
    });
    let record = failed(&records);
    assert_eq!(record.path(), point.join("sub/file"));
    assert_eq!((record.head.depth, record.head.mount_depth), (3, 1));
    // Inside a chroot the caller says `/pods/...`; the node sees the whole path.
    let inside = Path::new("/").join(point.strip_prefix(top.path()).unwrap()).join("sub/file");
    let records = observe(|| {
        call(&words("chroot", &[top.path(), &inside]));
    });
    assert_eq!(failed(&records).path(), point.join("sub/file"));
}

#[test]
fn a_path_in_a_detached_mount_is_no_path_of_the_node() {
    requires!(root_and_btf());
    let top = disk();
    let point = empty_dir(top.path());
    let mounted = Mounted::memory(&point, "");
    fs::create_dir(point.join("sub")).unwrap();
    fs::write(point.join("sub/file"), "").unwrap();
    let open = File::open(point.join("sub")).unwrap();
    let through = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd()));
    let name = Path::new("file");
    let before = observe(|| {
        call(&words("at", &[&through, name]));
    });
    drop(mounted);
    check(failed(&before), &point.join("sub/file"));
    // The answer about the directory is still young, but its mount is elsewhere.
    let records = observe(|| {
        call(&words("at", &[&through, name]));
    });
    let record = records.iter().find(|r| r.head.errno == 20 && r.head.flaws == flaw::UNREACHABLE);
    let record = record.unwrap_or_else(|| panic!("not one of {}", records.len()));
    assert_eq!(record.path(), Path::new("/").join(UNREACHABLE_MARK).join("sub/file"));
    assert_eq!(record.head.target, 0);
}

#[test]
fn what_only_reads_like_a_volume_is_reported_as_such() {
    requires!(root_and_btf());
    let (proven, other) = (disk(), elsewhere());
    let (volume, look_alike) = (empty_dir(proven.path()), empty_dir(other.path()));
    for volume in [&volume, &look_alike] {
        fs::write(volume.join("file"), "").unwrap();
    }
    expect("at", &[&volume, Path::new("file")], &volume.join("file"));
    for words in [
        words("at", &[&look_alike, Path::new("file")]),
        words("rmdir", &[&look_alike.join("file")]),
    ] {
        let records = observe(|| {
            call(&words);
        });
        let of_file = |r: &&Record| r.path() == look_alike.join("file") && r.head.errno == 20;
        let seen: Vec<&Record> = records.iter().filter(of_file).collect();
        assert!(seen.iter().any(|r| r.head.reason & reason::LOOK_ALIKE != 0), "{}", seen.len());
        assert!(seen.iter().all(|r| r.head.target == 0));
    }
    // A volume that is seen at another path is the same.
    let bound = other.path().join("bound");
    fs::create_dir(&bound).unwrap();
    let bound = Mounted::bind(proven.path(), bound);
    let there = bound.join(volume.strip_prefix(proven.path()).unwrap());
    let records = observe(|| {
        call(&words("at", &[&there, Path::new("file")]));
    });
    let record = failed(&records);
    assert_eq!(record.path(), there.join("file"));
    assert_eq!(record.head.target, target_root(&volume).unwrap().1.target);
}

#[test]
fn deep_and_long_paths() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    // 200 levels: all of them.
    let object = deep(&volume, "d", 200);
    let records = observe(|| {
        call(&words("descend", &[&volume, Path::new("d"), Path::new("200")]));
    });
    assert_eq!(failed(&records).path(), object);
    fs::remove_dir_all(volume.join("d")).unwrap();
    // An argument as long as the kernel takes them.
    let name = "n".repeat(180);
    let mut long = volume.clone();
    while long.as_os_str().len() + name.len() + 6 < 4096 {
        long.push(&name);
    }
    fs::create_dir_all(&long).unwrap();
    let filler = 4095 - long.as_os_str().len() - 1;
    let file = long.join("f".repeat(filler.min(255)));
    fs::write(&file, "").unwrap();
    assert!(file.as_os_str().len() > 3900);
    expect("rmdir", &[&file], &file);
    let directory = file.parent().unwrap();
    let name = Path::new(file.file_name().unwrap());
    let records = observe(|| {
        call(&words("at", &[directory, name]));
    });
    let found = failed(&records);
    assert!(found.path() == file || found.head.flaws & flaw::CUT != 0);
}

#[test]
fn what_is_too_deep_is_marked_as_cut() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let records = observe(|| {
        call(&words("descend", &[&volume, Path::new("d"), Path::new("400")]));
    });
    let cut = records.iter().find(|r| r.head.errno == 20 && r.head.flaws & flaw::CUT != 0);
    // Nothing is claimed about the target then, so the failure itself is not reported; the
    // directory's sample is, and says that it is incomplete.
    let record = cut.or(records.iter().find(|r| r.head.flaws & flaw::CUT != 0)).expect("a mark");
    let path = record.path();
    assert!(path.starts_with(Path::new("/").join(CUT_MARK)), "{path:?}");
    assert_eq!(record.head.target, 0);
}

fn deep(top: &Path, name: &str, levels: usize) -> PathBuf {
    let mut path = top.to_path_buf();
    path.extend(std::iter::repeat_n(name, levels));
    path.join("leaf")
}

#[test]
fn an_object_that_succeeds_long_after_it_failed_is_reported() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    let dir = volume.join("dir");
    let inside = dir.join("file");
    fs::create_dir(&dir).unwrap();
    for fail in [words("rmdir", &[&inside]), words("cwd", &[&dir, Path::new("file")])] {
        fs::write(&inside, "").unwrap();
        let records = observe(|| {
            call(&fail);
            // Longer than an answer about a directory is believed.
            std::thread::sleep(Duration::from_millis(1500));
            call(&words("unlink", &[&inside]));
        });
        let recovered = records.iter().find(|r| r.head.reason & reason::RECOVERED != 0);
        assert_eq!(recovered.expect("a recovery").path(), inside);
    }
}

#[test]
fn a_failure_that_was_held_back_is_known_when_its_object_succeeds() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    // More of one process in a moment than are reported of one kind.
    let files: Vec<PathBuf> = (0..400).map(|number| volume.join(number.to_string())).collect();
    for file in &files {
        fs::write(file, "").unwrap();
    }
    let last = files.last().unwrap();
    let records = observe(|| {
        let mut command = Command::new("rmdir");
        assert!(!command.args(&files).stderr(Stdio::null()).status().unwrap().success());
        call(&words("unlink", &[last]));
    });
    let is_last = |r: &&Record| r.head.errno == 20 && r.path() == *last;
    assert!(records.iter().find(is_last).is_none(), "it was not held back");
    let recovered = records.iter().find(|r| r.head.reason & reason::RECOVERED != 0);
    assert_eq!(recovered.expect("a recovery").path(), *last);
}

#[test]
fn an_object_that_fails_again_after_it_succeeded_is_noted_again() {
    requires!(root_and_btf());
    let top = disk();
    let volume = empty_dir(top.path());
    // All on one processor, which remembers what it has noted last.
    let mut first = CpuSet::new();
    first.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &first).unwrap();
    let records = observe(|| {
        for name in ["a", "a", "bb", "a"] {
            let file = volume.join(name);
            fs::write(&file, "").unwrap();
            for way in ["rmdir", "rmdir", "unlink"] {
                call(&words(way, &[&file]));
            }
        }
    });
    let recovered = records.iter().filter(|record| record.head.reason & reason::RECOVERED != 0);
    let recovered: Vec<PathBuf> = recovered.map(Record::path).collect();
    assert_eq!(recovered, ["a", "a", "bb", "a"].map(|name| volume.join(name)));
}
