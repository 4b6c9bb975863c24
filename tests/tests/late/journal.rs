//! Components that log to the journal.

use std::{
    fs,
    io::Write,
    os::{fd::OwnedFd, unix::fs::symlink, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use jiff::Timestamp;
use podstuck_tests::{Ending, requires, root_and_btf};

use super::{Node, answer, chattr, klog, log_of, logrus};

/// The program that makes a journal out of text.
const JOURNAL_REMOTE: &str = "/lib/systemd/systemd-journal-remote";

fn journal() -> Result<(), &'static str> {
    let there = [JOURNAL_REMOTE, "/etc/machine-id"].iter().all(|path| Path::new(path).exists());
    if there { root_and_btf() } else { Err("needs systemd-journal-remote") }
}

/// A file among those of this machine's journal, for as long as it lives.
struct JournalFile(PathBuf);

impl JournalFile {
    /// What a process has written, as if systemd had taken it; and `forged`, which others have: one through another
    /// program of the same service, and one by way of a container's driver of logs.
    fn new(pid: u32, log: &str, forged: &str) -> Self {
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
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        let program = program.to_str().unwrap();
        let entry = |transport: &str, program: &str, line: &str| {
            format!(
                "__REALTIME_TIMESTAMP={now}\n_MACHINE_ID={machine}\n_BOOT_ID={boot}\n_PID={pid}\n\
                 _TRANSPORT={transport}\n_EXE={program}\n{unit}MESSAGE={line}\n\n"
            )
        };
        let own = log.lines().map(|line| entry("stdout", program, line));
        let others = forged.lines().flat_map(|line| {
            [entry("journal", program, line), entry("stdout", "/usr/bin/a-shim", line)]
        });
        let entries: String = own.chain(others).collect();
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
        // A journal that was not there before is removed afterwards.
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
        "",
    );
    let (lines, _) = node.diagnose("100s");
    let answer = answer(&lines);
    assert_eq!(answer["causes"][0]["id"], "immutable-attribute", "{answer:#}");
    assert!(answer["said"][0]["source"].as_str().unwrap().contains("journal"), "{answer:#}");
}

/// A runtime's journal, where kubelet says nothing and no call is made: the plugin's error is all there is.
#[test]
fn a_plugin_that_fails_is_found_in_the_runtimes_journal() {
    requires!(journal());
    let directory = tempfile::tempdir().unwrap();
    symlink("/bin/sleep", directory.path().join("containerd")).unwrap();
    symlink("/bin/sleep", directory.path().join("kubelet")).unwrap();
    let (socket, _other_end) = UnixStream::pair().unwrap();
    let program = directory.path().join("containerd");
    let stderr = OwnedFd::from(socket);
    let runtime = Ending::start(Command::new(program).arg("600").stderr(stderr));
    let node = Node::with(7, directory, Stdio::null());
    fs::create_dir_all(node.volume()).unwrap();
    let sandbox = "5b".repeat(32);
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
    let log =
        logrus(3600, "info", &made) + &logrus(70, "error", &failed) + &logrus(10, "error", &failed);
    // The same again, in others' words: it is not counted.
    let journal = JournalFile::new(runtime.id(), &log, &logrus(5, "error", &failed));
    let (lines, _) = node.ask("5s");
    drop((journal, runtime));
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
fn a_plugin_that_fails_is_found_in_kubelets_log() {
    requires!(root_and_btf());
    let node = Node::new(8, "unlinkat {}/none: operation not permitted");
    let line = |ago: i64| {
        let error = "failed to \\\"KillPodSandbox\\\" for \\\"x\\\" with KillPodSandboxError: \\\"rpc error: code = \
            Unknown desc = failed to destroy network for sandbox \\\\\\\"y\\\\\\\": plugin type=\\\\\\\"weave-net\\\\\\\" \
            failed (delete): dial tcp 127.0.0.1:6784: connect: connection refused\\\"";
        let (name, uid) = (node.name(), &node.uid);
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"{error}\" pod=\"shop/{name}\" podUID=\"{uid}\""
        );
        klog(ago, 'E', &text)
    };
    fs::write(node.directory.path().join("kubelet.log"), line(90) + &line(20)).unwrap();
    let (lines, _) = node.ask("5s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(
        (&cause["id"], &cause["count"]),
        (&"cni-teardown-failed".into(), &2.into()),
        "{answer:#}"
    );
    assert!(
        cause["explanation"]
            .as_str()
            .unwrap()
            .contains("it cannot connect to its agent on this node")
    );
    assert_eq!(answer["said"][0]["component"], "kubelet", "{answer:#}");
}
