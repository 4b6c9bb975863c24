//! Deletions that wait inside kubelet, or between kubelet and the record: kubelet is a process of that name that sleeps,
//! its log is as cited, and the record is handed over.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use jiff::{SignedDuration, Timestamp};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{Disk, EXT4, Ending, obey, podstuck_call, requires, root_and_btf};
use serde_json::{Value, json};

use super::{Container, Node, answer, klog, pods_group::PodsGroup};

/// A kubelet that has written this of its pod.
fn kubelet(number: u8, log: impl FnOnce(&str, &str) -> String) -> Node {
    let node = Node::logging(number, |node| log(&node.name(), &node.uid));
    fs::create_dir(node.root().join("pods").join(&node.uid).join("volumes")).unwrap();
    node
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

/// A record whose grace of 30 s ended so long ago.
fn record(node: &Node, ended: i64, status: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": node.name(), "namespace": "shop", "uid": node.uid,
            "deletionTimestamp": format!("{:.0}", ago(ended)), "deletionGracePeriodSeconds": 30
        },
        "spec": { "containers": [{ "name": "app", "image": "nginx" }] },
        "status": status
    })
}

fn ask(node: &Node, record: &Value) -> Value {
    answer(&node.ask_with_record(record).0).clone()
}

/// The first cause.
fn cause<'a>(answer: &'a Value, id: &str) -> &'a Value {
    let cause = &answer["causes"][0];
    let found = (&cause["id"], &cause["certainty"]);
    assert_eq!(found, (&id.into(), &"likely".into()), "{answer:#}");
    cause
}

fn forced(cause: &Value, node: &Node) -> bool {
    let commands = cause["remedies"].as_array().unwrap().iter();
    let force = format!("delete pod {} --grace-period=0 --force", node.name());
    commands.filter_map(|it| it["command"].as_str()).any(|it| it.contains(&force))
}

/// kubernetes#25759
#[test]
fn a_kubelet_whose_watch_fails_is_who_must_act_and_not_the_runtime() {
    requires!(root_and_btf());
    let node = kubelet(71, |name, uid| {
        let began = format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"shop/{name}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\"}}"
        );
        let add = format!("\"SyncLoop ADD\" source=\"api\" pods=[\"shop/{name}\"]");
        let fails = "\"Unhandled Error\" err=\"k8s.io/kubernetes/pkg/kubelet/config/apiserver.go:66: Failed to watch *v1.Pod: \
            failed to list *v1.Pod: Unauthorized\" logger=\"UnhandledError\"";
        let fails: String = [64, 44, 24, 4].map(|ago| klog(ago, 'E', fails)).concat();
        klog(3000, 'I', &add) + &klog(2999, 'I', &began) + &fails
    });
    let _container = Container::new(&node.uid);
    let answer = ask(&node, &record(&node, 300, json!({ "phase": "Running" })));
    let cause = cause(&answer, "kubelet-missed-deletion");
    assert!(cause["remedies"][1]["advice"].as_str().unwrap().contains("credentials"));
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    let last = chain.last().unwrap();
    assert!(last["who"]["name"].as_str().unwrap().starts_with("kubelet"), "{chain:#?}");
    assert!(last["waits_for"].as_str().unwrap().starts_with("its watch"), "{chain:#?}");
    assert!(last["facts"][0]["fact"].as_str().unwrap().ends_with("Unauthorized"), "{chain:#?}");
}

/// kubernetes#139772
#[test]
fn a_step_that_kubelet_refuses_is_what_the_pod_waits_for_and_not_a_mount() {
    requires!(root_and_btf());
    let node = kubelet(72, |name, uid| {
        let fails = format!(
            "\"Error syncing pod, skipping\" err=\"unprepare dynamic resources: pod \\\"shop/{name}\\\": ResourceClaim not \
             created yet\" pod=\"shop/{name}\" podUID=\"{uid}\""
        );
        [64, 44, 24, 4].map(|ago| klog(ago, 'E', &fails)).concat()
    });
    let container = Container::new(&node.uid);
    let runs = ask(&node, &record(&node, 300, json!({ "phase": "Pending" })));
    assert!(runs["causes"].as_array().unwrap().is_empty(), "a process lives: {runs:#}");
    let mut container = container;
    container.process.kill().unwrap();
    container.process.wait().unwrap();
    let answer = ask(&node, &record(&node, 300, json!({ "phase": "Pending" })));
    assert!(forced(cause(&answer, "kubelet-step-fails"), &node), "{answer:#}");
}

