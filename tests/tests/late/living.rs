//! A container that its runtime has given up waiting for. The process and its control group are real; the runtime is a
//! process of that name that sleeps, and its log and kubelet's are as cited in containerd#6080 and cri-o#6699.

use std::{fs, os::unix::process::ExitStatusExt as _, process::Command};

use podstuck_tests::{obey, requires, root_and_btf};

use super::{Container, Node, answer, klog, logrus};

const ID: &str = "5c0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5";

/// A process that takes no SIGTERM.
fn container(uid: &str) -> Container {
    Container::of(uid, ID, Command::new("sh").args(["-c", "trap '' TERM; exec sleep 600"]))
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
        let (node, _daemon) = Node::beside(number, "containerd");
        let _container = container(&node.uid);
        let [_, of_kubelet] = logs("containerd", &node);
        let (killing, _) = of_kubelet.split_once('\n').unwrap();
        fs::write(node.log("kubelet"), format!("{killing}\n")).unwrap();
        fs::write(node.log("containerd"), line(300) + &line(200) + &line(100)).unwrap();
        let (lines, _) = node.ask("5s");
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
        let (node, daemon) = Node::beside(number, runtime);
        let mut container = container(&node.uid);
        let [of_runtime, of_kubelet] = logs(runtime, &node);
        fs::write(node.log(runtime), of_runtime).unwrap();
        fs::write(node.log("kubelet"), of_kubelet).unwrap();
        let (lines, status) = node.ask("20s");
        drop(daemon);
        let answer = answer(&lines);
        let cause = &answer["causes"][0];
        let expected = ("container-not-killed", "firm", Some(1));
        let found = (cause["id"].as_str(), cause["certainty"].as_str(), status);
        assert_eq!(
            found,
            (Some(expected.0), Some(expected.1), expected.2),
            "{runtime}: {answer:#}"
        );
        let pid = container.process.id();
        assert_eq!(cause["held_by"], format!("sleep (pid {pid})"), "{cause:#}");
        let command = cause["remedies"][0]["command"].as_str().unwrap();
        obey(command);
        assert_eq!(container.process.wait().unwrap().signal(), Some(9), "{command}");
    }
}

/// kata-containers#4043: the shim waits for the sandbox's virtual machine, and both live.
#[test]
fn a_sandbox_that_its_shim_does_not_stop_is_ended_by_the_printed_commands() {
    requires!(root_and_btf());
    let (node, mut shim) = Node::beside(43, "containerd-shim-kata-v2");
    let mut machine = container(&node.uid);
    machine.group.add(shim.id());
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
    fs::write(node.log("kubelet"), deleted + &failed(220) + &failed(60)).unwrap();
    let (lines, status) = node.ask("20s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    let found = (cause["id"].as_str(), cause["certainty"].as_str(), status);
    assert_eq!(found, (Some("sandbox-not-stopped"), Some("likely"), Some(1)), "{answer:#}");
    let who = format!(
        "containerd-shim-kata-v2 (pid {}), with sleep (pid {})",
        shim.id(),
        machine.process.id()
    );
    assert_eq!(cause["held_by"], who);
    for (at, process) in [&mut machine.process, &mut shim].into_iter().enumerate() {
        let command = cause["remedies"][at]["command"].as_str().unwrap();
        obey(command);
        assert_eq!(process.wait().unwrap().signal(), Some(9), "{command}");
    }
}
