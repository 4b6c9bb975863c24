//! What the tool said about a pod that it was asked about by name.

use std::{
    env, fmt,
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_node::Node;
use podstuck_tests::{of_type, podstuck};
use serde_json::{Value, json};

use super::pods::pod;

/// What `diagnose` is given, and a tool at 3 a.m. would be.
const TIMEOUT: &str = "30s";

/// An answer.
pub struct Asked {
    pub took: Duration,
    pub status: Option<i32>,
    /// The line of type `diagnosis`; null when there was none.
    pub diagnosis: Value,
}

impl Asked {
    /// The first cause; null without one.
    pub fn first(&self) -> &Value {
        &self.diagnosis["causes"][0]
    }

    /// Names of all causes, in their order.
    pub fn causes(&self) -> Vec<&str> {
        let causes = self.diagnosis["causes"].as_array();
        causes.into_iter().flatten().filter_map(|cause| cause["id"].as_str()).collect()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certainty = self.first()["certainty"].as_str().unwrap_or("nothing");
        let causes = self.causes().join(", ");
        write!(f, "{certainty} {causes} (exit {:?}, {:.1?})", self.status, self.took)?;
        if self.first()["certainty"] != "firm" {
            write!(f, "\n{:#}", self.diagnosis)?;
        }
        Ok(())
    }
}

/// Whether a variable of the environment says so.
pub fn is_chosen(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|chosen| chosen == value)
}

/// Where an engineer sits.
#[derive(Clone, Copy)]
pub enum From {
    /// On the node.
    Node,
    /// In a pod that has the node's root directory at `/host`.
    Pod,
}

/// Name of that pod.
const DEBUG: &str = "debug";

impl From {
    /// What `PODSTUCK_NODE_FROM` says; the pod is made.
    pub fn chosen(node: &Node) -> Self {
        if !is_chosen("PODSTUCK_NODE_FROM", "pod") {
            return Self::Node;
        }
        let mut debug = pod(DEBUG, &json!([{ "name": "host", "hostPath": { "path": "/" } }]));
        let spec = &mut debug["spec"];
        spec["hostPID"] = true.into();
        spec["containers"][0]["securityContext"] = json!({ "privileged": true });
        spec["containers"][0]["volumeMounts"] = json!([{
            "name": "host",
            "mountPath": "/host",
            "mountPropagation": "HostToContainer",
        }]);
        node.apply(&debug).unwrap();
        let phase = ["get", "pod", DEBUG, "-o", "jsonpath={.status.phase}"];
        node.wait_for(DEBUG, || node.kubectl(&phase).unwrap() == "Running").unwrap();
        Self::Pod
    }

    /// Asks by the pod's name.
    pub fn ask(self, node: &Node, pod: &str) -> Asked {
        let mut command = match self {
            Self::Node => Command::new(podstuck()),
            Self::Pod => {
                let mut exec = Command::new("kubectl");
                exec.arg("--kubeconfig").arg(node.kubeconfig()).args(["exec", DEBUG, "--"]);
                exec.arg("/bin/podstuck");
                exec
            }
        };
        let more: &[&str] = match self {
            Self::Node => &[],
            Self::Pod => &["--host-root", "/host"],
        };
        let begun = Instant::now();
        let name = format!("default/{pod}");
        command.args(["diagnose", "--pod", &name, "--timeout", TIMEOUT, "--output", "json"]);
        command.args(more);
        let done = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&done.stderr);
        if !complaint.is_empty() {
            println!("{pod}: {}", complaint.trim_end());
        }
        let lines = String::from_utf8_lossy(&done.stdout).into_owned();
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let diagnosis = of_type(&lines, "diagnosis").last().map(|line| (*line).clone());
        Asked {
            took: begun.elapsed(),
            status: done.status.code(),
            diagnosis: diagnosis.unwrap_or_default(),
        }
    }
}

/// A daemon that does not answer until this is dropped.
pub struct Hung(Pid);

impl Hung {
    /// Stops it.
    pub fn of(node: &Node, daemon: &str) -> Self {
        let pid = Pid::from_raw(node.pid(daemon).unwrap().cast_signed());
        kill(pid, Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Runs the first command of the first cause, as it is printed.
pub fn obey(node: &Node, asked: &Asked) {
    let Some(command) = asked.first()["remedies"][0]["command"].as_str() else { return };
    println!("$ {command}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).env("KUBECONFIG", node.kubeconfig());
    let done = shell.output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("({})", done.status);
}
