//! The agent in a pod of the chart's DaemonSet, on a real node.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::{NAME, Node};
use podstuck_tests::http_get;
use procfs::process::all_processes;
use serde_json::{Value, json};

use super::{made::done, plugin::Prepared};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../podstuck-user/agent/chart");
const AGENT: &str = "podstuck-agent";
const NAMESPACE: &str = "kube-system";
const LABEL: &str = "app.kubernetes.io/name=podstuck-agent";
/// The chart's own.
const PORT: u16 = 9465;
/// Where the agent keeps its state on the node.
const STATE: &str = "/run/podstuck";
/// Where the node's API server listens on loopback.
const SERVER_PORT: &str = "21443";
/// An Event that comes later than this has not come.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running agent. What its pod needs of the machine goes with it.
pub struct Deployed<'a> {
    node: &'a Node,
    had_state: bool,
    _prepared: Prepared<'a>,
}

/// Whether this machine has Helm.
pub fn has_helm() -> Result<(), &'static str> {
    let mut helm = Command::new("helm");
    let found = helm.arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.map(drop).map_err(|_| "no helm: `cargo xtask node test` gets it")
}

impl<'a> Deployed<'a> {
    /// Applies what the chart generates for this version of Kubernetes, and waits until the agent is ready.
    pub fn on(node: &'a Node) -> Self {
        let had_state = Path::new(STATE).exists();
        let deployed = Self { node, had_state, _prepared: Prepared::of(node) };
        let mut helm = Command::new("helm");
        helm.args(["template", AGENT, CHART, "--namespace", NAMESPACE, "--kube-version", "1.20.2"]);
        helm.args(["--set", "address=127.0.0.1"]);
        let manifest = node.top().join("agent.yaml");
        fs::write(&manifest, done(&mut helm)).unwrap();
        deployed.give_what_a_cluster_has();
        node.kubectl(&["apply", "-f", manifest.to_str().unwrap()]).unwrap();
        let patch = on_this_node().to_string();
        node.kubectl(&["patch", "daemonset", AGENT, "-n", NAMESPACE, "--patch", &patch]).unwrap();
        deployed.schedule();
        node.wait_for("the agent to be ready", || deployed.status("ready") == "true").unwrap();
        deployed
    }

