//! What looking costs on a large node.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/holding.rs"]
mod holding;
#[path = "common/meter.rs"]
mod meter;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use holding::{Memory, Process, holders, of_process};
use meter::Meter;
use nix::{
    mount::{MsFlags, mount},
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
        time::TimeVal,
    },
    unistd::Pid,
};
use podstuck_testing::api_server::{Answer, ApiServer};
use podstuck_tests::{lab, of_type, podstuck, run, slowdown, watch};
use serde_json::json;

const NAMESPACES: usize = 200;
const PROCESSES: usize = 10;
const MOUNTS: usize = 10_000;
/// As many as kubelet takes by default.
const PODS: usize = 110;

/// The issue's node: 2,000 processes, 200 mount namespaces, 10,000 mounts.
struct Node {
    memory: Memory,
    _containers: Vec<Tree>,
}

impl Node {
    fn start() -> Self {
        let memory = Memory::mount();
        let path = memory.path().to_str().unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let more = MOUNTS.div_ceil(NAMESPACES).saturating_sub(table.lines().count());
        // Each namespace has a container's worth of mounts and processes with descriptors.
        let script = format!(
            "mkdir -p {path}/m; i=0; while [ $i -lt {more} ]; do mount --bind /usr {path}/m; \
             i=$((i+1)); done; i=1; while [ $i -lt {PROCESSES} ]; do \
             (exec 3</dev/null 4</etc/hostname 5</dev/zero 6</etc/passwd 7</usr 8</proc 9</sys; \
             exec sleep 1000 >/dev/null) & i=$((i+1)); done"
        );
        let containers =
            (0..NAMESPACES).map(|_| Tree(Process::unshared("private", &script))).collect();
        Self { memory, _containers: containers }
    }

