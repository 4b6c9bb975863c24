//! Daemons that run and do not answer requests, or list nothing. podstuck sends the daemon no request: the kernel shows
//! its clients and what it has read, and a client's process shows the command and its start time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    causes::{
        runtime::{suspect::Suspect, verdict},
        shared::{blamed, clients, unit},
    },
    command::{Process, if_same},
    ids,
    model::{
        client::{Client, Request},
        node::NodeSample,
        runtime::Runtime,
        time::Monotonic,
    },
    verdict::Draft,
};

/// Age at which the client of a connection is asked for, once: most requests are answered at once.
const OLD: Duration = Duration::from_secs(10);
/// Age at which a quick request counts as unanswered.
const WAITS: Duration = Duration::from_secs(20);
/// Minimum time between two sightings that confirm each other.
const APART: Duration = Duration::from_secs(4);
/// Samples between two questions about clients that wait.
const AGAIN: u32 = 3;
/// Clients whose command line shows the request.
const PROGRAMS: [&str; 3] = ["docker", "crictl", "nerdctl"];
/// Requests that are quick whatever the containers and volumes do. A request about one container waits for that
/// container, and one about volumes for the lock of the volume store.
const QUICK: [&str; 7] = ["ps", "version", "info", "images", "pods", "container ls", "image ls"];

/// The clients of running daemons, by a daemon's process ID and start time.
#[derive(Default)]
pub(super) struct SilentDaemons {
    known: BTreeMap<(u32, u64), Known>,
}

#[derive(Default)]
struct Known {
    /// When each connection was first seen.
    connections: BTreeMap<u64, Monotonic>,
    /// Connections that were `OLD` at an earlier question.
    asked: BTreeSet<u64>,
    /// Samples since the last question, while a client waits.
    looks: u32,
    /// Clients that may wait, by process ID and start time: when first seen, and the last answer.
    waiting: BTreeMap<(u32, Monotonic), (Monotonic, Client)>,
    answered: Monotonic,
}

/// Clients without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// The oldest client first.
    pub(crate) clients: Vec<Client>,
    /// Since when the first of them waits.
    pub(crate) since: Monotonic,
    /// When the clients were last read.
    pub(crate) looked: Monotonic,
}

impl SilentDaemons {
    /// Records the connections; returns the process IDs of the daemons to ask the clients of.
    pub(super) fn sampled(&mut self, sample: &NodeSample) -> Vec<u32> {
        let mut before = std::mem::take(&mut self.known);
        let mut to_ask = Vec::new();
        for runtime in sample.runtimes.iter().filter(|it| it.halted.is_none()) {
            let key = (runtime.pid, runtime.started);
            let mut known = before.remove(&key).unwrap_or_default();
            if known.is_to_be_asked(runtime, sample.at) {
                to_ask.push(runtime.pid);
            }
            self.known.insert(key, known);
        }
        to_ask
    }

    /// Records the clients of a daemon.
    pub(super) fn answered(&mut self, pid: u32, clients: &[Client], now: Monotonic) {
        let Some((_, known)) = self.known.iter_mut().find(|((of, _), _)| *of == pid) else {
            return;
        };
        let before = std::mem::take(&mut known.waiting);
        for client in clients.iter().filter(|client| may_wait(client)) {
            let key = (client.pid, client.since);
            let first = before.get(&key).map_or(now, |(first, _)| *first);
            known.waiting.insert(key, (first, client.clone()));
        }
        known.answered = now;
    }

    /// The clients without an answer from a daemon, if any was seen to wait twice.
    pub(super) fn of(&self, runtime: &Runtime) -> Option<Silence> {
        let known = self.known.get(&(runtime.pid, runtime.started))?;
        let twice = known.waiting.values();
        let twice = twice.filter(|(first, client)| {
            known.answered.since(*first) >= APART && waits(client, known.answered)
        });
        let mut clients: Vec<(Monotonic, Client)> = twice.cloned().collect();
        clients.sort_by_key(|(_, client)| (client.since, client.pid));
        let since = clients.iter().map(|(first, client)| begun(*first, client)).min()?;
        let clients = clients.into_iter().map(|(_, client)| client).collect();
        Some(Silence { clients, since, looked: known.answered })
    }
}

impl Known {
    fn is_to_be_asked(&mut self, runtime: &Runtime, now: Monotonic) -> bool {
        let mut before = std::mem::take(&mut self.connections);
        for connection in &runtime.connections {
            let since = before.remove(connection).unwrap_or(now);
            self.connections.insert(*connection, since);
        }
        self.asked.retain(|connection| self.connections.contains_key(connection));
        let old = self.connections.iter().filter(|(_, since)| now.since(**since) >= OLD);
        let old: BTreeSet<u64> = old.map(|(connection, _)| *connection).collect();
        if old.is_empty() {
            self.waiting.clear();
        }
        let is_new = !old.is_subset(&self.asked);
        self.asked.extend(old);
        self.looks = if is_new || self.waiting.is_empty() { 0 } else { self.looks + 1 };
        is_new || self.looks.is_multiple_of(AGAIN) && !self.waiting.is_empty()
    }
}

