//! `podstuck holders` against holders that this test makes itself.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/holding.rs"]
mod holding;

use std::{
    fs::{self, File},
    io::IoSlice,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd},
        linux::fs::MetadataExt,
        unix::net::UnixStream,
    },
    path::Path,
    process::Command,
};

use holding::{Memory, Process, holders, of_process};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_tests::{lab, of_type, podstuck, requires, root_and_btf, run};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

#[test]
fn only_processes_in_it_or_with_it_open_are_found() {
    requires!(root_and_btf());
    let memory = Memory::mount();
    let path = memory.path().to_str().unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!((of_type(&lines, "holder").len(), status), (0, Some(0)), "{lines:#?}");

    let sleeper = Process::sleep_in(memory.path());
    let _open = File::create(memory.path().join("f")).unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!(status, Some(1));
    let [found] = of_process(&lines, sleeper.pid()).try_into().unwrap();
    assert_eq!((&found["how"], &found["through"]), (&"cwd".into(), &"itself".into()), "{found:#}");
    assert_eq!((&found["explains_ebusy"], &found["exact"]), (&true.into(), &true.into()));
    let [found] = of_process(&lines, std::process::id()).try_into().unwrap();
    assert_eq!(found["how"], "fd", "{found:#}");
    assert!(found["object"]["path"].as_str().unwrap().ends_with("/f"));
    assert_eq!(lines.last().unwrap()["holders"], 2, "{lines:#?}");
    // The kernel agrees.
    assert_eq!(umount2(memory.path(), MntFlags::empty()), Err(nix::errno::Errno::EBUSY));

    // A path may be relative.
    let mut relative = Command::new(podstuck());
    let relative = relative.args(["holders", "f"]).current_dir(memory.path()).output().unwrap();
    assert_eq!(relative.status.code(), Some(1), "{relative:?}");

    // The file alone: a process that works in the directory does not hold it.
    let (lines, status) = holders(&[&format!("{path}/f")]);
    assert_eq!((of_type(&lines, "holder").len(), status), (1, Some(1)), "{lines:#?}");
}

#[test]
fn what_was_unmounted_lazily_is_found_by_its_device() {
    requires!(root_and_btf());
    let memory = Memory::mount();
    let device = memory.device();
    let sleeper = Process::sleep_in(memory.path());
    let open = File::create(memory.path().join("f")).unwrap();
    umount2(memory.path(), MntFlags::MNT_DETACH).unwrap();
    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1));
    for (pid, how) in [(sleeper.pid(), "cwd"), (std::process::id(), "fd")] {
        let [found] = of_process(&lines, pid).try_into().unwrap();
        assert_eq!((&found["how"], &found["through"]), (&how.into(), &"detached".into()));
    }
    let pid = sleeper.pid();
    drop((open, sleeper));
    // The number of the device may already belong to another one.
    let (lines, _) = holders(&["--device", &device]);
    for pid in [pid, std::process::id()] {
        assert!(of_process(&lines, pid).is_empty(), "{lines:#?}");
    }
}

/// Neither `lsof` nor `fuser` finds it by its former mount point, and a link of `/proc` begins at its root.
#[test]
fn the_file_system_of_what_was_unmounted_lazily_is_named() {
    requires!(root_and_btf());
    let memory = Memory::mount();
    let (point, device) = (memory.path().to_str().unwrap(), memory.device());
    let volume = memory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    // Of two mounts, only what they show says which one is held.
    mount(Some(&volume), &volume, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let sleeper = Process::sleep_in(&volume);
    let open = File::create(memory.path().join("f")).unwrap();
    umount2(memory.path(), MntFlags::MNT_DETACH).unwrap();
    let link = fs::read_link(format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd()));
    assert_eq!(link.unwrap(), Path::new("/f"), "without its mount point");
    let by_others = ["lsof", "fuser"].map(|program| {
        let output = Command::new(program).arg(point).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let pids = [sleeper.pid(), std::process::id()].map(|pid| pid.to_string());
    for said in by_others {
        let of_us = said.split_whitespace().find(|word| pids.iter().any(|pid| pid == word));
        assert_eq!(of_us, None, "{said}");
    }

    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1));
    for (pid, how, root) in [(sleeper.pid(), "cwd", "/volume"), (std::process::id(), "fd", "/")] {
        let [found] = of_process(&lines, pid).try_into().unwrap();
        assert_eq!((&found["how"], &found["through"]), (&how.into(), &"detached".into()));
        let detached = &found["mount"]["detached"];
        if describes_detached_mounts() {
            let from = &detached["known"];
            assert_eq!((&from["fs_type"], &from["source"]), (&"tmpfs".into(), &"podstuck".into()));
            assert_eq!(from["root"]["path"], root, "{found:#}");
        } else {
            assert!(detached["error"].as_str().unwrap().contains("Linux 7.0"), "{found:#}");
        }
    }
}

/// Whether the kernel is Linux 7.0 or later.
fn describes_detached_mounts() -> bool {
    let release = nix::sys::utsname::uname().unwrap().release().to_str().unwrap().to_owned();
    release.split('.').next().unwrap().parse::<u32>().unwrap() >= 7
}