    /// kubelet's root, with a mounted volume for each pod.
    fn kubelet(&self) -> PathBuf {
        let root = self.memory.path().join("kubelet");
        for pod in 0..PODS {
            let uid = format!("00000000-0000-4000-8000-{pod:012}");
            let volume = root.join(format!("pods/{uid}/volumes/kubernetes.io~csi/pvc-{pod}/mount"));
            fs::create_dir_all(&volume).unwrap();
            mount(Some("/usr"), &volume, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        }
        root
    }
}

#[test]
#[ignore = "a measurement: says how much CPU a snapshot takes on a large node"]
fn holders_of_a_large_node_cost_little() {
    const LIMIT: f64 = 0.5;
    let node = Node::start();
    let sleeper = Process::sleep_in(node.memory.path());
    let before = of_children();
    let begun = Instant::now();
    let (lines, _) = holders(&[node.memory.path().to_str().unwrap()]);
    let (taken, took) = (of_children() - before, begun.elapsed());
    let search = lines.last().unwrap();
    eprintln!("snapshot of holders: {taken:.3} s of CPU in {took:.3?}: {search}");
    assert!(of_process(&lines, sleeper.pid()).iter().any(|h| h["explains_ebusy"] == true));
    assert!(search["namespaces"].as_u64() >= Some(200));
    assert!(search["mounts"].as_u64() >= Some(10_000));
    assert!(search["processes"].as_u64() >= Some(2_000), "{search}");
    drop(node);
    assert!(taken < LIMIT * f64::from(slowdown()), "{taken} s");
}

#[test]
#[ignore = "a measurement: says how much CPU a watch takes on a large node where nothing happens"]
fn watching_a_large_node_costs_little() {
    const LIMIT: f64 = 0.02;
    let node = Node::start();
    let kubelet = node.kubelet();
    let watching = watch(&["--kubelet-root", kubelet.to_str().unwrap()]);
    // What is done once is no part of it.
    thread::sleep(Duration::from_secs(10));
    let (before, begun) = (threads(watching.pid()), Instant::now());
    thread::sleep(Duration::from_secs(60));
    let (after, took) = (threads(watching.pid()), begun.elapsed().as_secs_f64());
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for (id, (name, seconds)) in &after {
        let earlier = before.get(id).map_or(0.0, |(_, seconds)| *seconds);
        *shares.entry(name).or_default() += (seconds - earlier) / took;
    }
    eprintln!("shares of one core: {shares:.5?}");
    let (lines, _) = watching.stop();
    drop(node);
    assert!(of_type(&lines, "finding").is_empty(), "{lines:#?}");
    assert!(shares["sampler"] < LIMIT, "{shares:?}");
}

/// What a helper may have (`MEMORY` of `podstuck-user/confine/src/helper/serve.rs`), in MiB.
const HELPER: u64 = 128;

#[test]
#[ignore = "a measurement: says how much memory helpers take on a large node"]
fn helpers_take_a_quarter_of_what_they_may_on_a_large_node() {
    let node = Node::start();
    let kubelet = node.kubelet();
    let _log = kubelet_with_a_long_log(node.memory.path());
    let mut search = Command::new(podstuck());
    let search = search.args(["holders", "/"]).stdout(Stdio::null()).spawn().unwrap();
    let meter = Meter::start(search.id());
    assert!(search.wait_with_output().unwrap().status.code().is_some());
    let of_holders = meter.peak_of("helper");
    let (deleting, ready) = lab("emptydir-mass-files", &["--entries", "200000"]);
    let watching = watch(&[
        "--kubelet-root",
        kubelet.to_str().unwrap(),
        "--kubelet-root",
        ready["kubelet_root"].as_str().unwrap(),
    ]);
    let meter = Meter::start(watching.pid());
    deleting.resume();
    thread::sleep(Duration::from_secs(20));
    let (lines, _) = watching.stop();
    assert!(!of_type(&lines, "finding").is_empty(), "{lines:#?}");
    let peak = meter.peak_of("helper").max(of_holders);
    println!(
        "measured: {peak} MiB in a helper of a watch or of holders, {of_holders} MiB in one of holders"
    );
    drop((node, deleting));
    assert!(peak <= HELPER / 4, "{peak} MiB");
}

/// As long as is read of one.
fn kubelet_with_a_long_log(directory: &Path) -> Process {
    let programs = directory.join("programs");
    fs::create_dir(&programs).unwrap();
    let (program, log) = (programs.join("kubelet"), "/tmp/podstuck-test-kubelet.log");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let line = "I0102 10:00:00.000000   77 source.go:1] \"Killing container with a grace period\" \
                pod=\"shop/cart-0\" podUID=\"7d9f0b52-5c1e-4d47-9a44-1c5d2e6f7a00\" gracePeriod=30\n";
    fs::write(log, line.repeat((9 << 20) / line.len())).unwrap();
    let stderr = fs::File::options().append(true).open(log).unwrap();
    fs::remove_file(log).unwrap();
    Process::start(Command::new(program).arg("1000").stderr(stderr))
}

/// As long an answer as is read: several times the pods of a full node, each with a record that is large.
#[test]
fn records_of_many_pods_fit_into_a_helper() {
    const PODS: usize = 640;
    let root = tempfile::tempdir().unwrap();
    let uid = |number: usize| format!("00000000-0000-4000-8000-{number:012}");
    let record = |number: usize| {
        let annotations = json!({"large": "x".repeat(50 << 10)});
        let metadata = json!({"uid": uid(number), "namespace": "shop", "name": format!("cart-{number}"),
                              "annotations": annotations});
        json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node"}})
    };
    let list = json!({"items": (0..PODS).map(record).collect::<Vec<_>>()}).to_string();
    let size = list.len() >> 20;
    let server = ApiServer::start(move |path| match path.starts_with("/api/v1/pods?") {
        true => Answer::Text(200, list.clone()),
        false => Answer::Text(404, r#"{"kind":"Status","message":"no"}"#.into()),
    });
    fs::create_dir_all(root.path().join("pods").join(uid(7))).unwrap();
    let meter = Meter::start(std::process::id());
    let file = server.kubeconfig();
    let (root, file) = (root.path().to_str().unwrap(), file.to_str().unwrap());
    let ask = || {
        let pod = ["diagnose", "--no-trace", "--output", "json", "--timeout", "2s", "--pod"];
        let output =
            run(&[&pod[..], &["shop/cart-7", "--kubelet-root", root, "--api", file]].concat());
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    // All requests have 1.8 s together, in which a busy machine does not read as much: that is no matter here.
    let answer = (0..20).map(|_| ask()).find(|text| !text.contains("it does not answer"));
    let answer = answer.expect("the API server answers in time once");
    assert!(answer.contains(&format!("{PODS} pods of node")), "{answer}");
    let peak = meter.peak_of("helper");
    println!("measured: {peak} MiB for {size} MiB");
    assert!(peak <= HELPER, "{peak} MiB for {size} MiB");
}

/// Name and CPU seconds of each thread of a process, and of its children that have ended.
fn threads(pid: u32) -> BTreeMap<String, (String, f64)> {
    let process = procfs::process::Process::new(pid.cast_signed()).unwrap();
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let stat = process.stat().unwrap();
    let helpers = (stat.cutime + stat.cstime).cast_unsigned();
    let mut all = BTreeMap::from([("helpers".into(), ("helpers".into(), seconds(helpers)))]);
    for task in process.tasks().unwrap().flatten() {
        let stat = task.stat().unwrap();
        all.insert(task.tid.to_string(), (stat.comm, seconds(stat.utime + stat.stime)));
    }
    all
}

/// A process and all that it started.
struct Tree(Process);

impl Drop for Tree {
    fn drop(&mut self) {
        let pid = self.0.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL);
        }
    }
}

/// Seconds of CPU of all children that have ended, and theirs.
fn of_children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