/// kubernetes#118472
#[test]
fn a_pod_that_kubelet_has_rejected_is_reported_with_the_end_of_its_record() {
    requires!(root_and_btf());
    let node = kubelet(73, |name, uid| {
        let add = format!("\"SyncLoop ADD\" source=\"api\" pods=[shop/{name}]");
        let rejected = format!(
            "\"Predicate failed on Pod\" pod=\"shop/{name}\" err=\"Predicate TaintToleration failed\""
        );
        let mounted = format!(
            "\"MountVolume.SetUp succeeded for volume \\\"v\\\" (UniqueName: \\\"kubernetes.io/projected/{uid}-v\\\") pod \
             \\\"{name}\\\" (UID: \\\"{uid}\\\") \" pod=\"shop/{name}\""
        );
        klog(200, 'I', &add) + &klog(199, 'I', &rejected) + &klog(198, 'I', &mounted)
    });
    let container = Container::new(&node.uid);
    let mut container = container;
    container.process.kill().unwrap();
    container.process.wait().unwrap();
    let waiting =
        json!({ "name": "app", "state": { "waiting": { "reason": "ContainerCreating" } } });
    let status = json!({ "phase": "Pending", "containerStatuses": [waiting] });
    let answer = ask(&node, &record(&node, 300, status));
    let cause = cause(&answer, "pod-never-started");
    assert!(forced(cause, &node), "{answer:#}");
    let facts = cause["evidence"].to_string();
    assert!(facts.contains("Predicate TaintToleration failed"), "{facts}");
}

/// kubernetes#125880
#[test]
fn a_sidecar_that_waits_for_its_turn_is_named_with_what_it_waits_for() {
    requires!(root_and_btf());
    let node = kubelet(74, |name, uid| {
        let add = format!("\"SyncLoop ADD\" source=\"api\" pods=[\"shop/{name}\"]");
        let began = format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"shop/{name}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\"}}"
        );
        let delete = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
        klog(900, 'I', &add) + &klog(899, 'I', &began) + &klog(30, 'I', &delete)
    });
    let _container = Container::new(&node.uid);
    let id = format!("containerd://{}", "c0ffee00".repeat(8));
    let mut record = record(
        &node,
        -570,
        json!({
            "phase": "Pending",
            "initContainerStatuses": [
                { "name": "mesh", "containerID": id, "state": { "running": {} } },
                { "name": "proxy", "state": { "waiting": { "reason": "PodInitializing" } } }
            ]
        }),
    );
    record["metadata"]["deletionGracePeriodSeconds"] = 600.into();
    record["spec"]["initContainers"] = json!([{ "name": "mesh", "restartPolicy": "Always" }, { "name": "proxy", "restartPolicy": "Always" }]);
    let answer = ask(&node, &record);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "grace-period-or-prestop", "{answer:#}");
    let facts = cause["evidence"].to_string();
    assert!(
        facts.contains("proxy was never started") && facts.contains("no `Killing container` since"),
        "{facts}"
    );
    assert!(
        cause["remedies"][0]["command"].as_str().unwrap().starts_with("crictl stop"),
        "{cause:#}"
    );
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    assert!(
        chain.last().unwrap()["who"]["name"].as_str().unwrap().starts_with("kubelet"),
        "{chain:#?}"
    );
}

/// kubernetes#123365
#[test]
fn a_container_that_is_still_made_is_what_kubelet_waits_for() {
    requires!(root_and_btf());
    let node = kubelet(75, |name, uid| {
        let add = format!("\"SyncLoop ADD\" source=\"api\" pods=[\"shop/{name}\"]");
        let sandbox = format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"shop/{name}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\"}}"
        );
        let delete = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
        klog(400, 'I', &add) + &klog(399, 'I', &sandbox) + &klog(328, 'I', &delete)
    });
    let pause = node.directory.path().join("pause");
    symlink("/bin/sleep", &pause).unwrap();
    let _sandbox = Container::of(&node.uid, &"c0ffee00".repeat(8), Command::new(pause).arg("600"));
    let waiting =
        json!({ "name": "app", "state": { "waiting": { "reason": "ContainerCreating" } } });
    let status = json!({ "phase": "Pending", "containerStatuses": [waiting] });
    let answer = ask(&node, &record(&node, 300, status));
    let cause = cause(&answer, "image-pull-pending");
    let facts = cause["evidence"].to_string();
    assert!(facts.contains("container app as not created yet (ContainerCreating)"), "{facts}");
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    let last = chain.last().unwrap();
    assert!(
        last["who"]["more"].as_str().unwrap().ends_with("which creates container app"),
        "{chain:#?}"
    );
    assert_eq!(last["must"], "finish that");
}

