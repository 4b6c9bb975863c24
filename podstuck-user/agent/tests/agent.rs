//! The agent with a real watch, a real API server and a pod that is stuck by a real attribute. Its Events appear,
//! survive the agent, are not duplicated, and are taken back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "agent/alertmanager.rs"]
mod alertmanager;
#[path = "agent/clock.rs"]
mod clock;
mod common;
#[path = "agent/dashboard.rs"]
mod dashboard;
#[path = "agent/prometheus.rs"]
mod prometheus;

use std::{collections::BTreeMap, fs, process::Command, thread, time::Duration};

use common::{Agent, wait_for};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::ControlPlane;
use podstuck_testing::skip;
use podstuck_tests::{lab, requires, root_and_btf};
use serde_json::{Value, json};

/// Namespace of the lab's pod.
const NAMESPACE: &str = "podstuck-lab";
fn capabilities(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap()
}

/// Events about a pod, by reason.
fn events(plane: &ControlPlane, uid: &str) -> Vec<(String, Value)> {
    let asked = ["get", "events.v1.events.k8s.io", "--namespace", NAMESPACE, "--output=json"];
    let all: Value = serde_json::from_str(&plane.kubectl(&asked).unwrap()).unwrap();
    let items = all["items"].as_array().unwrap().clone();
    let of_pod = items.into_iter().filter(|event| event["regarding"]["uid"] == uid);
    of_pod.map(|event| (event["reason"].as_str().unwrap().to_owned(), event)).collect()
}

fn reasons(plane: &ControlPlane, uid: &str) -> Vec<String> {
    events(plane, uid).into_iter().map(|(reason, _)| reason).collect()
}

/// The series of the lab's pod, if any. The watch covers the whole node.
fn info(metrics: &str) -> Option<String> {
    let of_pod = |line: &&str| {
        line.starts_with("podstuck_finding_info{") && line.contains("pod=\"immutable-attribute\"")
    };
    metrics.lines().find(of_pod).map(str::to_owned)
}

/// Whether another test has a stuck pod of the same name: its series has the same labels.
fn another_is_stuck(agent: &Agent, uid: &str) -> bool {
    let lines = fs::read_to_string(&agent.out).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_others = lines
        .filter(|line| line["pod"]["name"] == "immutable-attribute" && line["pod"]["uid"] != uid);
    let states: BTreeMap<String, bool> =
        of_others.map(|line| (line["instance"].to_string(), line["state"] != "cleared")).collect();
    states.values().any(|is_stuck| *is_stuck)
}

/// The first command of the finding that the agent printed about this pod.
fn command(agent: &Agent, uid: &str) -> String {
    let lines = fs::read_to_string(&agent.out).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut of_pod = lines.filter(|line| line["type"] == "finding" && line["pod"]["uid"] == uid);
    of_pod.next().unwrap()["remedies"][0]["command"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_stuck_is_an_event_and_a_metric_until_it_is_released() {
    requires!(root_and_btf());
    if let Err(missing) = ControlPlane::is_possible() {
        return skip(format!("{missing:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    plane.apply(&namespace).unwrap();
    let (pod, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    let agent = Agent::start(top.path(), &plane, root);
    assert_eq!(capabilities(agent.pid()), 0, "the agent has dropped its own");
    assert_ne!(capabilities(agent.watch()), 0, "the watch has kept them");
    pod.resume();

    let (reason, event) = wait_for("Event", || events(&plane, uid).pop());
    assert_eq!((reason.as_str(), &event["type"]), ("ImmutableAttribute", &json!("Warning")));
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("immutable-attribute (certain)") && note.contains("chattr -i"), "{note}");
    assert_eq!(event["related"]["name"], "n1");
    let (status, metrics) = agent.get("/metrics");
    println!("measured: {} bytes, {} lines of metrics", metrics.len(), metrics.lines().count());
    assert!(status == 200 && metrics.len() < 60_000);
    let series = info(&metrics).unwrap();
    assert!(series.contains("cause=\"immutable-attribute\",certainty=\"certain\""), "{series}");
    let of_calls = |line: &&str| line.starts_with("podstuck_calls_total{");
    assert!(metrics.lines().filter(of_calls).all(|line| !line.contains("pod=")), "{metrics}");

    // After SIGKILL and a restart, the agent takes over the existing Events.
    agent.end(Signal::SIGKILL);
    let agent = Agent::start(top.path(), &plane, root);
    wait_for("finding again", || info(&agent.get("/metrics").1));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(reasons(&plane, uid), ["ImmutableAttribute"]);

    let released = Command::new("sh").args(["-c", &command(&agent, uid)]).status().unwrap();
    assert!(released.success());
    wait_for("release", || (reasons(&plane, uid) == ["Released"]).then_some(()));
    wait_for("end of the metric", || {
        let is_over = info(&agent.get("/metrics").1).is_none();
        (is_over || another_is_stuck(&agent, uid)).then_some(())
    });

    // A watch that observes nothing is reported as unhealthy, and as healthy when it continues.
    let watch = Pid::from_raw(agent.watch());
    assert_eq!(agent.get("/healthz").0, 200);
    kill(watch, Signal::SIGSTOP).unwrap();
    let why = wait_for("deafness", || Some(agent.get("/healthz")).filter(|it| it.0 == 503)).1;
    assert!(why.contains("have counted none of the agent's own deletions"), "{why}");
    kill(watch, Signal::SIGCONT).unwrap();
    wait_for("health", || (agent.get("/healthz").0 == 200).then_some(()));

    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
    let (lines, status) = pod.stop();
    assert!(status.success(), "{lines:#?}");
}
