//! Containers whose recorded state in dockerd is wrong: dockerd has missed the exit event, or waits for an event that
//! never comes. Each sample compares dockerd's record with the processes of the node.

use std::{collections::BTreeMap, time::Duration};

use podstuck_common::component::name_hash;

use crate::{
    bounded::Bounded,
    causes::{
        runtime::{
            causes::{LOG_DRIVER, OUT_OF_STEP},
            log_driver::{Logger, Loggers},
        },
        shared::{
            pending_deletion::{ToGo, Word},
            unit,
        },
    },
    command::{NAME, Process, Step, has_ended, if_same, kill},
    event::{Event, What},
    ids,
    model::{
        chain::Who,
        container::ContainerName,
        evidence::{Certainty, Source},
        finding::Severity,
        identity::{Component, Target, TargetKind},
        node::NodeSample,
        path::{clip, safe, safe_path},
        runtime::{Differs, LogDriver, OutOfStep, Runtime, ShimOf},
        said::{Complaint, Said},
        shell::word,
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// dockerd waits ten seconds for an exit event before it takes the container for ended (moby daemon/kill.go). When the
/// event comes, dockerd unmounts and writes its record first.
const LASTS: Duration = Duration::from_secs(20);

const KILL: &str = "none: the container has no process. dockerd lists it as ended after the container's stop \
    timeout, 10 s unless another was set";
const KILL_WAITS: &str = "If dockerd waits for the container's log driver, this command waits, too";

/// Pods remembered.
const REMEMBERED: usize = 4096;

/// What waits for the container to end.
pub(crate) enum Waits<'a> {
    /// The run asks about this container.
    Asked,
    /// Its pod, which is to be deleted.
    Pod(&'a Word),
    /// Nothing is known to wait.
    Unknown,
}

/// The wrong states of the last sample.
#[derive(Default)]
pub(crate) struct DockerStates {
    /// By container ID and kind of difference: since when.
    since: BTreeMap<(String, Way), Monotonic>,
    to_go: ToGo,
    loggers: Loggers,
    /// UIDs of pods of which kubelet or dockerd has logged that a container was stopped in vain.
    stopped_in_vain: Bounded<String, (), REMEMBERED>,
    /// Findings in force, by target ID: the pod's UID, and whether the finding is at least likely.
    reported: BTreeMap<u64, (String, bool)>,
}

/// Whether dockerd records the container as running, and the process ID in question.
type Way = (bool, Option<u32>);

impl DockerStates {
    fn listen(&mut self, said: &Said) {
        self.loggers.listen(said);
        if matches!(said.complaint, Some(Complaint::ContainerStays | Complaint::NoAnswer)) {
            self.stopped_in_vain.insert(said.uid.clone(), ());
        }
    }

    fn sampled(&mut self, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.since);
        let mut over = std::mem::take(&mut self.reported);
        // A halted daemon handles the event when it runs again.
        let tracker = self.id();
        let cases = sample.out_of_step.iter().filter(|case| case.runtime == Component::Dockerd);
        let cases = cases.filter(|_| daemons_work(sample));
        for case in cases {
            let id = &case.container.id;
            let key = (id.clone(), way(case));
            let since = before.get(&key).copied().unwrap_or(sample.at);
            self.since.insert(key, since);
            let target_id = name_hash(id.as_bytes());
            steps.ask(self.loggers.ask(tracker, target_id, case));
            if sample.at.since(since) < LASTS {
                continue;
            }
            let uid = case.container.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            let is_asked = sample.containers.iter().any(|it| it.container.id == *id);
            let waits = match self.to_go.word(uid).filter(|_| !uid.is_empty()) {
                Some(word) => Waits::Pod(word),
                None if is_asked => Waits::Asked,
                None => Waits::Unknown,
            };
            let about = (&waits, self.loggers.of(case), self.stopped_in_vain.get(uid).is_some());
            let draft = draft(case, about, since, target_id, sample);
            let is_likely =
                draft.blocks_deletion == Some(true) && draft.certainty() >= Certainty::Likely;
            over.remove(&target_id);
            self.reported.insert(target_id, (uid.to_owned(), is_likely));
            steps.found([draft]);
        }
        let at = sample.at;
        steps.say(over.into_keys().map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

fn way(case: &OutOfStep) -> Way {
    match case.what {
        Differs::SaysUp(pid) => (true, Some(pid)),
        Differs::SaysEnded(init) => (false, init),
    }
}

/// Whether neither dockerd nor containerd is halted or gone.
fn daemons_work(sample: &NodeSample) -> bool {
    let is_dockers = |it: Component| matches!(it, Component::Dockerd | Component::Containerd);
    let halted = sample.runtimes.iter().any(|it| is_dockers(it.component) && it.halted.is_some());
    !halted && !sample.gone.iter().any(|it| is_dockers(it.component))
}

impl Tracker for DockerStates {
    fn id(&self) -> TrackerId {
        TrackerId::DockerState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Sample(sample) => self.sampled(sample, steps),
            What::Said(said) => self.listen(said),
            What::Answer { query, answer } => self.loggers.answered(query, answer),
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        self.reported.values().any(|(uid, likely)| subject.is_of_pod(uid) && claim.is_met(*likely))
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped() + self.loggers.dropped() + self.stopped_in_vain.dropped()
    }
}

/// The finding.
pub(crate) fn draft(
    case: &OutOfStep,
    (waits, logger, in_vain): (&Waits<'_>, Option<Logger<'_>>, bool),
    since: Monotonic,
    target_id: u64,
    sample: &NodeSample,
) -> Draft {
    let ContainerName { id, name, pod } = case.container.clone();
    let target = Target {
        kind: TargetKind::Other,
        root: case.directory.clone(),
        pod,
        container: Some(id.clone()),
        container_name: name,
        ..Target::unknown()
    };
    let path = case.directory.clone();
    let blocks = logger.as_ref().is_some_and(Logger::blocks);
    let cause = if blocks { &LOG_DRIVER } else { &OUT_OF_STEP };
    let (tracker, at) = (TrackerId::DockerState, sample.at);
    let mut draft = Draft::about_state(tracker, cause, target_id, target.into(), path, at);
    draft.first = since;
    let dockerd = Who::component("dockerd", Some(case.daemon));
    draft.held_by(match logger.as_ref().filter(|it| it.blocks()) {
        Some(logger) => dockerd.and(&format!(", which waits for {}", logger.name())),
        None => dockerd,
    });
    let dockerd = sample.runtimes.iter().find(|it| it.pid == case.daemon);
    match (case.what, &logger) {
        (Differs::SaysUp(pid), Some(logger)) if logger.blocks() => {
            is_up(&mut draft, case, pid);
            logger.tell(&mut draft);
        }
        (Differs::SaysUp(pid), _) => says_up(&mut draft, case, (pid, in_vain), dockerd),
        (Differs::SaysEnded(init), _) => says_ended(&mut draft, case, init),
    }
    if let Some(logger) = &logger {
        logger.tell_apart(&mut draft);
    }
    restart(&mut draft, dockerd);
    let seconds = at.since(since).as_secs();
    draft.fact_since(format!("this has lasted for at least {seconds} s"), Source::Samples, since);
    if let Waits::Pod(word) = waits {
        word.tell(&mut draft);
    }
    let is_waited_for = !matches!(waits, Waits::Unknown);
    draft.blocks_deletion = is_waited_for.then_some(true);
    draft.severity = if is_waited_for { Severity::Critical } else { Severity::Warning };
    rule_out(&mut draft, case, sample);
    draft
}

fn record(case: &OutOfStep) -> Source {
    Source::file(safe_path(&case.directory.join("config.v2.json")))
}

fn is_up(draft: &mut Draft, case: &OutOfStep, pid: u32) {
    draft.fact(format!("dockerd lists the container as running, with process {pid}"), record(case));
    let shim = match &case.shim {
        Some(shim) => format!("its shim (pid {}) is alive", shim.pid),
        None => "its shim is gone".into(),
    };
    draft.fact(
        format!("process {pid} does not exist or does not belong to the container; {shim}"),
        Source::proc(format!("/proc/{pid}/cgroup and /proc/*/cmdline")),
    );
}

fn says_up(
    draft: &mut Draft,
    case: &OutOfStep,
    (pid, in_vain): (u32, bool),
    dockerd: Option<&Runtime>,
) {
    is_up(draft, case, pid);
    draft.explanation = "dockerd lists the container as running, but its process has ended. Requests to stop or \
        remove the container wait for an event that does not come. If kubelet uses Docker, it removes nothing of the \
        pod meanwhile."
        .into();
    if in_vain && let Some(shim) = &case.shim {
        let process = Process::new(shim.pid, Some(shim.started), Some("the shim"));
        draft.remedy(
            kill("kill -KILL", process).so(", whose container has ended: containerd then reports the exit to dockerd"),
            "low: the container has no process, and containerd cleans up after its shim. Attempts to stop the container \
             through dockerd had no effect",
        );
    }
    let (docker, id) = (docker(dockerd), word(&case.container.id));
    let running = format!("{docker} inspect --format \"{{{{.State.Running}}}}\" {id}");
    let name = clip(&safe(case.container.id.as_bytes()), NAME);
    let does = format!("kill container {name} with dockerd, which then notes its end");
    let step = Step::new(does, format!("{docker} kill {id}"))
        .verified_by(format!("sleep 11; [ \"$({running})\" = false ]"));
    let is_local = case.log_driver.as_ref().is_some_and(LogDriver::is_local);
    let risk = if is_local { KILL.to_owned() } else { format!("{KILL}. {KILL_WAITS}") };
    draft.remedy(step, risk);
}

fn says_ended(draft: &mut Draft, case: &OutOfStep, init: Option<u32>) {
    draft.fact("dockerd lists the container as ended", record(case));
    if let Some(shim) = &case.shim {
        let of = format!("/proc/{}/cmdline", shim.pid);
        let fact = format!("its shim (pid {}) started before that and is alive", shim.pid);
        draft.fact(fact, Source::proc(of));
    }
    if let Some(init) = init {
        let fact = format!("its first process (pid {init}) is alive");
        draft.fact(fact, Source::proc(format!("/proc/{init}/cgroup")));
    }
    draft.explanation = "dockerd lists the container as ended, but its task still exists in containerd. dockerd does \
        not stop a container that it lists as ended, and cannot start or remove one that containerd still has."
        .into();
    let Some(shim) = &case.shim else { return };
    let id = word(&case.container.id);
    match &shim.of {
        Some(ShimOf::Containerd { socket, namespace }) if is_plain(namespace) => {
            let ctr = format!("ctr --address {} --namespace {namespace} task", word(socket));
            let process = Process::new(shim.pid, Some(shim.started), Some("the shim"));
            if let Some(init) = init {
                let act = format!("{ctr} kill --signal SIGKILL {id}");
                let step = if_same("end the container of", process, act);
                let risk =
                    "the container's processes end; dockerd already lists the container as ended";
                draft.remedy(step.verified_by(has_ended(init)), risk);
            }
            let act = format!("{ctr} delete --force {id}");
            let step = if_same("have containerd forget the task of", process, act);
            draft.remedy(
                step.verified_by(has_ended(shim.pid)),
                "low if its processes have ended: containerd forgets the task, and its shim ends",
            );
        }
        _ => {
            draft.advice(
                "have containerd end and forget the task (`ctr --namespace moby task kill`, `task delete`): no \
                 command is given, because containerd's socket was not seen",
                "the container's processes end",
            );
        }
    }
}

/// The `docker` command, with `--host` where dockerd does not listen on the default socket.
fn docker(dockerd: Option<&Runtime>) -> String {
    const USUAL: [&str; 2] = ["/run/docker.sock", "/var/run/docker.sock"];
    let sockets = dockerd.map(|it| it.sockets.as_slice()).unwrap_or_default();
    let is_usual =
        sockets.iter().any(|socket| USUAL.iter().any(|usual| socket.as_os_str() == *usual));
    match dockerd.and_then(Runtime::api_socket).filter(|_| !is_usual) {
        Some(socket) => format!("docker --host unix://{}", word(socket)),
        None => "docker".into(),
    }
}

fn is_plain(namespace: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !namespace.is_empty() && !namespace.starts_with('-') && namespace.bytes().all(is_plain)
}

/// Adds a restart of dockerd, which compares its record with its tasks only when it starts.
pub(super) fn restart(draft: &mut Draft, dockerd: Option<&Runtime>) {
    const RISK: &str = "all containers of the node end, unless Docker's live-restore is set. With live-restore, a \
        task that dockerd lists as ended may stay";
    let unit = dockerd.and_then(|it| unit::of(it.group.as_deref()?));
    draft.remedies.push(unit::restart_of("dockerd", unit, RISK));
}

fn rule_out(draft: &mut Draft, case: &OutOfStep, sample: &NodeSample) {
    let runs = |component| sample.runtimes.iter().any(|it| it.component == component);
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the wrong record is dockerd's own");
    if runs(Component::Containerd) {
        let fact = "dockerd and containerd run, and nothing halts them";
        draft.rule_out(ids::RUNTIME_HANG, fact);
        draft.rule_out(ids::RUNTIME_DOWN, fact);
    }
    let fact = if case.shim.is_some() { "its shim runs" } else { "its shim is gone" };
    draft.rule_out(ids::SHIM_HUNG, fact);
    if matches!(case.what, Differs::SaysEnded(_)) {
        let fact = "dockerd lists the container as ended";
        draft.rule_out(ids::DOCKER_LOG_DRIVER_BLOCKS, fact);
    }
    // On a full disk dockerd cannot write its record, which is then outdated.
    if sample.is_full() == Some(true) {
        draft.doubt("whether dockerd knows the correct state but cannot write it: a disk is full");
    }
}