/// kubernetes#127188: the container's first process is a shell without a handler for SIGTERM, which waits for `sleep`. The
/// PID namespace is real.
#[test]
fn a_first_process_that_sigterm_does_not_end_is_named_with_the_end_of_the_grace_period() {
    requires!(root_and_btf());
    let node = kubelet(77, |name, uid| {
        let delete = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
        let killing = format!(
            "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" containerName=\"app\" \
             gracePeriod=600"
        );
        klog(30, 'I', &delete) + &klog(29, 'I', &killing)
    });
    let mut unshare = Command::new("unshare");
    unshare.args(["--fork", "--kill-child", "--pid", "sh", "-c", "read _; sleep 600; true"]);
    let mut unshare = Ending::start(unshare.stdin(Stdio::piped()));
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let of_unshare = || fs::read_to_string(&children).unwrap().trim().parse::<u32>().ok();
    let shell = std::iter::repeat_with(of_unshare).flatten().next().unwrap();
    let _group = PodsGroup::with("first", &node.uid, &[shell]);
    drop(unshare.stdin.take());
    let mut record = record(
        &node,
        -570,
        json!({
            "phase": "Running",
            "containerStatuses": [{ "name": "app", "state": { "running": {} } }]
        }),
    );
    record["metadata"]["deletionGracePeriodSeconds"] = 600.into();
    let answer = ask(&node, &record);
    let cause = &answer["causes"][0];
    let found = (&cause["id"], &cause["certainty"]);
    assert_eq!(found, (&"grace-period-or-prestop".into(), &"firm".into()), "{answer:#}");
    assert_eq!(cause["held_by"], format!("sh (pid {shell})"), "{cause:#}");
    let facts = cause["evidence"].to_string();
    assert!(facts.contains("which the kernel discards for the init process"), "{facts}");
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    let last = chain.last().unwrap();
    assert_eq!(last["who"]["pid"], shell, "{chain:#?}");
    let waits_for = last["waits_for"].as_str().unwrap();
    assert!(waits_for.contains(", when the grace period ends, unless"), "{waits_for}");
    let facts = last["facts"].to_string();
    assert!(facts.contains(&format!("sh (pid {shell}) waits for sleep (pid ")), "{facts}");
}

/// The process waits for its io_uring, whose worker waits for a frozen file system; when the process is killed, its exit
/// waits for the worker.
#[test]
fn the_worker_of_a_processs_io_uring_is_what_waits() {
    requires!(root_and_btf());
    let node = kubelet(78, |name, uid| {
        let killing = format!(
            "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" containerName=\"app\" \
             gracePeriod=30"
        );
        klog(400, 'I', &killing)
    });
    let point = tempfile::tempdir().unwrap();
    let disk = Disk::mount(point.path(), 16 << 20, EXT4, "");
    fs::create_dir(disk.join("x")).unwrap();
    let frozen = disk.freeze();
    let mut call = Command::new(podstuck_call());
    let call = Ending::start(call.arg("io-uring").args([&**disk, Path::new("x")]));
    let group = PodsGroup::with("ring", &node.uid, &[call.id()]);
    let worker = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", call.id())).ok()?;
        let stats =
            tasks.flatten().filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
        stats.into_iter().find(|stat| stat.contains("(iou-wrk-") && stat.contains(") D "))
    };
    let found = std::iter::repeat_with(worker).take(100).find_map(|found| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        found
    });
    if found.is_none() {
        drop(frozen);
        return podstuck_testing::skip("a kernel without io_uring's deletions");
    }
    let record = record(&node, 300, json!({ "phase": "Running" }));
    let waits = ask(&node, &record);
    let chain = waits["stages"][0]["chain"].as_array().unwrap();
    let last = chain.last().unwrap();
    assert_eq!(last["who"]["pid"], call.id(), "{waits:#}");
    let facts = last["facts"].to_string();
    assert!(facts.contains("a worker of its io_uring, sleeps, and no signal wakes it"), "{facts}");
    kill(Pid::from_raw(call.id().cast_signed()), Signal::SIGKILL).unwrap();
    let killed = ask(&node, &record);
    drop(frozen);
    drop((call, group));
    let cause = &killed["causes"][0];
    assert_eq!(cause["id"], "dstate-process", "{killed:#}");
    assert!(cause.to_string().contains("a frozen file system"), "{cause:#}");
}

/// kubernetes#30042 and kubernetes#116032
#[test]
fn a_post_start_hook_that_hangs_is_what_kubelet_waits_for() {
    requires!(root_and_btf());
    let node = kubelet(76, |name, uid| {
        let add = format!("\"SyncLoop ADD\" source=\"api\" pods=[\"shop/{name}\"]");
        let began = format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"shop/{name}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\"}}"
        );
        let delete = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
        klog(400, 'I', &add) + &klog(399, 'I', &began) + &klog(328, 'I', &delete)
    });
    let mut container = Container::new(&node.uid);
    let waiting =
        json!({ "name": "app", "state": { "waiting": { "reason": "ContainerCreating" } } });
    let status = json!({ "phase": "Pending", "containerStatuses": [waiting] });
    let mut record = record(&node, 300, status);
    record["spec"]["containers"][0]["lifecycle"] =
        json!({ "postStart": { "exec": { "command": ["sleep", "inf"] } } });
    let answer = ask(&node, &record);
    let cause = cause(&answer, "poststart-hook-pending");
    assert_eq!(cause["held_by"], "the postStart hook of container app");
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    let last = chain.last().unwrap();
    assert_eq!(
        (&last["who"]["name"], &last["must"]),
        (&cause["held_by"], &"return".into()),
        "{chain:#?}"
    );
    let command = cause["remedies"][0]["command"].as_str().unwrap();
    obey(command);
    assert!(!container.process.wait().unwrap().success());
}
