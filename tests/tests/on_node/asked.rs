//! What the tool said about a pod that it was asked about by name.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::Node;
use podstuck_tests::{of_type, podstuck};
use procfs::process::Process;
use serde_json::{Value, json};

use super::pods::{OnNode, pod};

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

    /// What is said beside them.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.diagnosis["notes"].as_array().into_iter().flatten().filter_map(Value::as_str)
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
        if self.first()["certainty"] != "firm" || is_chosen("PODSTUCK_NODE_WHOLE", "1") {
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
pub enum From {
    /// On the node.
    Node,
    /// In this container, which has the node's root directory at `/host`.
    Pod(String),
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
        // As `kubectl debug node/NAME` has it.
        let mounts = json!([{ "name": "host", "mountPath": "/host" }]);
        spec["containers"][0]["volumeMounts"] = mounts;
        node.apply(&debug).unwrap();
        let phase = ["get", "pod", DEBUG, "-o", "jsonpath={.status.phase}"];
        node.wait_for(DEBUG, || node.kubectl(&phase).unwrap() == "Running").unwrap();
        Self::Pod(OnNode::of(node, DEBUG).container)
    }

    /// Asks by the pod's name, with these options.
    pub fn ask(&self, node: &Node, pod: &str, options: &[OsString]) -> Asked {
        let mut command = match self {
            Self::Node => Command::new(podstuck()),
            Self::Pod(container) => {
                let mut exec = node.exec(container, pod);
                exec.arg("/bin/podstuck");
                exec
            }
        };
        let more: &[&str] = match self {
            Self::Node => &[],
            Self::Pod(_) => &["--host-root", "/host"],
        };
        let begun = Instant::now();
        let name = format!("default/{pod}");
        command.args(["diagnose", "--pod", &name, "--timeout", TIMEOUT, "--output", "json"]);
        command.args(more).args(options);
        if let Some(directory) = env::var_os("PODSTUCK_NODE_RECORD") {
            let file = Path::new(&directory).join(format!("{pod}.jsonl"));
            command.arg("--record").arg(file);
        }
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
        Self(signal(node, daemon, Signal::SIGSTOP))
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// A daemon that has ended, so that its socket has no listener until this is dropped.
pub struct Ended<'a> {
    node: &'a Node,
    daemon: &'static str,
    words: Vec<String>,
}

impl<'a> Ended<'a> {
    /// Ends it.
    pub fn of(node: &'a Node, daemon: &'static str) -> Self {
        let pid = node.pid(daemon).unwrap().cast_signed();
        let words = Process::new(pid).and_then(|process| process.cmdline()).unwrap();
        node.end(daemon).unwrap();
        Self { node, daemon, words }
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.node.start_again(self.daemon, &self.words) {
            eprintln!("starting {} again: {error:#}", self.daemon);
        }
    }
}

fn signal(node: &Node, daemon: &str, signal: Signal) -> Pid {
    let pid = Pid::from_raw(node.pid(daemon).unwrap().cast_signed());
    kill(pid, signal).unwrap();
    pid
}

/// Runs the first command of a cause that does not only show something, as it is printed.
pub fn obey(node: &Node, asked: &Asked, nth: usize) {
    let remedies = asked.diagnosis["causes"][nth]["remedies"].as_array();
    let acts = |remedy: &&Value| !remedy["risk"].as_str().unwrap().starts_with("none");
    let commands = remedies.into_iter().flatten().filter(acts);
    let Some(command) = commands.filter_map(|remedy| remedy["command"].as_str()).next() else {
        return;
    };
    println!("$ {command}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).env("KUBECONFIG", node.kubeconfig());
    let done = shell.output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("({})", done.status);
}
