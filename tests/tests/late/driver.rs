//! A CSI driver, by what kubelet has met and what it has written itself.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use jiff::{Timestamp, tz::TimeZone};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{diagnose, podstuck, requires, root_and_btf, run};
use serde_json::Value;

use super::{answer, failed_attempt, log_of};
use crate::pods_group::PodsGroup;

/// Its driver, from outside, has forgotten the volume.
pub(super) const SILENT: &str = "csi-driver-lost-publish-state-silent";

/// A lab that logs to a file, ended in order.
pub(super) struct Logging {
    lab: Child,
    pub(super) log: tempfile::NamedTempFile,
    /// What it has said of itself.
    pub(super) ready: Value,
    /// Its volume, as kubelet calls it, and the driver.
    pub(super) volume: String,
    handle: String,
}

impl Logging {
    pub(super) fn start(lab: &str) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stderr = File::options().append(true).open(log.path()).unwrap();
        let mut command = Command::new(podstuck());
        command.args(["lab", lab]).stdout(Stdio::piped()).stderr(stderr);
        let (volume, handle) = (String::new(), String::new());
        let mut running =
            Self { lab: command.spawn().unwrap(), log, ready: Value::Null, volume, handle };
        let mut first = String::new();
        BufReader::new(running.lab.stdout.take().unwrap()).read_line(&mut first).unwrap();
        running.ready = serde_json::from_str(&first).unwrap();
        let directory = Path::new(running.of("path")).parent().unwrap();
        let data = fs::read_to_string(directory.join("vol_data.json")).unwrap();
        let data: Value = serde_json::from_str(&data).unwrap();
        let text = |name: &str| data[name].as_str().unwrap();
        running.handle = text("volumeHandle").to_owned();
        running.volume = format!("kubernetes.io/csi/{}^{}", text("driverName"), running.handle);
        running
    }

    pub(super) fn of(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap()
    }

    pub(super) fn write(&self, text: &str) {
        let mut log = File::options().append(true).open(self.log.path()).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.lab.id().cast_signed()), Signal::SIGINT).unwrap();
        self.lab.wait().unwrap();
    }
}

/// Plays a lab whose kubelet has had this error of its CSI volume; what is found.
fn asked_of_a_driver(lab: &str, error: &str) -> Value {
    let error = format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {error}");
    late_for_a_driver(lab, |uid, volume| met_by_this_driver(uid, lab, volume, &error))
}

/// An hour of failed attempts, the last of which the driver's present process has answered.
fn met_by_this_driver(uid: &str, lab: &str, volume: &str, error: &str) -> String {
    log_of(uid, lab, volume, error) + &failed_attempt(0, uid, volume, error)
}

/// The same, with this log of the pod's UID and its volume.
fn late_for_a_driver(lab: &str, log_of: impl Fn(&str, &str) -> String) -> Value {
    let lines = late_beside_a_driver(lab, log_of, |_, _| ());
    let cause = answer(&lines)["causes"][0].clone();
    assert_eq!(cause["certainty"], "firm", "{lines:#?}");
    assert!(cause["evidence"].to_string().contains("kubelet says"), "{cause:#}");
    cause
}

/// The same, with what else is to be there, of the lab and the volume's handle.
fn late_beside_a_driver<T>(
    lab: &str,
    log_of: impl Fn(&str, &str) -> String,
    prepare: impl FnOnce(&Value, &str) -> T,
) -> Vec<Value> {
    let lab = Logging::start(lab);
    lab.write(&log_of(lab.of("pod_uid"), &lab.volume));
    let _prepared = prepare(&lab.ready, &lab.handle);

    // Shorter than the time that it takes without a log.
    let (uid, root) = (lab.of("pod_uid"), lab.of("kubelet_root"));
    let asked = ["--pod-uid", uid, "--kubelet-root", root, "--timeout", "40s"];
    diagnose(&asked).finish().0
}

/// Seen for the first time, a driver that is not there may be on its way: it is reported a minute
/// later. kubelet has met it for minutes.
#[test]
fn a_driver_that_was_missed_before_is_reported_at_once() {
    requires!(root_and_btf());
    let error = "driver name x not found in the list of registered CSI drivers";
    let cause = asked_of_a_driver("csi-driver-not-registered", error);
    assert_eq!(cause["id"], "csi-driver-not-registered", "{cause:#}");
}

/// As if the driver had forgotten the volume: it is there, and is not unmounted.
#[test]
fn a_driver_that_answers_with_errors_is_not_said_to_have_forgotten() {
    requires!(root_and_btf());
    let error = "rpc error: code = NotFound desc = volume x does not exist in the volumes list";
    let cause = asked_of_a_driver(SILENT, error);
    assert_eq!(cause["id"], "csi-driver-error", "{cause:#}");
}