    /// The certificate by which pods know the API server: a controller publishes it, which this node does not run.
    fn give_what_a_cluster_has(&self) {
        let authority = fs::read_to_string(self.node.top().join("keys/authority.crt")).unwrap();
        let published = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "kube-root-ca.crt", "namespace": NAMESPACE },
            "data": { "ca.crt": authority },
        });
        self.node.apply(&published).unwrap();
    }

    /// Does for the newest template what the scheduler does: binds its pod to the node.
    fn schedule(&self) {
        let path = "jsonpath={range .items[?(@.spec.hostNetwork)]}{.metadata.name}{\" \"}{.spec.nodeName}{\"\\n\"}{end}";
        let pods = ["get", "pods", "-n", NAMESPACE, "-l", LABEL, "-o", path];
        let unbound = || {
            let pods = self.node.kubectl(&pods).unwrap();
            pods.lines()
                .map(str::trim_end)
                .find(|line| !line.is_empty() && !line.contains(' '))
                .map(str::to_owned)
        };
        self.node.wait_for("the DaemonSet's pod", || unbound().is_some()).unwrap();
        let name = unbound().unwrap();
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "target": { "apiVersion": "v1", "kind": "Node", "name": NAME },
        });
        let file = self.node.top().join("binding.json");
        fs::write(&file, binding.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding");
        self.node.kubectl(&["create", "--raw", &path, "-f", file.to_str().unwrap()]).unwrap();
    }

    /// A field of the container's status.
    fn status(&self, field: &str) -> String {
        let path = format!("jsonpath={{.items[*].status.containerStatuses[*].{field}}}");
        let pods = ["get", "pods", "-n", NAMESPACE, "-l", LABEL, "-o", &path];
        self.node.kubectl(&pods).unwrap()
    }

    /// The end of what the agent has printed.
    fn log(&self) -> String {
        let logs = ["logs", "-n", NAMESPACE, "-l", LABEL, "--tail=40"];
        self.node.kubectl(&logs).unwrap_or_else(|error| format!("{error:#}"))
    }

    fn metrics(&self) -> String {
        http_get(PORT, "/metrics").unwrap_or_default()
    }

    /// Waits until the agent knows this number of stuck pods.
    pub fn wait_for_findings(&self, count: usize) {
        let is_of_pod = |line: &&str| line.starts_with("podstuck_finding_info{");
        let are_known = || self.metrics().lines().filter(is_of_pod).count() >= count;
        self.node.wait_for("the findings", are_known).unwrap();
    }

    /// What names the agent's Events about these pods, and nothing that a renewal changes.
    pub fn identities(&self, pods: &[&str]) -> Vec<[Value; 2]> {
        let events = pods.iter().flat_map(|pod| self.events(pod));
        events.map(|event| ["name", "uid"].map(|key| event["metadata"][key].clone())).collect()
    }

    /// Kills the agent, and waits until kubelet has started it again and it is ready.
    pub fn kill(&self) {
        let is_agent = |words: &[String]| {
            words.first().is_some_and(|it| it == "/podstuck-agent")
                && words.iter().any(|it| it.starts_with("--listen=127.0.0.1:"))
        };
        let all = all_processes().unwrap().flatten();
        let agent = all.into_iter().find(|it| it.cmdline().is_ok_and(|words| is_agent(&words)));
        kill(Pid::from_raw(agent.unwrap().pid), Signal::SIGKILL).unwrap();
        let is_back = || self.status("restartCount") == "1" && self.status("ready") == "true";
        self.node.wait_for("the agent to be ready again", is_back).unwrap();
    }

    /// The agent's Events about a pod.
    pub fn events(&self, pod: &str) -> Vec<Value> {
        let all = self.node.kubectl(&["get", "events.v1.events.k8s.io", "-o", "json"]).unwrap();
        let all: Value = serde_json::from_str(&all).unwrap();
        let is_about = |event: &&Value| {
            event["reportingController"] == AGENT && event["regarding"]["name"] == pod
        };
        all["items"].as_array().unwrap().iter().filter(is_about).cloned().collect()
    }

    /// Waits for the agent's one Event about a pod of this reason.
    pub fn event(&self, pod: &str, reason: &str) -> Value {
        let begun = Instant::now();
        loop {
            let events = self.events(pod);
            if let [event] = &events[..]
                && event["reason"] == reason
            {
                println!("measured: {reason} on {pod} after {:.1?}", begun.elapsed());
                return event.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "{pod}: no {reason}: {events:#?}\n{}", self.log());
            thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Deployed<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.log());
        }
        let manifest = self.node.top().join("agent.yaml");
        let manifest = manifest.to_str().unwrap_or_default();
        let _ = self.node.kubectl(&["delete", "-f", manifest, "--ignore-not-found"]);
        let _ = self.node.wait_for("the agent's end", || self.status("ready").is_empty());
        if !self.had_state {
            let _ = fs::remove_dir_all(STATE);
        }
    }
}

/// What the pod needs on a node without a service network and without the admission of service accounts: the API server's
/// address, and the token that each pod of a cluster is given.
fn on_this_node() -> Value {
    let env = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", SERVER_PORT)];
    let env = env.map(|(name, value)| json!({ "name": name, "value": value }));
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let namespace =
        json!({ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } });
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
        { "configMap": { "name": "kube-root-ca.crt" } },
        { "downwardAPI": { "items": [namespace] } },
    ]);
    json!({ "spec": { "template": { "spec": {
        "hostNetwork": true,
        "containers": [{
            "name": AGENT,
            "env": env,
            "volumeMounts": [{ "name": "token", "mountPath": account, "readOnly": true }],
        }],
        "volumes": [{ "name": "token", "projected": { "sources": sources } }],
    } } } })
}
