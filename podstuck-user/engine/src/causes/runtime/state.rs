//! Runtimes that cannot work: a signal has stopped the daemon, its control group is frozen, it does not run while its
//! shims do, or it does not respond. The processes show this at any time; no log reports it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use podstuck_common::component::name_hash;

use crate::{
    causes::{
        runtime::{
            causes::{RUNTIME_DOWN, RUNTIME_HANGS},
            unresponsive::{self, Silence, SilentDaemons},
        },
        shared::{
            clients, halted,
            pending_deletion::{ToGo, Word},
            unit,
        },
    },
    command::{Process, Step},
    event::{Event, What},
    ids,
    model::{
        chain::Who,
        client::Client,
        container::ContainerState,
        evidence::{Certainty, Source},
        finding::Severity,
        halted::Halted,
        identity::{Component, Pod, Target, TargetKind},
        node::{NodeSample, PodState},
        path::safe_path,
        pod_group::PodGroup,
        runtime::{Daemon, GoneRuntime, Shim},
        time::Monotonic,
    },
    query::{FindClients, Query, Question},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// How long a daemon must be halted: two samples. A debugger stops a process for a moment.
const HALTED: Duration = Duration::from_secs(5);
/// How long a daemon must be gone. systemd restarts a failed service after 5 s (`RestartSec` in the units of
/// containerd; 2 s in Docker's).
const GONE: Duration = Duration::from_secs(10);

/// Samples between two questions about the clients of halted daemons.
const AGAIN: u32 = 5;

/// A daemon: by process ID and start time, or by component and socket if it is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Process(u32, u64),
    Gone(Component, Option<PathBuf>),
}

/// A daemon that does not work.
#[derive(Clone)]
pub(crate) struct Fault<'a> {
    pub(crate) daemon: Daemon<'a>,
    pub(crate) since: Monotonic,
    /// The clients without an answer, if nothing keeps the daemon from running.
    pub(crate) silence: Option<Silence>,
}

