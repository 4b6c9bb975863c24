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
/// A role for the test's own caller, whom kubelet takes for anonymous: kubelet 1.20 lists its pods for no lesser right.
const ROLE: &str = "reads-kubelets";
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
    let lossy = Lossy::of(node, POD, &["--authorization-mode=Webhook"]);
    runs(POD);
    node.kubectl(&["delete", "pod", POD, "--wait=false"]).unwrap();
    reachable(node);
    let is_overdue = || by_kubelets_list(node)["state"] == "overdue";
    node.wait_for("the pod to be overdue", is_overdue).unwrap();
    // The proxy that loses the deletion speaks no TLS, so that podstuck does not ask it for the record.
    let record = tempfile::NamedTempFile::new().unwrap();
    let json = node.kubectl(&["get", "pod", POD, "-o", "json"]).unwrap();
    fs::write(record.path(), json).unwrap();
    let on_the_node = |certainty: &str| {
        let options = ["--pod-json".into(), record.path().into()];
        let asked = From::Node.ask(node, POD, &options);
        println!("{asked}");
        let first = asked.first();
        (first["id"] == CAUSE && first["certainty"] == certainty).then(|| first.to_string())
    };
    // Without the right, kubelet's log is the evidence: it has every deletion that kubelet received.
    let by_the_log =
        || on_the_node("likely").is_some_and(|first| first.contains("`get` on `nodes/pods`"));
    node.wait_for("podstuck on the node to name it by the log", by_the_log).unwrap();
    node.kubectl(&["create", "clusterrole", ROLE, "--verb=get", "--resource=nodes/proxy"]).unwrap();
    let (role, user) = (format!("--clusterrole={ROLE}"), "--user=system:anonymous");
    node.kubectl(&["create", "clusterrolebinding", ROLE, &role, user]).unwrap();
    let by_proxy = |certainty: &str| {
        let item = by_kubelets_list(node);
        let cause = &item["causes"][0];
        println!("{cause:#}");
        cause["id"] == CAUSE && cause["certainty"] == certainty
    };
    // kubelet asks again for a right that was denied after half a minute.
    node.wait_for("kubelet to permit it", || by_proxy("likely")).unwrap();
    // kubelet's watch goes on: a later pod starts.
    runs("later");
    assert!(by_proxy("firm"));
    node.wait_for("podstuck on the node to prove it", || on_the_node("firm").is_some()).unwrap();
    lossy.restart_kubelet();
    node.wait_for("the pod to be gone", || !is_there(node, POD)).unwrap();
    node.kubectl(&["delete", "pod", "later", "--wait=false"]).unwrap();
    node.wait_for("the later pod to be gone", || !is_there(node, "later")).unwrap();
    for kind in ["clusterrolebinding", "clusterrole"] {
        node.kubectl(&["delete", kind, ROLE]).unwrap();
    }
}
