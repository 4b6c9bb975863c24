//! A container that its runtime has given up waiting for. The process and its control group are real; the runtime is a
//! process of that name that sleeps, and its log and kubelet's are as cited in containerd#6080 and cri-o#6699.

use std::{
    fs,
    os::unix::{fs::symlink, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use podstuck_tests::{diagnose, requires, root_and_btf};

use super::{Node, answer, klog, logrus};

const ID: &str = "5c0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5";

/// A process in a control group of a pod's container, that takes no SIGTERM.
struct Container {
    group: PathBuf,
    process: Child,
}

impl Container {
    fn new(uid: &str) -> Self {
        let top = Path::new("/sys/fs/cgroup");
        let is_v2 = top.join("cgroup.procs").exists();
        let tree = if is_v2 { top.to_owned() } else { top.join("pids") };
        let group = tree.join(format!("podstuck-late-living/pod{uid}/{ID}"));
        fs::create_dir_all(&group).unwrap();
        let script = "trap '' TERM; exec sleep 600";
        let process = Command::new("sh").args(["-c", script]).spawn().unwrap();
        fs::write(group.join("cgroup.procs"), process.id().to_string()).unwrap();
        Self { group, process }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for group in self.group.ancestors().take(3) {
            let _ = fs::remove_dir(group);
        }
    }
}

/// What the runtime and kubelet have written.
fn logs(runtime: &str, node: &Node) -> [String; 2] {
    let (name, uid) = (node.name(), &node.uid);
    let pod = format!("pod=\"shop/{name}\" podUID=\"{uid}\"");
    let killing = format!(
        "\"Killing container with a grace period\" {pod} containerName=\"app\" \
         containerID=\"{runtime}://{ID}\" gracePeriod=30"
    );
    let kubelet = |error: &str| {
        let failed = |ago| {
            let text = format!(
                "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"app\\\" with \
                 KillContainerError: \\\"rpc error: code = DeadlineExceeded desc = {error}\\\"\" {pod}"
            );
            klog(ago, 'E', &text)
        };
        klog(400, 'I', &killing) + &failed(220) + &failed(60)
    };
    if runtime == "containerd" {
        let waited = |quote: &str| {
            format!(
                "an error occurs during waiting for container {quote}{ID}{quote} to be killed: wait container \
                 {quote}{ID}{quote}: context deadline exceeded"
            )
        };
        let failed = |ago| {
            let error = waited("\\\"");
            let text = format!(
                "msg=\"StopContainer for \\\"{ID}\\\" failed\" error=\"rpc error: code = DeadlineExceeded desc = {error}\""
            );
            logrus(ago, "error", &text)
        };
        return [failed(220) + &failed(60), kubelet(&waited("\\\\\\\""))];
    }
    let stopping =
        |ago| logrus(ago, "info", &format!("msg=\"Stopping container: {ID} (timeout: 30s)\""));
    let gave_up = format!(
        "msg=\"Stopping container {ID} with stop signal timed out: timeout reached after 30 seconds waiting for \
         container process to exit\""
    );
    let crio = stopping(400) + &logrus(370, "warning", &gave_up) + &stopping(220) + &stopping(60);
    [crio, kubelet("context deadline exceeded")]
}

/// A runtime's warning that podstuck does not know, in logrus' text, in its JSON, and behind what journalctl writes.
#[test]
fn a_complaint_in_unknown_words_is_a_link_of_the_chain() {
    requires!(root_and_btf());
    let text = |ago| {
        let text = format!(
            "msg=\"shim is not well: 7 of container {ID} after {ago} s\" error=\"try again\""
        );
        logrus(ago, "warning", &text)
    };
    let json = |ago| {
        let line = text(ago);
        let time = line.split('"').nth(1).unwrap();
        format!(
            "{{\"error\":\"try again\",\"level\":\"warning\",\"msg\":\"shim is not well: 7 of container {ID} after \
             {ago} s\",\"time\":\"{time}\"}}\n"
        )
    };
    let prefixed = |ago| format!("Nov 28 00:31:22 node-1 containerd[9]: {}", text(ago));
    let forms: [&dyn Fn(i64) -> String; 3] = [&text, &json, &prefixed];
    for (number, line) in (43..).zip(forms) {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        for name in ["kubelet", "containerd"] {
            symlink("/bin/sleep", place.join(name)).unwrap();
        }
        let log = |name: &str| place.join(name).with_extension("log");
        let write_to = |name: &str| Stdio::from(fs::File::create(log(name)).unwrap());
        let mut daemon = Command::new(place.join("containerd"))
            .arg("600")
            .stderr(write_to("containerd"))
            .spawn()
            .unwrap();
        let node = Node::with(number, directory, write_to("kubelet"));
        fs::create_dir_all(node.volume()).unwrap();
        let _container = Container::new(&node.uid);
        let [_, of_kubelet] = logs("containerd", &node);
        let (killing, _) = of_kubelet.split_once('\n').unwrap();
        fs::write(log("kubelet"), format!("{killing}\n")).unwrap();
        fs::write(log("containerd"), line(300) + &line(200) + &line(100)).unwrap();
        let root = node.root();
        let root = root.to_str().unwrap();
        let asked = ["--pod-uid", &node.uid, "--kubelet-root", root, "--timeout", "5s"];
        let (lines, _) = diagnose(&asked).finish();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let answer = answer(&lines);
        let chain = answer["stages"][0]["chain"].as_array().unwrap();
        let link = chain.iter().find(|link| link["who"]["name"] == "containerd");
        let link = link.unwrap_or_else(|| panic!("{answer:#}"));
        let fact = link["facts"][0]["fact"].as_str().unwrap();
        let expected = format!("shim is not well: 7 of container {ID} after 100 s: try again");
        assert!(
            fact.starts_with("it logged, 3 times, last at ") && fact.ends_with(&expected),
            "{fact}"
        );
    }
}

#[test]
fn a_process_that_no_runtime_kills_is_named_and_its_command_ends_it() {
    requires!(root_and_btf());
    for (number, runtime) in [(41, "containerd"), (42, "crio")] {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        for name in ["kubelet", runtime] {
            symlink("/bin/sleep", place.join(name)).unwrap();
        }
        let log = |name: &str| place.join(name).with_extension("log");
        let write_to = |name: &str| Stdio::from(fs::File::create(log(name)).unwrap());
        let mut daemon =
            Command::new(place.join(runtime)).arg("600").stderr(write_to(runtime)).spawn().unwrap();
        let node = Node::with(number, directory, write_to("kubelet"));
        fs::create_dir_all(node.volume()).unwrap();
        let mut container = Container::new(&node.uid);
        let [of_runtime, of_kubelet] = logs(runtime, &node);
        fs::write(log(runtime), of_runtime).unwrap();
        fs::write(log("kubelet"), of_kubelet).unwrap();

        let root = node.root();
        let asked = ["--pod-uid", &node.uid, "--kubelet-root", root.to_str().unwrap()];
        let (lines, status) = diagnose(&asked).finish();
        daemon.kill().unwrap();
        daemon.wait().unwrap();

        let answer = answer(&lines);
        let cause = &answer["causes"][0];
        let expected = ("container-not-killed", "firm", Some(1));
        let found = (cause["id"].as_str(), cause["certainty"].as_str(), status.code());
        assert_eq!(
            found,
            (Some(expected.0), Some(expected.1), expected.2),
            "{runtime}: {answer:#}"
        );
        let pid = container.process.id();
        assert_eq!(cause["held_by"], format!("sleep (pid {pid})"), "{cause:#}");
        let command = cause["remedies"][0]["command"].as_str().unwrap();
        let done = Command::new("sh").args(["-c", command]).status().unwrap();
        let ended = container.process.wait().unwrap();
        assert_eq!((done.code(), ended.signal()), (Some(0), Some(9)), "{command}");
    }
}

/// kata-containers#4043: the shim waits for the sandbox's virtual machine, and both live.
#[test]
fn a_sandbox_that_its_shim_does_not_stop_is_ended_by_the_printed_commands() {
    requires!(root_and_btf());
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    for name in ["kubelet", "containerd-shim-kata-v2"] {
        symlink("/bin/sleep", place.join(name)).unwrap();
    }
    let log = place.join("kubelet.log");
    let node = Node::with(43, directory, fs::File::create(&log).unwrap().into());
    fs::create_dir_all(node.volume()).unwrap();
    let mut machine = Container::new(&node.uid);
    let mut shim = Command::new(place.join("containerd-shim-kata-v2")).arg("600").spawn().unwrap();
    fs::write(machine.group.join("cgroup.procs"), shim.id().to_string()).unwrap();
    let (name, uid) = (node.name(), &node.uid);
    let failed = |ago| {
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillPodSandbox\\\" for \\\"{uid}\\\" with \
             KillPodSandboxError: \\\"rpc error: code = DeadlineExceeded desc = context deadline exceeded\\\"\" \
             pod=\"shop/{name}\" podUID=\"{uid}\""
        );
        klog(ago, 'E', &text)
    };
    let deleted =
        klog(400, 'I', &format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]"));
    fs::write(&log, deleted + &failed(220) + &failed(60)).unwrap();

    let root = node.root();
    let asked = ["--pod-uid", uid, "--kubelet-root", root.to_str().unwrap(), "--timeout", "20s"];
    let (lines, status) = diagnose(&asked).finish();
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    let found = (cause["id"].as_str(), cause["certainty"].as_str(), status.code());
    assert_eq!(found, (Some("sandbox-not-stopped"), Some("likely"), Some(1)), "{answer:#}");
    let who = format!(
        "containerd-shim-kata-v2 (pid {}), with sleep (pid {})",
        shim.id(),
        machine.process.id()
    );
    assert_eq!(cause["held_by"], who);
    for (at, process) in [&mut machine.process, &mut shim].into_iter().enumerate() {
        let command = cause["remedies"][at]["command"].as_str().unwrap();
        let done = Command::new("sh").args(["-c", command]).status().unwrap();
        let ended = process.wait().unwrap();
        assert_eq!((done.code(), ended.signal()), (Some(0), Some(9)), "{command}");
    }
}
