//! A container's process that was killed, and a removal, that wait for a disk that does not answer: which one it is, what
//! serves it, and the command that brings it back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_tests::{
    EXT4, Ending, FuseServer, Mounted, UID, has_fuse, make_image, obey, podstuck, requires,
    root_and_btf, slowdown,
};
use serde_json::Value;

use crate::{
    pods_group::PodsGroup,
    silent_disks::{Held, Silence, Suspended, device_mapper},
};

/// A process that writes to a volume, in a control group of the pod.
struct Writer {
    process: Ending,
    _group: PodsGroup,
}

impl Writer {
    fn start(volume: &Path) -> Self {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4096", "oflag=sync"]);
        dd.arg(format!("of={}", volume.join("file").display())).stderr(Stdio::null());
        let process = Ending::start(&mut dd);
        let group = PodsGroup::with("faults", UID, &[process.id()]);
        Self { process, _group: group }
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    fn ends(&mut self) {
        let begun = Instant::now();
        while !self.has_ended() {
            assert!(begun.elapsed() < Duration::from_secs(30) * slowdown(), "it does not end");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What is said first of the pod, once the writer waits for the disk and was killed.
fn first_cause(root: &Path, writer: &mut Writer) -> Value {
    thread::sleep(Duration::from_secs(2));
    writer.process.kill().unwrap();
    let cause = first_firm(root, "dstate-process");
    assert!(!writer.has_ended(), "it does not wait for the disk");
    cause
}

/// The same, if it is this cause.
fn first_firm(root: &Path, id: &str) -> Value {
    let mut diagnose = Command::new(podstuck());
    diagnose.args(["diagnose", "--output", "json", "--api", "never", "--pod-uid", UID]);
    let output = diagnose.arg("--kubelet-root").arg(root).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer = lines.find(|line| line["type"] == "diagnosis").unwrap();
    let cause = answer["causes"][0].clone();
    assert_eq!((&cause["id"], &cause["certainty"]), (&id.into(), &"firm".into()));
    println!("{answer:#}");
    cause
}

fn facts(cause: &Value) -> String {
    let facts = cause["evidence"].as_array().unwrap().iter();
    facts.map(|it| it["fact"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// An image with ext4 on a FUSE file system, and the image's server.
fn on_fuse(top: &Path) -> (PathBuf, Held) {
    let served = top.join("served");
    fs::create_dir(&served).unwrap();
    let server = Held(FuseServer::mount(&*served));
    let image = served.join("image");
    make_image(&image, 64 << 20, EXT4);
    (image, server)
}

/// As of a volume whose storage is gone while kubelet deletes its files.
#[test]
fn a_removal_that_waits_for_a_silent_disk_names_the_disk() {
    requires!(root_and_btf(), has_fuse());
    let top = tempfile::tempdir().unwrap();
    let volume = podstuck_tests::empty_dir(top.path());
    let (image, server) = on_fuse(top.path());
    let mounted = Mounted::image(&image, &volume, "");
    let file = volume.join("directory").join("file");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "").unwrap();
    // What is cached needs no disk.
    drop(mounted);
    let mounted = Mounted::image(&image, &volume, "");
    let silence = Silence::of(&server);
    let mut unlink = Command::new("unlink").arg(&file).spawn().unwrap();
    let cause = first_firm(top.path(), "device-not-responding");
    assert!(unlink.try_wait().unwrap().is_none(), "it does not wait for the disk");
    drop(silence);
    assert!(unlink.wait().unwrap().success());
    drop(mounted);
    assert!(cause["held_by"].as_str().unwrap().starts_with("loop"), "{cause:#}");
    let first = cause["remedies"][0].to_string();
    assert!(first.contains(&*image.to_string_lossy()) && first.contains("fuse"), "{first}");
}

#[test]
fn a_loop_device_is_followed_to_the_file_system_of_its_file() {
    requires!(root_and_btf(), has_fuse());
    let top = tempfile::tempdir().unwrap();
    let volume = podstuck_tests::empty_dir(top.path());
    let (image, server) = on_fuse(top.path());
    let mounted = Mounted::image(&image, &volume, "");
    let mut writer = Writer::start(&volume);
    let silence = Silence::of(&server);
    let cause = first_cause(top.path(), &mut writer);
    drop(silence);
    writer.ends();
    drop(writer);
    drop(mounted);
    let facts = facts(&cause);
    assert!(facts.contains("in flight and has completed none"), "{facts}");
    assert!(facts.contains(&format!("a loop device of the file {}", image.display())), "{facts}");
    let first = cause["remedies"][0].to_string();
    assert!(first.contains(&*image.to_string_lossy()) && first.contains("fuse"), "{first}");
}

#[test]
fn a_suspended_disk_below_a_volume_is_resumed_by_the_first_command() {
    requires!(root_and_btf(), device_mapper());
    let top = tempfile::tempdir().unwrap();
    let volume = podstuck_tests::empty_dir(top.path());
    let disk = Suspended::mount(&volume);
    let mut writer = Writer::start(&volume);
    let silence = Silence::of(&disk);
    let cause = first_cause(top.path(), &mut writer);
    let command = cause["remedies"][0]["command"].as_str().unwrap_or_default().to_owned();
    assert!(command.contains("dmsetup resume"), "{cause:#}");
    obey(&command);
    writer.ends();
    drop(silence);
}
