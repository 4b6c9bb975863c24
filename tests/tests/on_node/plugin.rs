//! `kubectl podstuck` before a real API server, with a kubelet that makes its pod.

use std::{
    fs,
    process::{Command, Output},
    time::{Duration, Instant},
};

use podstuck_test_node::{NAME, Node};
use serde_json::{Value, json};

use super::as_by_systemd::AsBySystemd;
use super::made::{VERSION, architecture, artefact, unpacked};

/// What a new user waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Where kubelet listens, as the node is made.
const KUBELET_PORT: u16 = 21250;

/// What it has said.
pub struct Answer {
    pub status: Option<i32>,
    pub out: String,
    pub error: String,
    pub took: Duration,
}

/// Gives the node an address by which the API server finds kubelet. kubelet itself reports none, because it may not report one of
/// the loopback interface.
pub fn reachable(node: &Node) {
    let path = format!("/api/v1/nodes/{NAME}/status");
    let record = node.kubectl(&["get", "--raw", &path]).unwrap();
    let mut record: Value = serde_json::from_str(&record).unwrap();
    let status = &mut record["status"];
    status["addresses"] = json!([{ "type": "InternalIP", "address": "127.0.0.1" }]);
    status["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": KUBELET_PORT } });
    let file = node.top().join("node.json");
    fs::write(&file, record.to_string()).unwrap();
    node.kubectl(&["replace", "--raw", &path, "-f", file.to_str().unwrap()]).unwrap();
}

/// The node, with the image, and with an address: for `kubectl logs`.
pub struct Prepared<'a> {
    node: &'a Node,
    plugin: tempfile::TempDir,
    _machine: AsBySystemd,
}

impl<'a> Prepared<'a> {
    pub fn of(node: &'a Node) -> Self {
        node.import(&artefact(&format!("podstuck-{VERSION}-image.tar"))).unwrap();
        reachable(node);
        Self {
            node,
            _machine: AsBySystemd::new(),
            plugin: unpacked(&format!(
                "kubectl-podstuck-{VERSION}-linux-{}.tar.gz",
                architecture()
            )),
        }
    }

    /// Asks as its user does.
    pub fn ask(&self, args: &[&str]) -> Answer {
        let begun = Instant::now();
        let mut kubectl = Command::new("kubectl");
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.plugin.path().display());
        kubectl.arg("podstuck").args(args).env("PATH", path);
        kubectl.env("KUBECONFIG", self.node.kubeconfig());
        let Output { status, stdout, stderr } = kubectl.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let took = begun.elapsed();
        Answer { status: status.code(), out: text(stdout), error: text(stderr), took }
    }

    /// Whether none of its pods is left, once they have had their time to end.
    pub fn is_clean(&self) -> bool {
        let pods = [
            "get",
            "pods",
            "-n",
            "kube-system",
            "-l",
            "app.kubernetes.io/name=podstuck",
            "-o",
            "name",
        ];
        let none = || self.node.kubectl(&pods).is_ok_and(|text| text.is_empty());
        self.node.wait_for("the plugin's pod to go", none).is_ok()
    }
}
