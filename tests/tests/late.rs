//! The late arrival: what failed did so an hour ago, the next attempt is far away, and the containers'
//! logs, which name the pod, are gone. kubelet's own log tells, and the state confirms.
//!
//! kubelet is a process of that name that sleeps; its log is the file that its standard error goes to.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{fs::symlink, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{Recorded, diagnose, of_type, podstuck, requires, root_and_btf, run, summary};
use serde_json::Value;

/// Beginning of the pods' UIDs.
const UID: &str = "7d9f0b52-5c1e-4d47-9a44-1c5d2e6f7a";

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
        symlink("/bin/sleep", &program).unwrap();
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
        let program = directory.path().join("kubelet");
        let kubelet = Command::new(program).arg("600").stderr(stderr).spawn().unwrap();
        Self { kubelet, directory, uid: format!("{UID}{number:02}") }
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
            let _ = quiet("umount").arg(point).status();
        }
        let _ = quiet("chattr").args(["-R", "-i"]).arg(self.volume()).status();
        self.kubelet.kill().unwrap();
        self.kubelet.wait().unwrap();
    }
}

/// An hour of a kubelet, in short: the pod's containers end, and the last three attempts fail.
fn log_of(uid: &str, name: &str, volume: &str, error: &str) -> String {
    let line = |ago: i64, letter: char, text: &str| {
        let time = Timestamp::now().checked_sub(SignedDuration::from_secs(ago)).unwrap();
        let local = time.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f").to_string();
        format!("{letter}{local}   77 source.go:1] {text}\n")
    };
    let killing = format!(
        "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" gracePeriod=30"
    );
    let failed = |ago: i64| {
        let retry = Timestamp::now().checked_sub(SignedDuration::from_secs(ago - 122)).unwrap();
        let retry = retry.strftime("%F %T.%f +0000 UTC");
        let text = format!(
            "Operation for \"{{volumeName:{volume} podName:{uid} nodeName:}}\" \
             failed. No retries permitted until {retry} m=+9.5 (durationBeforeRetry 2m2s). Error: \
             UnmountVolume.TearDown failed for volume \"{volume}\" (UniqueName: \
             \"{volume}\") pod \"{uid}\" (UID: \"{uid}\") : {error}"
        );
        line(ago, 'E', &text)
    };
    line(3600, 'I', &killing) + &failed(344) + &failed(222) + &failed(100)
}

fn chattr(flag: &str, path: &Path) {
    assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
}

fn answer(lines: &[Value]) -> &Value {
    of_type(lines, "diagnosis").last().copied().unwrap()
}

#[test]
fn an_immutable_file_is_told_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(1, "unlinkat {}/kept: operation not permitted");
    let file = node.volume().join("kept");
    chattr("+i", &file);
    let (lines, status) = node.diagnose("100s");
    chattr("-i", &file);

    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "immutable-attribute", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["count"]), (&"firm".into(), &3.into()), "{cause:#}");
    assert_eq!(cause["pod"]["name"], node.name(), "{cause:#}");
    let of_log = |fact: &Value| fact["source"].as_str().unwrap().starts_with("log of kubelet");
    assert!(cause["evidence"].as_array().unwrap().iter().any(of_log), "{cause:#}");
    assert_eq!(answer["said"][0]["times"], 3, "{answer:#}");
    assert_eq!(summary(&lines)["calls"], 0, "nobody has tried: {lines:#?}");
    assert_eq!(status, Some(1));
}

#[test]
fn what_was_cured_meanwhile_is_quoted_and_not_blamed() {
    requires!(root_and_btf());
    let node = Node::new(2, "unlinkat {}/kept: operation not permitted");
    let (lines, status) = node.diagnose("4s");
    let answer = answer(&lines);
    assert_eq!(answer["causes"], serde_json::json!([]), "{answer:#}");
    let text = answer["said"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("kept: operation not permitted"), "{answer:#}");
    assert_eq!(status, Some(5), "still there, and no cause");
}

