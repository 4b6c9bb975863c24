//! What the whole-program tests share: the tool, its labs, and callers with a truth of their own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod ending;
mod fuse_server;
mod http;
mod mounted;
mod recorded;
mod running;
mod schema;
mod tally;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Once,
    thread,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    unistd::geteuid,
};
use podstuck_common::entry_point::ON_ARM64;
use podstuck_probe::kernel::hooks::Form;
use serde_json::Value;

pub use ending::Ending;
pub use fuse_server::{FuseServer, has_fuse};
pub use http::http_get;
pub use mounted::{
    BTRFS, Disk, EXT4, Frozen, Mounted, done, has_btrfs, make_image, obey, own_mounts,
};
pub use podstuck_testing::{requires, skip};
pub use recorded::{Recorded, replay};
pub use running::{
    Running, diagnose, holder_of, lab, lab_as_typed, lab_if_possible, late_lab_if_possible,
    started_by, trace, wait_until_gone, watch,
};
pub use schema::schema;
pub use tally::{add_up, assert_counted, missing};

/// How much slower than a real machine this one is: an emulated one gets smaller workloads.
pub fn slowdown() -> u32 {
    let set = std::env::var("PODSTUCK_TEST_SLOWDOWN").ok();
    set.map_or(1, |text| text.parse().expect("PODSTUCK_TEST_SLOWDOWN is a number")).max(1)
}

/// What a test needs in which a user may make a namespace of his own, and mounts in it.
///
/// # Errors
///
/// When this machine has none.
pub fn user_namespaces() -> Result<(), &'static str> {
    let words = ["--user", "--map-root-user", "--mount", "true"];
    match Command::new("unshare").args(words).output() {
        Ok(tried) if tried.status.success() => Ok(()),
        _ => Err("`unshare` makes no user namespace here"),
    }
}

/// The names in a directory, sorted.
pub fn names_in(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// How the tests are to attach, if that is not left to the tool.
pub fn backend() -> Option<String> {
    std::env::var("PODSTUCK_TEST_BACKEND").ok().filter(|name| !name.is_empty())
}

/// Time for what was asked about the last call: it is answered within a second.
pub fn settle() {
    thread::sleep(Duration::from_millis(1500) * slowdown().min(2));
}

/// What nearly every test needs.
///
/// # Errors
///
/// The reason why it cannot run here.
pub fn root_and_btf() -> Result<(), &'static str> {
    if !geteuid().is_root() {
        Err("not root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Err("no /sys/kernel/btf/vmlinux")
    } else {
        static ONCE: Once = Once::new();
        ONCE.call_once(show_fuse_connections);
        Ok(())
    }
}

/// What FUSE servers have not answered, as systemd shows it on every host. It stays mounted, as there.
fn show_fuse_connections() {
    let place = "/sys/fs/fuse/connections";
    let mounted =
        std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|all| all.contains(place));
    if !mounted {
        // Where that is impossible, the tests that need it say so.
        let _ = mount(Some("fusectl"), place, Some("fusectl"), MsFlags::empty(), None::<&str>);
    }
}

/// What tests with a disk need.
///
/// # Errors
///
/// When this machine has no loop devices or no ext4.
pub fn has_loop_devices() -> Result<(), &'static str> {
    let there = Path::new("/dev/loop-control").exists()
        && std::fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\text4\n"));
    if there { Ok(()) } else { Err("no loop devices or no ext4") }
}

/// The forms of hooks that the tests use: what `PODSTUCK_TEST_BACKEND` says, as `--backend` does,
/// else the best that works.
pub fn forms() -> &'static [Form] {
    match backend().as_deref() {
        None => &Form::ALL,
        Some("fentry") => &[Form::Function],
        Some("kprobe") => &[Form::Kprobe],
        Some("tracepoint") => &[Form::Tracepoint],
        Some(other) => panic!("PODSTUCK_TEST_BACKEND={other}"),
    }
}

/// The tool: where `PODSTUCK_BIN` says, else where cargo builds it.
pub fn podstuck() -> PathBuf {
    if let Some(path) = std::env::var_os("PODSTUCK_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("podstuck")
}

/// Runs the tool to its end.
pub fn run(args: &[&str]) -> Output {
    Command::new(podstuck()).args(args).output().expect("running podstuck")
}

/// Lines of one type.
pub fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The summary of a run.
pub fn summary(lines: &[Value]) -> &Value {
    of_type(lines, "summary").last().expect("a summary")
}

/// Makes calls in a process of its own; its own tally of them.
pub fn call(args: &[&OsStr]) -> Value {
    let program = podstuck_call();
    let output = Command::new(&program).args(args).output().expect("running podstuck-call");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("a tally")
}

/// Makes calls on demand.
pub fn podstuck_call() -> PathBuf {
    beside_the_tests("podstuck-call")
}

/// Where cargo puts the programs of the tests.
pub fn beside_the_tests(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join(program)
}

/// The call that the C library makes for `unlink(3)`: arm64 has no call of that name.
pub const UNLINK: &str = if ON_ARM64 { "unlinkat" } else { "unlink" };

/// The call that it makes for `rmdir(3)`.
pub const RMDIR: &str = if ON_ARM64 { "unlinkat+AT_REMOVEDIR" } else { "rmdir" };

/// The files of an export directory, by name.
pub const EXPORTED: [&str; 8] = [
    "findings.jsonl",
    "histograms.csv",
    "histograms.hlog",
    "intervals.hlog",
    "metrics.prom",
    "node-metrics.pb",
    "node-metrics.txt",
    "report.html",
];

/// A UID as the API gives them.
pub const UID: &str = "7b0c6a52-95b0-4a57-9f43-0d6f1f9a2c11";

/// An emptyDir of a made-up pod below a directory.
pub fn empty_dir(top: &Path) -> PathBuf {
    let volume = top.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/data");
    std::fs::create_dir_all(&volume).unwrap();
    volume
}