/// Since when a client waits: since its start for a quick command. Any other client may have connected later, and is
/// known to wait only since it was first seen.
fn begun(first: Monotonic, client: &Client) -> Monotonic {
    if is_quick(&client.command) { client.since } else { first }
}

/// Whether the client is to be asked about again.
fn may_wait(client: &Client) -> bool {
    client.request == Request::Pending || is_quick(&client.command)
}

fn waits(client: &Client, now: Monotonic) -> bool {
    // The daemon has not accepted the connection, whatever the request is.
    client.request == Request::Pending || now.since(client.since) >= WAITS
}

fn is_quick(command: &str) -> bool {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    PROGRAMS.contains(&program) && QUICK.contains(&rest)
}

/// Describes the clients without an answer, and the remedies; returns the reason in words.
pub(super) fn tell(
    draft: &mut Draft,
    runtime: &Runtime,
    silence: &Silence,
    sample: &NodeSample,
) -> String {
    let (name, pid) = (runtime.component.name(), runtime.pid);
    let waiting: Vec<&Client> = silence.clients.iter().collect();
    clients::tell(draft, name, &waiting, silence.looked);
    let is_shut = waiting.iter().any(|client| client.request == Request::Pending);
    if !is_shut && waiting.len() < 2 {
        draft.lacks("that a second client is not answered either");
    }
    if sample.is_full() == Some(true) {
        draft.doubt("whether the daemon waits for a disk that is full");
    }
    let process = Process::new(pid, Some(runtime.started), Some(name));
    draft.remedy(
        if_same("request a stack trace from", process, format!("kill -USR1 {pid}")),
        "none; the runtime writes what each of its threads waits for to its log, or to a file that the log names",
    );
    let unit = runtime.group.as_deref().and_then(unit::of);
    draft.remedies.push(unit::restart_of(name, unit, unit::RUNTIME_RISK));
    if is_shut {
        format!("{name} (pid {pid}) no longer accepts connections, although nothing halts it.")
    } else {
        format!(
            "{name} (pid {pid}) has read requests that take a moment and does not answer them, although nothing \
             halts it."
        )
    }
}

/// A runtime that answers kubelet's request for all pods with an error (`GenericPLEG.Relist` in pkg/kubelet/pleg): the workers
/// of the pods wait for the state that only this list gives them.
pub(super) fn list_fails(draft: &mut Draft, suspect: &Suspect<'_>) {
    verdict::processes(draft, suspect);
    verdict::must_act(draft, suspect, "list its pods and containers for kubelet without an error");
    if let Some(word) = suspect.to_go {
        word.tell(draft);
    }
    draft.explanation = "kubelet asks the runtime for all pods and containers, again and again, and the runtime answers with \
        this error. Without that list kubelet knows the state of no pod of this node, and neither stops nor removes one."
        .into();
    match blamed::way_out(&suspect.logged.said.text) {
        Some(way_out) => {
            draft.advice(way_out, "low: containers that run are not touched");
        }
        None => {
            draft.advice(
                "repair what the runtime's error names; its own log has more about it",
                "none",
            );
            verdict::restart(draft, suspect);
        }
    }
    let answers = "the runtime answers with an error";
    draft.rule_out(ids::RUNTIME_COMMAND_HUNG, "the request that fails is about no pod");
    draft.rule_out(ids::RUNTIME_DOWN, answers);
    draft.rule_out(ids::RUNTIME_SOCKET_GONE, answers);
    let of_all = "the error is about the list of all containers, not about one";
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, of_all);
    draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, of_all);
    draft.rule_out(ids::SHIM_HUNG, of_all);
    if !suspect.logged.said.text.contains("no space left") {
        draft.rule_out(ids::DISK_FULL_RUNTIME, "the error is not about space");
    }
    draft.doubt("whether the runtime still answers with that error: podstuck sends it no request");
}

/// Rules out the look-alikes.
pub(super) fn rule_out(draft: &mut Draft, sample: &NodeSample) {
    if sample.is_full() == Some(false) {
        draft.rule_out(
            ids::DISK_FULL_RUNTIME,
            "the disks of kubelet and the runtimes have free space",
        );
    }
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the unanswered requests are about no container",
    );
    draft.rule_out(ids::SHIM_HUNG, "the unanswered requests are about no container");
    draft.rule_out(ids::RUNTIME_COMMAND_HUNG, "the unanswered requests run no command");
    draft.rule_out(ids::RUNTIME_DOWN, "its process exists");
    draft.rule_out(ids::RUNTIME_SOCKET_GONE, "clients are connected, or wait to be");
    draft.rule_out(
        ids::DOCKER_CONTAINERD_STATE_DESYNC,
        "the unanswered requests are about no container",
    );
}