#[test]
fn a_slave_copy_explains_the_failure_and_a_private_one_does_not() {
    requires!(root_and_btf());
    // A tree of its own: what is mounted in it reaches its slaves, and no other mount.
    let memory = Memory::mount();
    let volume = memory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let path = volume.to_str().unwrap();
    mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();

    let private = Process::unshared("private", &format!("cd {path}"));
    let (lines, _) = holders(&[path]);
    let of_private = of_process(&lines, private.pid());
    assert!(of_private.iter().any(|h| h["how"] == "cwd"), "{lines:#?}");
    assert!(of_private.iter().all(|h| h["explains_ebusy"] == false), "{of_private:#?}");

    let slave = Process::unshared("slave", &format!("cd {path}"));
    let (lines, _) = holders(&[path]);
    let found = of_process(&lines, slave.pid());
    let cwd = found.iter().find(|h| h["how"] == "cwd").unwrap();
    assert_eq!(cwd["through"], "propagated-copy", "{cwd:#}");
    assert_eq!(cwd["explains_ebusy"], true, "{cwd:#}");
    assert_eq!(umount2(&volume, MntFlags::empty()), Err(nix::errno::Errno::EBUSY));

    // A slave copy with a mount of its own is left behind.
    drop(slave);
    let nested = Process::unshared(
        "slave",
        &format!("mkdir {path}/n; mount -t tmpfs n {path}/n; cd {path}"),
    );
    let (lines, _) = holders(&[path]);
    let found = of_process(&lines, nested.pid());
    assert!(found.iter().all(|h| h["explains_ebusy"] == false), "{found:#?}");
    // The kernel agrees.
    umount2(&volume, MntFlags::empty()).unwrap();
}

#[test]
fn a_namespace_without_a_process_is_looked_at() {
    requires!(root_and_btf());
    let memory = Memory::mount();
    let private = MsFlags::MS_PRIVATE;
    mount(None::<&str>, memory.path(), None::<&str>, private, None::<&str>).unwrap();
    let device = memory.device();
    let process = Process::unshared("private", "true");
    let link = format!("/proc/{}/ns/mnt", process.pid());
    let namespace: u64 = fs::metadata(&link).unwrap().st_ino();
    let pin = File::open(&link).unwrap();
    drop(process);
    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1), "{lines:#?}");
    let there = |line: &&Value| line["mount"]["namespace"] == namespace;
    let found = of_type(&lines, "holder");
    let found = found.iter().find(|line| there(line)).unwrap();
    assert_eq!(found["how"], "mount", "{found:#}");
    drop(pin);
    let (lines, _) = holders(&["--device", &device]);
    assert!(!of_type(&lines, "holder").iter().any(there), "{lines:#?}");
}

/// A descriptor that waits in a socket's queue is in no `/proc/PID/fd`.
#[test]
fn a_namespace_that_only_an_unread_message_keeps_is_looked_at() {
    requires!(root_and_btf());
    requires!(lists_namespaces());
    let memory = Memory::mount();
    let private = MsFlags::MS_PRIVATE;
    mount(None::<&str>, memory.path(), None::<&str>, private, None::<&str>).unwrap();
    let device = memory.device();
    let process = Process::unshared("private", "true");
    let pin = File::open(format!("/proc/{}/ns/mnt", process.pid())).unwrap();
    let namespace: u64 = pin.metadata().unwrap().st_ino();
    let (here, there) = UnixStream::pair().unwrap();
    let descriptors = [pin.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut room);
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&here, &[IoSlice::new(b"n")], &mut message, SendFlags::empty()).unwrap();
    drop((process, pin));
    umount2(memory.path(), MntFlags::empty()).unwrap();

    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1), "{lines:#?}");
    let is_there = |line: &&Value| line["mount"]["namespace"] == namespace;
    let found = of_type(&lines, "holder");
    let found = found.iter().find(|line| is_there(line)).unwrap();
    assert_eq!(found["how"], "mount", "{found:#}");
    assert!(found["source"].as_str().unwrap().ends_with("listns(2)"), "{found:#}");
    drop((here, there));
    let (lines, _) = holders(&["--device", &device]);
    assert!(!of_type(&lines, "holder").iter().any(is_there), "{lines:#?}");
}

/// Whether the kernel has `listns(2)`: without an argument that it can read, it says so otherwise.
fn lists_namespaces() -> Result<(), &'static str> {
    // SAFETY: the request is no address, so that nothing is read and nothing written.
    let status = unsafe { nix::libc::syscall(470, 0, 0, 0, 0) };
    match nix::errno::Errno::result(status) {
        Err(nix::errno::Errno::ENOSYS) => Err("no listns(2), which is of Linux 6.19"),
        _ => Ok(()),
    }
}

#[test]
fn the_lab_s_process_is_found_from_another_namespace() {
    requires!(root_and_btf());
    let (running, ready) = lab("volume-held-by-host-process", &["--duration", "10s"]);
    let path = ready["path"].as_str().unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!(status, Some(1), "{lines:#?}");
    let found = of_type(&lines, "holder");
    let found = found.iter().find(|h| h["how"] == "cwd").unwrap();
    assert_eq!((&found["comm"], &found["explains_ebusy"]), (&"sleep".into(), &true.into()));
    running.resume();
}

#[test]
fn what_does_not_exist_is_a_usage_error() {
    let output = run(&["holders", "/nonexistent/\u{1b}[2J"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/") && !text.contains('\u{1b}'), "{text:?}");
    for args in
        [&["holders"][..], &["holders", "--device", "x"], &["holders", "/", "--device", "8:1"]]
    {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}
