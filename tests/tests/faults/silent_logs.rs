//! A disk below the logs that does not answer: nothing is kept back, what was not read is named, and so is a helper that
//! cannot be killed.

use std::{
    fs::{self, File},
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use podstuck_tests::{Ending, FuseServer, has_fuse, requires, root_and_btf, summary, watch};

use crate::{
    silent::{ends, name, next_attempt},
    silent_disks::{Disk, Held, Silence, Suspended, device_mapper},
    stuck_pod::StuckPod,
};

/// Ended when dropped.
struct Kubelet(Ending);

impl Kubelet {
    /// A process of that name, with its log below a directory.
    fn logging_to(directory: &Path) -> Self {
        let programs = tempfile::tempdir().unwrap();
        let program = programs.path().join("kubelet");
        symlink(fs::canonicalize("/bin/sleep").unwrap(), &program).unwrap();
        let log = File::create(directory.join("kubelet.log")).unwrap();
        let mut kubelet = Command::new(program);
        Self(Ending::start(kubelet.arg0("sleep").arg("600").stderr(Stdio::from(log))))
    }
}

/// What was reported as missing by a watch that was there before the disk fell silent, and by one that came since.
struct Missing {
    before: String,
    since: String,
    /// Whose log was there.
    kubelet: u32,
    at: PathBuf,
}

impl Missing {
    /// The directory that may name the pod is missing in the first one, kubelet's log in the other.
    fn assert_reported(&self) {
        let at = self.at.to_str().unwrap();
        // Of a request that was taken back, no more is to be seen: so a helper tries, and comes to nothing.
        let mut pods = ["is not examined, because", "could not be read"].into_iter();
        let is_reported = pods.any(|why| self.before.contains(&format!("{at}/pods {why}")));
        assert!(is_reported, "{}", self.before);
        let log = format!("the log of kubelet (pid {}) could not be read: ", self.kubelet);
        let rest = self.since.split_once(&log).map(|(_, rest)| rest);
        assert!(rest.is_some_and(|rest| rest.contains(at)), "{}", self.since);
    }

    /// The helper that cannot be killed, by its id and the place that it keeps busy: of the watch that came first to
    /// the disk. The other one sees that the disk does not answer, and keeps away.
    fn helper_is_named(&self) {
        let both = format!("{}\n{}", self.before, self.since);
        println!("{both}");
        let (_, rest) = both.split_once("helper process ").unwrap();
        let (pid, rest) = rest.split_once(" of podstuck hangs at ").unwrap();
        let place = rest.split(',').next().unwrap();
        assert!(place.contains(self.at.to_str().unwrap()), "{place}");
        let pid: u32 = pid.parse().unwrap();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        println!("measured: {state}");
        assert_eq!(name(pid), "helper");
        assert!(state.contains(") D "), "{state}");
    }
}

/// Nothing names the pod, so that its name is looked for again and again.
fn below_the_logs(disk: &dyn Disk, pod: &StuckPod, look: impl FnOnce(&Missing)) {
    let _ = fs::remove_dir_all(logs_of(pod).join("pods"));
    fs::create_dir(disk.at().join("pods")).unwrap();
    let kubelet = Kubelet::logging_to(disk.at());
    let options = ["--kubelet-root", pod.root()];
    let mut before = watch(&options);
    let mut since;
    let silence = Silence::of(disk);
    since = watch(&options);
    pod.start();
    for watch in [&mut before, &mut since] {
        let found = pod.cause_is_found(watch);
        next_attempt(pod, &found, watch);
    }
    let [before, since] = [before, since].map(|watch| {
        let (lines, status) = ends(watch);
        assert_eq!(status.code(), Some(1), "{lines:#?}");
        let all = summary(&lines)["completeness"]["degraded"].as_array().unwrap().clone();
        all.iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    });
    look(&Missing { before, since, kubelet: kubelet.0.id(), at: disk.at().to_owned() });
    drop(silence);
    drop(kubelet);
}

/// The lab's own, since all processes of this machine use the other.
fn logs_of(pod: &StuckPod) -> PathBuf {
    Path::new(pod.root()).ancestors().nth(2).unwrap().join("log")
}

#[test]
fn a_stopped_fuse_server_below_the_logs_keeps_nothing_back() {
    requires!(root_and_btf(), has_fuse());
    let pod = StuckPod::build();
    let disk = FuseServer::mount(logs_of(&pod));
    // A process that waits for a request that the server has not taken is killed.
    below_the_logs(&disk, &pod, Missing::assert_reported);
    drop(disk);
    pod.end();
}

#[test]
fn a_helper_that_waits_for_a_fuse_server_below_the_logs_is_named_by_its_id() {
    requires!(root_and_btf(), has_fuse());
    let pod = StuckPod::build();
    let disk = Held(FuseServer::mount(logs_of(&pod)));
    below_the_logs(&disk, &pod, |missing| {
        missing.assert_reported();
        missing.helper_is_named();
    });
    drop(disk);
    pod.end();
}

#[test]
fn a_suspended_disk_below_the_logs_keeps_nothing_back() {
    requires!(root_and_btf(), device_mapper());
    let pod = StuckPod::build();
    let disk = Suspended::mount(Path::new("/var/log"));
    below_the_logs(&disk, &pod, Missing::assert_reported);
    drop(disk);
    pod.end();
}
