//! The late arrival: what failed did so an hour ago, the next attempt is far away, and the containers'
//! logs, which name the pod, are gone. kubelet's own log names the cause, and the state confirms it.
//!
//! kubelet is a process of that name that sleeps; its log is the file that its standard error goes to.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "late/apparmor.rs"]
mod apparmor;
#[path = "late/driver.rs"]
mod driver;
#[path = "late/forms.rs"]
mod forms;
#[path = "late/frozen.rs"]
mod frozen;
#[path = "late/journal.rs"]
mod journal;
#[path = "late/kubelets_part.rs"]
mod kubelets_part;
#[path = "late/live.rs"]
mod live;
#[path = "late/living.rs"]
mod living;
#[path = "late/nfs.rs"]
mod nfs;
#[path = "common/pods_group.rs"]
mod pods_group;
#[path = "late/reports.rs"]
mod reports;
#[path = "late/sandbox.rs"]
mod sandbox;
#[path = "late/volume.rs"]
mod volume;
#[path = "late/waits.rs"]
mod waits;

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use pods_group::PodsGroup;
use podstuck_tests::{Ending, Recorded, diagnose, of_type};
use serde_json::Value;

/// Beginning of the pods' UIDs.
const UID: &str = "7d9f0b52-5c1e-4d47-9a44-1c5d2e6f7a";
/// In a guest, `/bin/sleep` is busybox, which knows no daemon's name.
const SLEEP: &str = "/usr/bin/sleep";

/// A pod with a volume, and a kubelet that has said what it could not do.
struct Node {
    kubelet: Child,
    directory: tempfile::TempDir,
    uid: String,
}

impl Node {
    /// `error` is what kubelet's last attempt ended with; `{}` in it is the volume. All kubelets that run
    /// are asked, so that each pod has a `number` of its own.
    fn new(number: u8, error: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Not a copy: one that another thread is about to run is busy.
        let program = directory.path().join("kubelet");
        symlink(SLEEP, &program).unwrap();
        let log = File::create(program.with_extension("log")).unwrap();
        let node = Self::with(number, directory, log.into());
        fs::create_dir_all(node.volume()).unwrap();
        fs::write(node.volume().join("kept"), "data").unwrap();
        let error = error.replace("{}", node.volume().to_str().unwrap());
        fs::write(
            program.with_extension("log"),
            log_of(&node.uid, &node.name(), &node.unique_name(), &error),
        )
        .unwrap();
        node
    }

    /// A kubelet that writes its standard error there.
    fn with(number: u8, directory: tempfile::TempDir, stderr: Stdio) -> Self {
        Self::running(number, directory, &["600"], stderr)
    }

    fn running(
        number: u8,
        directory: tempfile::TempDir,
        words: &[&str],
        stderr: impl Into<Stdio>,
    ) -> Self {
        let program = directory.path().join("kubelet");
        let kubelet = Command::new(program).args(words).stderr(stderr).spawn().unwrap();
        Self { kubelet, directory, uid: format!("{UID}{number:02}") }
    }

    /// A kubelet that has written this of its pod, which has a directory without volumes.
    fn logging(number: u8, log: impl FnOnce(&Self) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        symlink(SLEEP, directory.path().join("kubelet")).unwrap();
        let path = directory.path().join("kubelet.log");
        let node = Self::with(number, directory, File::create(&path).unwrap().into());
        fs::create_dir_all(node.root().join("pods").join(&node.uid)).unwrap();
        fs::write(&path, log(&node)).unwrap();
        node
    }

    /// A kubelet and another process of this name, each with a log that is still empty.
    fn beside(number: u8, other: &str) -> (Self, Ending) {
        let directory = tempfile::tempdir().unwrap();
        symlink(SLEEP, directory.path().join(other)).unwrap();
        let log = File::create(directory.path().join(other).with_extension("log")).unwrap();
        let mut command = Command::new(directory.path().join(other));
        let other = Ending::start(command.arg("600").stderr(log));
        symlink(SLEEP, directory.path().join("kubelet")).unwrap();
        let log = File::create(directory.path().join("kubelet.log")).unwrap();
        let node = Self::with(number, directory, log.into());
        fs::create_dir_all(node.volume()).unwrap();
        (node, other)
    }