/// The call that kubelet makes was answered, and it makes no other one: nothing will ever be seen.
#[test]
fn a_driver_that_said_that_all_is_well_is_reported_to_have_forgotten_at_once() {
    requires!(root_and_btf());
    let cause = late_for_a_driver(SILENT, |uid, volume| {
        let now = Timestamp::now().to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f");
        format!(
            "I{now}   77 operation_generator.go:782] UnmountVolume.TearDown succeeded for volume \
             \"{volume}\" pod \"{uid}\" (UID: \"{uid}\"). InnerVolumeSpecName \"pv\". PluginName \
             \"kubernetes.io/csi\", VolumeGIDValue \"\"\n"
        )
    });
    assert_eq!(cause["id"], "csi-driver-lost-publish-state", "{cause:#}");
}

/// Of a driver without its process, kubelet says that it cannot connect.
#[test]
fn a_driver_that_was_down_before_is_reported_at_once() {
    requires!(root_and_btf());
    let error =
        "rpc error: code = Unavailable desc = connection error: dial unix csi.sock: refused";
    let cause = asked_of_a_driver("csi-driver-down", error);
    assert_eq!(cause["id"], "csi-driver-down", "{cause:#}");
}

/// The process that listens on a socket below a directory.
fn listener_below(root: &str, socket: &str) -> String {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let of_driver = |line: &&str| line.contains(root) && line.ends_with(socket);
    let inode = sockets.lines().find(of_driver).unwrap().split_ascii_whitespace().nth(6).unwrap();
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has_it = |process: &PathBuf| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(&link)))
    };
    let found = processes.into_iter().find(has_it).unwrap();
    found.file_name().unwrap().to_str().unwrap().to_owned()
}

/// A driver in a pod writes to the file of its container, where kubelet's error is explained.
#[test]
fn what_a_driver_has_written_is_quoted_with_its_source() {
    requires!(root_and_btf());
    let driver = "9a1b2c3d-0000-4111-8222-3333444455aa";
    let error =
        "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = unmount";
    let lab = SILENT;
    let (mut log, mut checks) = (PathBuf::new(), String::new());
    let lines = late_beside_a_driver(
        lab,
        |uid, volume| met_by_this_driver(uid, lab, volume, error),
        |ready, handle| {
            let root = ready["root"].as_str().unwrap();
            let container = format!("var/log/pods/kube-system_driver-0_{driver}/driver");
            log = Path::new(root).join(container).join("3.log");
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            let now = Timestamp::now();
            let line = format!(
                "{now} stderr F E0101 10:00:00.000001       7 nodeserver.go:99] GRPC error: cannot unmount \
                 {handle}: exit status 16 \u{1b}[2J\n{now} stderr F I0101 10:00:00.000002 7 x.go:1] {handle}\n"
            );
            fs::write(&log, line).unwrap();
            let both = ["/csi.sock", "-reg.sock"].map(|socket| listener_below(root, socket));
            let group = PodsGroup::with("late", driver, &both);
            let kubelet_root = ready["kubelet_root"].as_str().unwrap();
            let doctor = run(&["doctor", "--output", "json", "--kubelet-root", kubelet_root]);
            checks = String::from_utf8(doctor.stdout).unwrap();
            group
        },
    );
    let checks = checks.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_drivers = checks.filter(|check| check["name"] == "CSI driver's log");
    let texts: Vec<String> = of_drivers.map(|check| check["found"].to_string()).collect();
    assert!(texts.iter().any(|text| text.contains(log.to_str().unwrap())), "{texts:?}");
    let answer = answer(&lines);
    let said: Vec<&Value> = answer["said"].as_array().unwrap().iter().collect();
    let of_driver: Vec<&&Value> =
        said.iter().filter(|said| said["component"] == "csi-driver").collect();
    let [said] = of_driver.as_slice() else { panic!("{answer:#}") };
    let text = said["text"].as_str().unwrap();
    assert!(
        text.starts_with("GRPC error: cannot unmount ") && text.ends_with(r"\x1b[2J"),
        "{text}"
    );
    let source = said["source"].as_str().unwrap();
    assert!(
        source.starts_with("log of csi-driver (pid ") && source.ends_with(log.to_str().unwrap())
    );
    let cause = &answer["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&"csi-driver-error".into(), &"firm".into()));
    assert!(cause["evidence"].to_string().contains("the CSI driver said at"), "{cause:#}");
}
