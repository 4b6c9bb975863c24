//! A real kubelet that did not receive the deletion of a pod: it renews its Lease and processes other changes, and the
//! pod runs on.

use std::{fs, process::Command};

use podstuck_test_node::{Node, Runtime};
use serde_json::Value;

use super::{
    asked::From,
    borrowed::{Borrowed, beside_us},
    lossy::Lossy,
    plugin::reachable,
    pods::{is_there, on_disk},
};

const POD: &str = "missed";
const CAUSE: &str = "kubelet-missed-deletion";

/// The first object of the answer of `kubectl podstuck`, which reads kubelet's list by way of the API server.
fn by_kubelets_list(node: &Node) -> Value {
    let mut podstuck = Command::new(beside_us("kubectl-podstuck"));
    podstuck.args([POD, "--via-node-proxy", "--no-examine", "-o", "json"]);
    let output = podstuck.env("KUBECONFIG", node.kubeconfig()).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["items"][0].clone()
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_deletion_that_kubelet_missed_is_proven_by_its_own_list() {
    let borrowed = Borrowed::with(Runtime::Containerd);
    let node = borrowed.node();
    let runs = |name: &str| {
        node.apply(&on_disk(name)).unwrap();
        let phase = ["get", "pod", name, "-o", "jsonpath={.status.phase}"];
        node.wait_for(name, || node.kubectl(&phase).unwrap() == "Running").unwrap();
    };
    let lossy = Lossy::of(node, POD);
    runs(POD);
    node.kubectl(&["delete", "pod", POD, "--wait=false"]).unwrap();
    reachable(node);
    let is_overdue = || by_kubelets_list(node)["state"] == "overdue";
    node.wait_for("the pod to be overdue", is_overdue).unwrap();
    let found = |certainty: &str| {
        let item = by_kubelets_list(node);
        let cause = &item["causes"][0];
        println!("{cause:#}");
        assert_eq!(
            (&cause["id"], &cause["certainty"]),
            (&CAUSE.into(), &certainty.into()),
            "{item:#}"
        );
    };
    found("likely");
    // kubelet's watch goes on: a later pod starts.
    runs("later");
    found("firm");
    // On the node, kubelet's log is the proof: it has every deletion that kubelet received.
    // The proxy that loses the deletion speaks no TLS, so that podstuck does not ask it for the record.
    let record = tempfile::NamedTempFile::new().unwrap();
    let json = node.kubectl(&["get", "pod", POD, "-o", "json"]).unwrap();
    fs::write(record.path(), json).unwrap();
    let on_the_node = || {
        let options = ["--pod-json".into(), record.path().into()];
        let asked = From::Node.ask(node, POD, &options);
        println!("{asked}");
        asked.first()["id"] == CAUSE
    };
    node.wait_for("podstuck on the node to name it", on_the_node).unwrap();
    lossy.restart_kubelet();
    node.wait_for("the pod to be gone", || !is_there(node, POD)).unwrap();
    node.kubectl(&["delete", "pod", "later", "--wait=false"]).unwrap();
    node.wait_for("the later pod to be gone", || !is_there(node, "later")).unwrap();
}