#[test]
fn a_mount_in_an_empty_dir_is_told_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(3, "unlinkat {}/sub: device or resource busy");
    let point = node.volume().join("sub");
    fs::create_dir(&point).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(&point).status().unwrap();
    assert!(mount(&["-t", "tmpfs", "none"]).success());
    let (lines, _) = node.diagnose("100s");
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "emptydir-bidirectional-submount", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["blocks_deletion"]), (&"firm".into(), &true.into()));
}

#[test]
fn a_read_only_mount_over_a_volume_is_told_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(6, "unlinkat {}/kept: read-only file system");
    let volume = node.volume();
    let mount = |args: &[&str]| {
        let status = Command::new("mount").args(args).arg(&volume).status().unwrap();
        assert!(status.success(), "{args:?}");
    };
    mount(&["--bind", node.directory.path().to_str().unwrap()]);
    mount(&["-o", "remount,bind,ro"]);
    let (lines, _) = node.diagnose("100s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "mount-over-volume", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["blocks_deletion"]), (&"firm".into(), &true.into()));
}

#[test]
fn who_holds_a_mount_is_told_before_the_next_attempt() {
    requires!(root_and_btf());
    let complaint = "unmount failed: exit status 32\nUnmounting arguments: {}\nOutput: umount: {}: target \
        is busy.\n";
    let node = Node::new(4, complaint);
    let volume = node.volume();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&volume).status().unwrap();
    assert!(mounted.success());
    let mut holder = Command::new("sleep").arg("600").current_dir(&volume).spawn().unwrap();
    let (lines, _) = node.diagnose("100s");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(Command::new("umount").arg(&volume).status().unwrap().success());
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "volume-held-by-host-process", "{answer:#}");
    let names = format!("pid {}", holder.id());
    assert!(cause["evidence"].to_string().contains(&names), "{names}: {cause:#}");
}

/// A pod's control groups of version 1, frozen, with a container in them that was killed.
struct FrozenPod {
    groups: Vec<PathBuf>,
    container: Child,
}

const GROUPS: &str = "/sys/fs/cgroup";

fn freezer() -> Result<(), &'static str> {
    let there = Path::new(GROUPS).join("freezer/cgroup.procs").exists();
    if there { root_and_btf() } else { Err("needs the freezer of control groups version 1") }
}

impl FrozenPod {
    fn new(uid: &str) -> Self {
        let below =
            |tree: &str| Path::new(GROUPS).join(tree).join(format!("podstuck-late/pod{uid}"));
        let groups: Vec<PathBuf> = ["pids", "freezer"].map(below).into();
        let container = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = container.id();
        let frozen = Self { groups, container };
        for group in &frozen.groups {
            let container = group.join("c0ffee00".repeat(8));
            fs::create_dir_all(&container).unwrap();
            fs::write(container.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        frozen.set("FROZEN");
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
        frozen
    }

    fn set(&self, state: &str) {
        let file = self.groups[1].join("freezer.state");
        fs::write(&file, state).unwrap();
        // A process that is about to run gets there a moment later.
        while fs::read_to_string(&file).unwrap().trim() != state {
            std::thread::yield_now();
        }
    }
}

impl Drop for FrozenPod {
    fn drop(&mut self) {
        self.set("THAWED");
        self.container.kill().unwrap();
        self.container.wait().unwrap();
        for group in &self.groups {
            let container = group.join("c0ffee00".repeat(8));
            for group in container.ancestors().take(3) {
                let _ = fs::remove_dir(group);
            }
        }
    }
}

/// Nobody is asked here but kubelet's log, as where the API server answers nobody.
#[test]
fn what_holds_a_frozen_pod_next_is_told_where_kubelet_was_told_to_delete_it() {
    requires!(freezer());
    for (number, is_told) in [(21, true), (22, false)] {
        let node = Node::new(number, "");
        let (name, uid) = (node.name(), &node.uid);
        let told = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]\n");
        let killing = format!(
            "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" gracePeriod=30\n"
        );
        let time = Timestamp::now().checked_sub(SignedDuration::from_secs(600)).unwrap();
        let time = time.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f");
        let lines = [is_told.then_some(told), Some(killing)].into_iter().flatten();
        let log: String = lines.map(|line| format!("I{time}   77 kubelet.go:1] {line}")).collect();
        fs::write(node.directory.path().join("kubelet.log"), log).unwrap();
        chattr("+i", &node.volume().join("kept"));
        let frozen = FrozenPod::new(uid);
        let (lines, status) = node.diagnose("100s");
        drop(frozen);

        let answer = answer(&lines);
        let ids: Vec<&Value> =
            answer["causes"].as_array().unwrap().iter().map(|cause| &cause["id"]).collect();
        let next = is_told.then_some("immutable-attribute");
        let expected: Vec<&str> = ["cgroup-v1-frozen"].into_iter().chain(next).collect();
        assert_eq!(ids, expected, "{answer:#}");
        assert_eq!(status, Some(1));
        if is_told {
            let told = "the API server has told kubelet that the pod is to be deleted";
            let evidence = answer["causes"][1]["evidence"].as_array().unwrap();
            let fact = evidence.iter().find(|fact| fact["fact"] == told).unwrap();
            assert!(fact["source"].as_str().unwrap().starts_with("log of kubelet"), "{fact:#}");
        }
    }
}

/// The program that makes a journal out of text.
const JOURNAL_REMOTE: &str = "/lib/systemd/systemd-journal-remote";

fn journal() -> Result<(), &'static str> {
    let there = [JOURNAL_REMOTE, "/etc/machine-id"].iter().all(|path| Path::new(path).exists());
    if there { root_and_btf() } else { Err("needs systemd-journal-remote") }
}

