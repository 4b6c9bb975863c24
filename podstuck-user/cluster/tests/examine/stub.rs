//! An API server that gives prepared answers and records the requests.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// A hostile name, which must be treated as data in a pod's record.
pub(super) const FINALIZER: &str = "x.example.com/$(touch pwned) '\"` \\n";
/// The request that lists the pods.
pub(super) const LIST: &str = "/api/v1/namespaces/shop/pods?limit=500";
pub(super) const LOG: &str = "pod shop/cart-0: immutable-attribute\n";

/// The state of the stub, and the requests that it received.
pub(super) struct State {
    /// The stuck pods.
    pub(super) stuck: Vec<Value>,
    /// The status of podstuck's own pod.
    pub(super) status: Value,
    pub(super) log: String,
    /// Whether the log never ends.
    pub(super) hangs: bool,
    /// The error with which pods are refused.
    pub(super) refused: Option<(u16, &'static str)>,
    pub(super) created: Vec<Value>,
    pub(super) requests: Vec<String>,
    /// Number of lists of pods that are still answered with 429.
    pub(super) deferred: usize,
}

/// The end of an answer's lines: a process holds the pod's volume, and its finalizer comes later.
pub(super) fn lines() -> String {
    let found = |id: &str, certainty: &str, held_by: &str, fact: &str, source: &str| {
        json!({"id": id, "certainty": certainty, "blocks_deletion": true, "held_by": held_by, "call": {"path": ""},
            "evidence": [{"fact": fact, "source": source, "since": "2026-01-01T00:00:00Z"}], "explanation": "It is busy.",
            "remedies": [{"kind": "command", "does": "end sleep (pid 7)", "command": "kill 7", "advice": null, "risk": "ends it",
                "where": "node", "guard": null, "affects": ["pod a"], "verify": null}],
            "likely_causes_ruled_out": ["stacked-mounts: there is one mount"], "not_known": []})
    };
    let object =
        |kind: &str, name: &str| json!({"kind": kind, "name": name, "pid": null, "start": null});
    let link = |who: Value, must: &str, waits_for: Value, fact: &str, source: &str| json!({"who": who, "must": must, "waits_for": waits_for, "since": null, "facts": [{"fact": fact, "source": source}]});
    let chain = [
        link(
            object("component", "the API server"),
            "remove the record",
            json!("kubelet"),
            "it is overdue",
            "its record",
        ),
        link(
            object("process", "sleep"),
            "release the volume",
            Value::Null,
            "its working directory",
            "/proc/7/cwd",
        ),
    ];
    let causes = [
        found(
            "volume-held-by-host-process",
            "firm",
            "sleep (pid 7)",
            "umount2 failed: /var/lib/kubelet/pods/uid-cart-0/volumes/x",
            "syscall probe",
        ),
        found("pod-finalizer", "firm", "the finalizer", "something is left", "samples of the node"),
        found("a-newer-cause", "firm", "x", "y", "z"),
    ];
    let diagnosis = json!({"type": "diagnosis", "firm": true, "causes": causes,
        "stages": [{"stage": "volumes", "chain": chain, "not_visible": null}], "notes": ["a note"],
        "said": [{"at": "2026-01-01T00:00:00Z", "text": "device busy", "source": "log of kubelet"}],
        "remedies": [], "next": ["look at it"]});
    let summary = json!({"type": "summary", "completeness": {"map_full": 2}});
    format!("podstuck: a warning\n{{\"type\":\"start\"}}\n{diagnosis}\n{summary}\n")
}

pub(super) struct Cluster {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) folder: tempfile::TempDir,
}

pub(super) fn ended(code: u8) -> Value {
    json!({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]})
}

pub(super) fn pending(reason: &str, message: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]})
}

/// A pod whose grace period has passed.
pub(super) fn overdue(name: &str, node: &str) -> Value {
    json!({"kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": [FINALIZER],
            "annotations": {"secret": "word"}},
        "spec": {"nodeName": node, "containers": [{"name": "a", "env": [{"name": "PASSWORD", "value": "word"}]}]}})
}