    /// The log of a process of this name.
    fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join(name).with_extension("log")
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("var/lib/kubelet")
    }

    fn volume(&self) -> PathBuf {
        self.root().join("pods").join(&self.uid).join("volumes/kubernetes.io~empty-dir/data")
    }

    fn name(&self) -> String {
        format!("late-{}", &self.uid[self.uid.len() - 2..])
    }

    /// Of the volume, in kubelet's words.
    fn unique_name(&self) -> String {
        format!("kubernetes.io/empty-dir/{}-data", self.uid)
    }

    /// Asks about the pod by its UID.
    fn ask(&self, timeout: &str) -> (Vec<Value>, Option<i32>) {
        self.ask_with(&["--pod-uid", &self.uid], timeout)
    }

    /// Asks about the pod by its record.
    fn ask_with_record(&self, record: &Value) -> (Vec<Value>, Option<i32>) {
        let file = self.directory.path().join("pod.json");
        fs::write(&file, record.to_string()).unwrap();
        self.ask_with(&["--pod-json", file.to_str().unwrap()], "20s")
    }

    fn ask_with(&self, pod: &[&str], timeout: &str) -> (Vec<Value>, Option<i32>) {
        let root = self.root();
        let of_node = ["--kubelet-root", root.to_str().unwrap(), "--timeout", timeout];
        let (lines, status) = diagnose(&[pod, &of_node].concat()).finish();
        (lines, status.code())
    }

    /// Asks about the pod by its name.
    fn diagnose(&self, timeout: &str) -> (Vec<Value>, Option<i32>) {
        let root = self.root();
        let root = root.to_str().unwrap();
        let pod = format!("shop/{}", self.name());
        let recorded = Recorded::new();
        let recording = recorded.options();
        let mut asked = vec!["--pod", &pod, "--kubelet-root", root, "--timeout", timeout];
        asked.extend(recording.iter().map(String::as_str));
        let (lines, status) = diagnose(&asked).finish();
        recorded.assert_replayed(&lines, status.code());
        (lines, status.code())
    }
}

impl Drop for Node {
    /// Also what a test that failed has left.
    fn drop(&mut self) {
        let quiet = |program: &str| {
            let mut command = Command::new(program);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        for point in [self.volume().join("sub"), self.volume()] {
            let _ = quiet("umount").arg("--lazy").arg(point).status();
        }
        let _ = quiet("chattr").args(["-R", "-i"]).arg(self.volume()).status();
        self.kubelet.kill().unwrap();
        self.kubelet.wait().unwrap();
    }
}

/// A process in the control group of a pod's container.
struct Container {
    process: Ending,
    group: PodsGroup,
}

impl Container {
    fn new(uid: &str) -> Self {
        Self::of(uid, &"c0ffee00".repeat(8), Command::new("sleep").arg("600"))
    }

    fn of(uid: &str, id: &str, command: &mut Command) -> Self {
        let process = Ending::start(command);
        let group = PodsGroup::of("late", uid, id, &[process.id()]);
        Self { process, group }
    }
}

/// A line of klog that was written `ago` seconds before now.
fn klog(ago: i64, letter: char, text: &str) -> String {
    let time = Timestamp::now().checked_sub(SignedDuration::from_secs(ago)).unwrap();
    let local = time.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f").to_string();
    format!("{letter}{local}   77 source.go:1] {text}\n")
}

/// A line of logrus that was written `ago` seconds before now.
fn logrus(ago: i64, level: &str, text: &str) -> String {
    let time = Timestamp::now().checked_sub(SignedDuration::from_secs(ago)).unwrap();
    format!("time=\"{time}\" level={level} {text}\n")
}

/// An hour of a kubelet, in short: the pod's containers end, and the last three attempts fail.
fn log_of(uid: &str, name: &str, volume: &str, error: &str) -> String {
    let killing = format!(
        "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" gracePeriod=30"
    );
    let failed = [344, 222, 100].map(|ago| failed_attempt(ago, uid, volume, error));
    klog(3600, 'I', &killing) + &failed.concat()
}

/// An attempt to unmount the volume that failed a number of seconds ago.
fn failed_attempt(ago: i64, uid: &str, volume: &str, error: &str) -> String {
    let retry = Timestamp::now().checked_sub(SignedDuration::from_secs(ago - 122)).unwrap();
    let retry = retry.strftime("%F %T.%f +0000 UTC");
    let text = format!(
        "Operation for \"{{volumeName:{volume} podName:{uid} nodeName:}}\" \
         failed. No retries permitted until {retry} m=+9.5 (durationBeforeRetry 2m2s). Error: \
         UnmountVolume.TearDown failed for volume \"{volume}\" (UniqueName: \
         \"{volume}\") pod \"{uid}\" (UID: \"{uid}\") : {error}"
    );
    klog(ago, 'E', &text)
}

fn chattr(flag: &str, path: &Path) {
    assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
}

fn answer(lines: &[Value]) -> &Value {
    of_type(lines, "diagnosis").last().copied().unwrap()
}