/// A file among those of this machine's journal, for as long as it lives.
struct JournalFile(PathBuf);

impl JournalFile {
    /// What a process has written, as if systemd had taken it.
    fn new(pid: u32, log: &str) -> Self {
        let id = |path: &str| fs::read_to_string(path).unwrap().trim().replace('-', "");
        let machine = id("/etc/machine-id");
        let directory = Path::new("/run/log/journal").join(&machine);
        fs::create_dir_all(&directory).unwrap();
        let file = Self(directory.join(format!("podstuck-test-{pid}.journal")));
        let now = Timestamp::now().as_microsecond();
        let boot = id("/proc/sys/kernel/random/boot_id");
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let unit = groups.split(['/', '\n']).rfind(|part| part.ends_with(".service"));
        let unit = unit.map(|unit| format!("_SYSTEMD_UNIT={unit}\n")).unwrap_or_default();
        let entries: String = log
            .lines()
            .map(|line| {
                format!(
                    "__REALTIME_TIMESTAMP={now}\n_MACHINE_ID={machine}\n_BOOT_ID={boot}\n_PID={pid}\n\
                     {unit}MESSAGE={line}\n\n"
                )
            })
            .collect();
        let mut writer = Command::new(JOURNAL_REMOTE)
            .arg("--output")
            .arg(&file.0)
            .arg("-")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(entries.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        file
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        // Where there was no journal before, there is none afterwards.
        for directory in self.0.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[test]
fn a_kubelet_that_logs_to_the_journal_is_heard() {
    requires!(journal());
    let directory = tempfile::tempdir().unwrap();
    symlink("/bin/sleep", directory.path().join("kubelet")).unwrap();
    let (socket, _other_end) = UnixStream::pair().unwrap();
    let node = Node::with(5, directory, OwnedFd::from(socket).into());
    fs::create_dir_all(node.volume()).unwrap();
    let file = node.volume().join("kept");
    fs::write(&file, "data").unwrap();
    chattr("+i", &file);
    let error = format!("unlinkat {}: operation not permitted", file.display());
    let _journal = JournalFile::new(
        node.kubelet.id(),
        &log_of(&node.uid, &node.name(), &node.unique_name(), &error),
    );
    let (lines, _) = node.diagnose("100s");
    let answer = answer(&lines);
    assert_eq!(answer["causes"][0]["id"], "immutable-attribute", "{answer:#}");
    assert!(answer["said"][0]["source"].as_str().unwrap().contains("journal"), "{answer:#}");
}

/// A lab that logs to a file, ended in order.
struct LoggingLab(Child);

impl Drop for LoggingLab {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT).unwrap();
        self.0.wait().unwrap();
    }
}

/// Plays a lab whose kubelet has had this error of its CSI volume; what is found.
fn asked_of_a_driver(lab: &str, error: &str) -> Value {
    let error = format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {error}");
    late_for_a_driver(lab, |uid, volume| log_of(uid, lab, volume, &error))
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
    let log = tempfile::NamedTempFile::new().unwrap();
    let open = || File::options().append(true).open(log.path()).unwrap();
    let mut command = Command::new(podstuck());
    command.args(["lab", lab]).stdout(Stdio::piped()).stderr(open());
    let mut running = LoggingLab(command.spawn().unwrap());
    let mut first = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ready: Value = serde_json::from_str(&first).unwrap();
    let of = |name: &str| ready[name].as_str().unwrap();
    let volume = Path::new(of("path")).parent().unwrap();
    let data = fs::read_to_string(volume.join("vol_data.json")).unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    let text = |name: &str| data[name].as_str().unwrap();
    let volume = format!("kubernetes.io/csi/{}^{}", text("driverName"), text("volumeHandle"));
    let said = log_of(of("pod_uid"), &volume);
    open().write_all(said.as_bytes()).unwrap();
    let _prepared = prepare(&ready, text("volumeHandle"));

    // Shorter than the time that it takes without a log.
    let asked =
        ["--pod-uid", of("pod_uid"), "--kubelet-root", of("kubelet_root"), "--timeout", "40s"];
    diagnose(&asked).finish().0
}

/// Seen for the first time, a driver that is not there may be on its way: it takes a minute until that
/// is told. kubelet has met it for minutes.
#[test]
fn a_driver_that_was_missed_before_is_told_at_once() {
    requires!(root_and_btf());
    let error = "driver name x not found in the list of registered CSI drivers";
    let cause = asked_of_a_driver("csi-driver-not-registered", error);
    assert_eq!(cause["id"], "csi-driver-not-registered", "{cause:#}");
}

/// What looks as if the driver had forgotten the volume: it is there, and nobody unmounts.
#[test]
fn a_driver_that_answers_with_errors_is_not_said_to_have_forgotten() {
    requires!(root_and_btf());
    let error = "rpc error: code = NotFound desc = volume x does not exist in the volumes list";
    let cause = asked_of_a_driver("csi-driver-lost-publish-state-silent", error);
    assert_eq!(cause["id"], "csi-driver-error", "{cause:#}");
}

/// The call that kubelet makes was answered, and it makes no other one: nothing will ever be seen.
#[test]
fn a_driver_that_said_that_all_is_well_is_told_to_have_forgotten_at_once() {
    requires!(root_and_btf());
    let cause = late_for_a_driver("csi-driver-lost-publish-state-silent", |uid, volume| {
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
fn a_driver_that_was_down_before_is_told_at_once() {
    requires!(root_and_btf());
    let error =
        "rpc error: code = Unavailable desc = connection error: dial unix csi.sock: refused";
    let cause = asked_of_a_driver("csi-driver-down", error);
    assert_eq!(cause["id"], "csi-driver-down", "{cause:#}");
}

/// A control group in which a driver is in a container of a pod.
struct DriversGroup(PathBuf);

impl DriversGroup {
    fn new(uid: &str, pids: &[String]) -> Self {
        let tops = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let top = tops.map(Path::new).into_iter().find(|top| top.join("cgroup.procs").exists());
        let name = format!("podstuck-late-{}/pod{uid}/{}", std::process::id(), "d0".repeat(32));
        let group = Self(top.unwrap().join(name));
        fs::create_dir_all(&group.0).unwrap();
        pids.iter().for_each(|pid| fs::write(group.0.join("cgroup.procs"), pid).unwrap());
        group
    }
}

impl Drop for DriversGroup {
    fn drop(&mut self) {
        let top = self.0.ancestors().nth(3).unwrap();
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(top.join("cgroup.procs"), pid);
        }
        for group in self.0.ancestors().take(3) {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Who listens on a socket below a directory.
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
    let lab = "csi-driver-lost-publish-state-silent";
    let (mut log, mut checks) = (PathBuf::new(), String::new());
    let lines = late_beside_a_driver(
        lab,
        |uid, volume| log_of(uid, lab, volume, error),
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
            let group = DriversGroup::new(driver, &both);
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

/// A runtime's journal, where kubelet says nothing and no call is made: the plugin's error is all there is.
#[test]
fn a_plugin_that_fails_is_told_by_the_runtimes_journal() {
    requires!(journal());
    let directory = tempfile::tempdir().unwrap();
    symlink("/bin/sleep", directory.path().join("containerd")).unwrap();
    symlink("/bin/sleep", directory.path().join("kubelet")).unwrap();
    let (socket, _other_end) = UnixStream::pair().unwrap();
    let program = directory.path().join("containerd");
    let stderr = OwnedFd::from(socket);
    let mut runtime = Command::new(program).arg("600").stderr(stderr).spawn().unwrap();
    let node = Node::with(7, directory, Stdio::null());
    fs::create_dir_all(node.volume()).unwrap();
    let sandbox = "5b".repeat(32);
    let line = |ago: i64, level: &str, text: &str| {
        let time = Timestamp::now().checked_sub(SignedDuration::from_secs(ago)).unwrap();
        format!("time=\"{time}\" level={level} {text}\n")
    };
    // As in projectcalico/calico issue 7220.
    let made = format!(
        "msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:{},Uid:{},Namespace:shop,Attempt:0,}} returns \
         sandbox id \\\"{sandbox}\\\"\"",
        node.name(),
        node.uid
    );
    let failed = format!(
        "msg=\"StopPodSandbox for \\\"{sandbox}\\\" failed\" error=\"failed to destroy network for sandbox \
         \\\"{sandbox}\\\": plugin type=\\\"calico\\\" failed (delete): error getting ClusterInformation: \
         connection is unauthorized: Unauthorized\""
    );
    let log = line(3600, "info", &made) + &line(70, "error", &failed) + &line(10, "error", &failed);
    let journal = JournalFile::new(runtime.id(), &log);
    let root = node.root();
    let asked =
        ["--pod-uid", &node.uid, "--kubelet-root", root.to_str().unwrap(), "--timeout", "5s"];
    let (lines, _) = diagnose(&asked).finish();
    drop(journal);
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "cni-teardown-failed", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["count"]), (&"likely".into(), &2.into()), "{cause:#}");
    assert!(cause["explanation"].as_str().unwrap().contains("does not accept its token"));
    let said = &answer["said"][0];
    assert_eq!(
        (&said["component"], &said["times"]),
        (&"containerd".into(), &2.into()),
        "{answer:#}"
    );
    assert!(said["source"].as_str().unwrap().contains("journal"), "{said:#}");
}

/// The same in kubelet's words, which repeat the runtime's.
#[test]
fn a_plugin_that_fails_is_told_by_kubelets_log() {
    requires!(root_and_btf());
    let node = Node::new(8, "unlinkat {}/none: operation not permitted");
    let line = |ago: i64| {
        let time = Timestamp::now().checked_sub(SignedDuration::from_secs(ago)).unwrap();
        let local = time.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f").to_string();
        let error = "failed to \\\"KillPodSandbox\\\" for \\\"x\\\" with KillPodSandboxError: \\\"rpc error: code = \
            Unknown desc = failed to destroy network for sandbox \\\\\\\"y\\\\\\\": plugin type=\\\\\\\"weave-net\\\\\\\" \
            failed (delete): dial tcp 127.0.0.1:6784: connect: connection refused\\\"";
        format!(
            "E{local}   77 pod_workers.go:1300] \"Error syncing pod, skipping\" err=\"{error}\" \
             pod=\"shop/{}\" podUID=\"{}\"\n",
            node.name(),
            node.uid
        )
    };
    fs::write(node.directory.path().join("kubelet.log"), line(90) + &line(20)).unwrap();
    let root = node.root();
    let asked =
        ["--pod-uid", &node.uid, "--kubelet-root", root.to_str().unwrap(), "--timeout", "5s"];
    let (lines, _) = diagnose(&asked).finish();
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(
        (&cause["id"], &cause["count"]),
        (&"cni-teardown-failed".into(), &2.into()),
        "{answer:#}"
    );
    assert!(cause["explanation"].as_str().unwrap().contains("its agent on this node is not there"));
    assert_eq!(answer["said"][0]["component"], "kubelet", "{answer:#}");
}