/// What cannot be removed without the daemon.
#[derive(Clone, Copy)]
pub(crate) enum Victim<'a> {
    /// A pod that is to be deleted and has processes.
    Pod(&'a PodState, &'a PodGroup, &'a Word),
    /// The container that the run asks about.
    Container(&'a ContainerState),
    /// Nothing is known to wait.
    Unknown,
}

/// The daemons of the last sample that do not work.
#[derive(Default)]
pub(crate) struct RuntimeStates {
    since: BTreeMap<Key, Monotonic>,
    to_go: ToGo,
    /// By a halted daemon's process ID: its clients, and when they were read.
    clients: BTreeMap<u32, (Vec<Client>, Monotonic)>,
    looks: u32,
    silent: SilentDaemons,
    /// Findings in force, by target ID: the pod's UID, and whether the finding is at least likely.
    reported: BTreeMap<u64, (String, bool)>,
}

impl RuntimeStates {
    fn sampled(&mut self, sample: &NodeSample, steps: &mut Steps) {
        self.note(sample);
        self.ask(sample, steps);
        let tracker = self.id();
        let silent = self.silent.sampled(sample);
        steps.ask(silent.into_iter().map(|pid| clients_of(tracker, pid)));
        let mut before = std::mem::take(&mut self.reported);
        let mut victims = BTreeSet::new();
        let pods = sample.pods.iter().filter(|pod| pod.populated == Some(true));
        for pod in pods {
            let Some(word) = self.to_go.word(&pod.uid).cloned() else { continue };
            let target_id = name_hash(pod.uid.as_bytes());
            let Some(group) = sample.cgroups.iter().find(|group| group.uid == pod.uid) else {
                // Not every sample has the control groups of all pods.
                let known = before.remove_entry(&target_id);
                victims.extend(known.as_ref().map(|(target_id, _)| *target_id));
                self.reported.extend(known);
                continue;
            };
            let daemons = group.shims.iter().flat_map(|shim| sample.daemons_of(shim)).collect();
            let victim = Victim::Pod(pod, group, &word);
            victims.extend(self.tell((target_id, &pod.uid), victim, daemons, sample, steps));
        }
        for container in &sample.containers {
            let daemons = daemons_of(container, sample);
            let id = &container.container.id;
            let pod = container.container.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            let victim = Victim::Container(container);
            let of = (name_hash(id.as_bytes()), pod);
            victims.extend(self.tell(of, victim, daemons, sample, steps));
        }
        if victims.is_empty() {
            let running = sample.runtimes.iter().map(Daemon::Runs);
            for daemon in running.chain(sample.gone.iter().map(Daemon::Gone)) {
                let target_id = name_hash(format!("{:?}", key(daemon)).as_bytes());
                self.tell((target_id, ""), Victim::Unknown, vec![daemon], sample, steps);
            }
        }
        let (tracker, at) = (self.id(), sample.at);
        let over = before.into_keys().filter(|target_id| !self.reported.contains_key(target_id));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }

    /// Records since when each daemon is halted or gone.
    fn note(&mut self, sample: &NodeSample) {
        let before = std::mem::take(&mut self.since);
        let halted = sample.runtimes.iter().map(Daemon::Runs).filter(|it| it.halted().is_some());
        for daemon in halted.chain(sample.gone.iter().map(Daemon::Gone)) {
            let key = key(daemon);
            let since = before.get(&key).copied().unwrap_or(sample.at);
            self.since.insert(key, since);
        }
    }

    /// Asks for the clients of halted daemons, every `AGAIN` samples.
    fn ask(&mut self, sample: &NodeSample, steps: &mut Steps) {
        let halted = sample.runtimes.iter().filter(|it| it.halted.is_some());
        let pids: Vec<u32> = halted.map(|it| it.pid).collect();
        self.clients.retain(|pid, _| pids.contains(pid));
        self.looks = if pids.is_empty() { 0 } else { self.looks + 1 };
        if self.looks % AGAIN == 1 {
            let tracker = self.id();
            steps.ask(pids.into_iter().map(|pid| clients_of(tracker, pid)));
        }
    }

    fn tell(
        &mut self,
        (target_id, uid): (u64, &str),
        victim: Victim<'_>,
        mut daemons: Vec<Daemon<'_>>,
        sample: &NodeSample,
        steps: &mut Steps,
    ) -> Option<u64> {
        // The sandbox and each container have a shim of their own.
        let mut seen = BTreeSet::new();
        daemons.retain(|daemon| seen.insert(key(*daemon)));
        let lasts = |daemon: Daemon<'_>| {
            let since = *self.since.get(&key(daemon))?;
            let needed = if matches!(daemon, Daemon::Gone(_)) { GONE } else { HALTED };
            (sample.at.since(since) >= needed).then_some(since)
        };
        let is_clear =
            sample.runtimes.iter().all(|it| it.halted.is_none()) && sample.gone.is_empty();
        let fault = |daemon| {
            if let Some(since) = lasts(daemon) {
                return Some(Fault { daemon, since, silence: None });
            }
            // A silent daemon may wait for another one that is halted or gone.
            let Daemon::Runs(runtime) = daemon else { return None };
            let silence = self.silent.of(runtime).filter(|_| is_clear)?;
            Some(Fault { daemon, since: silence.since, silence: Some(silence) })
        };
        let faults: Vec<Fault<'_>> = daemons.into_iter().filter_map(fault).collect();
        let draft = draft(&victim, &faults, (target_id, &self.clients), sample)?;
        let is_likely = draft.certainty() >= Certainty::Likely;
        self.reported.insert(target_id, (uid.to_owned(), is_likely));
        steps.found([draft]);
        Some(target_id)
    }
}

fn clients_of(tracker: TrackerId, pid: u32) -> Query {
    let (target_id, path) = (pid.into(), PathBuf::new());
    Query { tracker, target_id, path, wants: FindClients { pid }.into() }
}

/// The daemons that remove a container, the lower one first.
fn daemons_of<'a>(container: &'a ContainerState, sample: &'a NodeSample) -> Vec<Daemon<'a>> {
    let of_shim = container.shim.iter().flat_map(|shim| sample.daemons_of(shim));
    let mut all: Vec<Daemon<'_>> = of_shim.collect();
    let has_dockerds = container.shim.as_ref().is_some_and(Shim::is_dockers);
    if container.runtime == Component::Dockerd && !has_dockerds {
        all.extend(sample.only(Component::Dockerd));
    }
    all
}