impl Cluster {
    /// A cluster without failures, in which podstuck finds a cause.
    pub(super) fn new() -> Self {
        let state = State {
            stuck: vec![overdue("cart-0", "worker-3")],
            status: ended(1),
            log: LOG.into(),
            hangs: false,
            refused: None,
            created: Vec::new(),
            requests: Vec::new(),
            deferred: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                // A closed connection does not fail the test.
                thread::spawn(move || serve(client, &state));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "c", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "shop"}}]});
        fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        Self { state, folder }
    }

    pub(super) fn with(change: impl FnOnce(&mut State)) -> Self {
        let cluster = Self::new();
        change(&mut cluster.state.lock().unwrap());
        cluster
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn podstuck(&self, args: &[&str]) -> Command {
        let mut podstuck = Command::new(env!("CARGO_BIN_EXE_kubectl-podstuck"));
        podstuck.args(args).env("KUBECONFIG", self.at("kubeconfig")).env_remove("PODSTUCK_IMAGE");
        podstuck.current_dir(self.folder.path()).stdin(Stdio::null());
        podstuck
    }

    pub(super) fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.podstuck(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(super) fn created(&self) -> Value {
        self.state.lock().unwrap().created.last().cloned().unwrap()
    }

    /// Number of requests that removed the one pod that was created.
    pub(super) fn removed(&self) -> usize {
        let own = format!("DELETE /api/v1/namespaces/kube-system/pods/{}", name(&self.created()));
        self.requests().iter().filter(|request| **request == own).count()
    }
}

pub(super) fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

fn serve(client: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut stream = BufReader::new(client);
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let mut stream = stream.into_inner();
    let (status, text, hangs) = answer(&mut state.lock().unwrap(), &method, &path, &body);
    let length = if hangs { String::new() } else { format!("Content-Length: {}\r\n", text.len()) };
    let later = if status == 429 { "Retry-After: 1\r\n" } else { "" };
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{later}{length}Connection: close\r\n\r\n{text}").ok()?;
    stream.flush().ok()?;
    // Until the client closes the connection.
    if hangs { stream.read(&mut [0]).ok().map(drop) } else { Some(()) }
}

fn answer(state: &mut State, method: &str, path: &str, body: &[u8]) -> (u16, String, bool) {
    state.requests.push(format!("{method} {path}"));
    let now = jiff::Timestamp::now();
    let of = |status: u16, value: Value| (status, value.to_string(), false);
    match (method, path) {
        ("GET", "/version") => of(200, json!({"gitVersion": "v1.33.0"})),
        ("GET", LIST) if state.deferred > 0 => {
            state.deferred -= 1;
            of(429, json!({"message": "too many requests, please try again later"}))
        }
        ("GET", LIST) => of(200, json!({"items": state.stuck})),
        ("GET", path) if path.starts_with("/api/v1/namespaces/shop/pods/") => {
            match state.stuck.iter().find(|pod| path.ends_with(&format!("/{}", name(pod)))) {
                Some(pod) => of(200, pod.clone()),
                None => of(404, json!({"message": "not found"})),
            }
        }
        ("GET", path) if path.starts_with("/api/v1/nodes/") => of(
            200,
            json!({"metadata": {"name": path.rsplit('/').next()},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        ("GET", path) if path.contains("/kube-node-lease/leases/") => {
            of(200, json!({"metadata": {}, "spec": {"renewTime": now.to_string()}}))
        }
        ("POST", "/api/v1/namespaces/kube-system/pods") => {
            if let Some((status, why)) = state.refused {
                return of(status, json!({"message": why}));
            }
            let pod: Value = serde_json::from_slice(body).unwrap();
            state.created.push(pod.clone());
            of(201, pod)
        }
        ("GET", path) if path.ends_with("/log?container=podstuck&follow=true") => {
            (200, state.log.clone(), state.hangs)
        }
        ("GET", path) if path.starts_with("/api/v1/namespaces/kube-system/pods/podstuck-") => {
            of(200, json!({"status": state.status}))
        }
        ("DELETE", _) => of(200, json!({})),
        _ => of(404, json!({"message": "not found"})),
    }
}