fn key(daemon: Daemon<'_>) -> Key {
    match daemon {
        Daemon::Runs(it) => Key::Process(it.pid, it.started),
        Daemon::Gone(it) => Key::Gone(it.component, it.socket.clone()),
    }
}

impl Tracker for RuntimeStates {
    fn id(&self) -> TrackerId {
        TrackerId::RuntimeState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Sample(sample) => self.sampled(sample, steps),
            What::Answer { query, answer } => {
                if let Some((FindClients { pid }, found)) = FindClients::answered(query, answer) {
                    // Without an answer, no client counts as waiting.
                    let clients = found.clone().unwrap_or_default();
                    self.silent.answered(*pid, &clients, context.now);
                    if found.is_ok() {
                        self.clients.insert(*pid, (clients, context.now));
                    }
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        self.reported.values().any(|(uid, likely)| subject.is_of_pod(uid) && claim.is_met(*likely))
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

const START: &str = "low: the runtime finds its containers again through their shims. Docker without live-restore \
    ends the containers that it finds";

/// The finding, if one of the daemons does nothing.
pub(crate) fn draft(
    victim: &Victim<'_>,
    faults: &[Fault<'_>],
    (target_id, clients): (u64, &BTreeMap<u32, (Vec<Client>, Monotonic)>),
    sample: &NodeSample,
) -> Option<Draft> {
    let first = faults.first()?;
    let cause = match first.daemon {
        Daemon::Runs(_) => &RUNTIME_HANGS,
        Daemon::Gone(_) => &RUNTIME_DOWN,
    };
    let target = target(victim, first);
    let path = target.root.clone();
    let mut draft = Draft::about_state(
        TrackerId::RuntimeState,
        cause,
        target_id,
        target.into(),
        path,
        sample.at,
    );
    draft.first = first.since;
    let name = name(first.daemon);
    draft.held_by(match first.daemon {
        Daemon::Runs(runtime) => runtime.who(),
        Daemon::Gone(_) => Who::component(name, None).and(", which does not run"),
    });
    if matches!(first.daemon, Daemon::Gone(_)) {
        draft.must = Some("be started");
    }
    let mut why = format!("{name} does not run.");
    let mut is_silent = false;
    for fault in faults {
        match (fault.daemon, &fault.silence) {
            (Daemon::Runs(runtime), Some(silence)) => {
                why = unresponsive::tell(&mut draft, runtime, silence, sample);
                is_silent = true;
            }
            (Daemon::Runs(runtime), None) => {
                let Some(halted) = &runtime.halted else { continue };
                let process = Process::new(runtime.pid, Some(runtime.started), Some(name));
                let how = halted::go_on(&mut draft, process, halted);
                let result = match halted {
                    Halted::NoDescriptors { .. } | Halted::NoTasks { .. } => "does not work",
                    _ => "answers no request",
                };
                why = format!("{name} (pid {}) {result}: its {how}.", runtime.pid);
            }
            (Daemon::Gone(gone), _) => is_gone(&mut draft, gone),
        }
        since(&mut draft, fault, sample);
        if let Daemon::Runs(runtime) = fault.daemon
            && fault.silence.is_none()
            && let Some((clients, looked)) = clients.get(&runtime.pid)
        {
            let name = runtime.component.name();
            clients::wait(&mut draft, name, clients, (fault.since, *looked));
        }
    }
    draft.explanation = match victim {
        Victim::Pod(_, _, word) => {
            word.tell(&mut draft);
            draft.fact(
                "processes of the pod are left in its control groups",
                Source::proc("control groups"),
            );
            format!(
                "{why} Until that changes, no component ends the pod's containers, and kubelet removes nothing of a \
                 pod that has containers."
            )
        }
        Victim::Container(_) => {
            format!("{why} A request to end or remove the container waits, or is refused.")
        }
        Victim::Unknown => {
            format!("{why} Until that changes, none of its containers is ended or removed.")
        }
    };
    draft.blocks_deletion = (!matches!(victim, Victim::Unknown)).then_some(true);
    draft.severity = Severity::Critical;
    if is_silent {
        unresponsive::rule_out(&mut draft, sample);
    } else {
        rule_out(&mut draft);
    }
    Some(draft)
}

fn target(victim: &Victim<'_>, first: &Fault<'_>) -> Target {
    match victim {
        Victim::Pod(pod, group, _) => {
            let unnamed = || Pod { uid: pod.uid.clone(), namespace: None, name: None };
            Target {
                kind: TargetKind::PodDirectory,
                root: pod.directory.clone(),
                pod: Some(group.target.pod.clone().unwrap_or_else(unnamed)),
                ..Target::unknown()
            }
        }
        Victim::Container(ContainerState { container, parts, .. }) => Target {
            root: parts.first().map(|part| part.path.clone()).unwrap_or_default(),
            pod: container.pod.clone(),
            container: Some(container.id.clone()),
            container_name: container.name.clone(),
            ..Target::unknown()
        },
        Victim::Unknown => {
            let socket = match first.daemon {
                Daemon::Runs(runtime) => runtime
                    .api_socket()
                    .map(Into::into)
                    .or_else(|| runtime.sockets.first().cloned()),
                Daemon::Gone(gone) => gone.socket.clone(),
            };
            Target { root: socket.unwrap_or_default(), ..Target::unknown() }
        }
    }
}

fn name(daemon: Daemon<'_>) -> &'static str {
    match daemon {
        Daemon::Runs(runtime) => runtime.component.name(),
        Daemon::Gone(gone) => gone.component.name(),
    }
}

fn is_gone(draft: &mut Draft, gone: &GoneRuntime) {
    let GoneRuntime { component, socket, shims, group } = gone;
    let name = component.name();
    let many = if *shims == 1 {
        "1 of its shims is alive".into()
    } else {
        format!("{shims} of its shims are alive")
    };
    let fact = match socket {
        Some(socket) => {
            let socket = safe_path(socket);
            format!(
                "no process listens on {socket}, the socket through which shims call {name}; {many}"
            )
        }
        None => format!("no process of {name} runs; {many}"),
    };
    draft.fact(fact, Source::proc("/proc/*/cmdline and /proc/*/net/unix"));
    // Below dockerd runs a service of its own or dockerd's child, whose group names the wrong unit.
    let unit = group.as_deref().filter(|_| *component != Component::Dockerd).and_then(unit::of);
    match unit {
        Some(unit) => {
            let journal = format!("journalctl --unit {unit} --lines 50 --no-pager");
            draft.remedy(Step::new(format!("show how {name} ended"), journal), "none");
            draft.remedy(unit::start(unit), START);
        }
        None => {
            let starts = socket.as_deref().and_then(unit::distribution);
            let what = match starts {
                Some(it) => format!("start {it}, which starts {name}: no command is given"),
                None => format!("start {name}: no command is given"),
            };
            draft.advice(format!("{what}, because its service was not seen"), START);
        }
    }
}

fn since(draft: &mut Draft, fault: &Fault<'_>, sample: &NodeSample) {
    let seconds = sample.at.since(fault.since).as_secs();
    let fact = format!("this has lasted for at least {seconds} s");
    draft.fact_since(fact, Source::Samples, fault.since);
}

fn rule_out(draft: &mut Draft) {
    if *draft.cause == RUNTIME_DOWN {
        draft.rule_out(ids::RUNTIME_HANG, "no process of the runtime exists");
        draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, "no process of the runtime exists");
        draft.rule_out(ids::RUNTIME_SOCKET_GONE, "no process of the runtime exists");
        draft.rule_out(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the shim exists, and the runtime does not run",
        );
    } else {
        const WHY: &str = "the daemon itself cannot work";
        for cause in [
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            ids::DISK_FULL_RUNTIME,
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            ids::SHIM_HUNG,
            ids::RUNTIME_DOWN,
            ids::RUNTIME_SOCKET_GONE,
            ids::RUNTIME_COMMAND_HUNG,
        ] {
            draft.rule_out(cause, WHY);
        }
    }
}
