//! dockerd says of a container something else than is so.

use crate::{
    cause::{Cause, Kind, TriedWith, like, way},
    causes::{runtime::docker_tracker::Waits, shared::unit},
    command::{NAME, Process, Step, has_ended, if_same},
    ids,
    model::{
        container::ContainerName,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Component, Target, TargetKind},
        node::NodeSample,
        path::{clip, safe, safe_path},
        runtime::{Differs, OutOfStep, Runtime, ShimOf},
        shell::word,
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// Docker and containerd contradict each other.
pub(crate) static OUT_OF_STEP: Cause = Cause {
    id: ids::DOCKER_CONTAINERD_STATE_DESYNC,
    title: "dockerd takes a container for running that has ended, or for ended while it runs",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "dockerd has containerd run its containers, and learns by an event that one has ended. The event was lost: \
        containerd was killed and started again, or the disk was full. From then on dockerd says `Up` of a container \
        that has no process, and who stops or removes it waits for an event that does not come; or it says `Exited` \
        of one whose task lives, which it neither stops nor can start again. With dockershim or cri-dockerd, the pod \
        stays in Terminating.",
    confirmed_by: &[
        "dockerd has written of the container that it runs, and the process that it names is not there, or is none of \
         the container's; or that it has ended, and the shim that it had before then lives",
        "dockerd and containerd run, and it has been so for 20 s",
    ],
    log: None,
    look_alikes: &[
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "what dockerd has written is wrong; whether containerd can end the task was not asked",
        ),
        like(ids::DOCKERD_HANG, "dockerd and containerd do their work"),
        like(ids::RUNTIME_DOWN, "dockerd and containerd run"),
        like(ids::SHIM_HUNG, "no shim of it is left, or it runs"),
    ],
    ways_out: &[
        way(
            "have dockerd kill the container that has ended: it asks containerd, learns that there is none, and takes \
             it for ended some seconds later",
            "",
        ),
        way(
            "end the task that lives, by `ctr --namespace moby task kill`",
            "the container's processes end",
        ),
        way("restart dockerd", "all containers end, unless live-restore is set"),
    ],
    field: &["TKE's guide to pods that stay Terminating", "moby#32078", "moby#39316", "moby#41352"],
    tried: &[TriedWith::RealRuntime],
    source: &[
        "moby daemon/monitor.go, handleContainerExit",
        "moby daemon/kill.go, killWithSignal",
        "moby libcontainerd/remote/client.go, processEventStream",
    ],
};

/// The finding.
pub(crate) fn draft(
    case: &OutOfStep,
    waits: &Waits<'_>,
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
    let (tracker, at) = (TrackerId::DockerState, sample.at);
    let mut draft = Draft::about_state(tracker, &OUT_OF_STEP, target_id, target.into(), path, at);
    draft.first = since;
    draft.held_by(format!("dockerd (pid {})", case.dockerd));
    let dockerd = sample.runtimes.iter().find(|it| it.pid == case.dockerd);
    match case.what {
        Differs::SaysUp(pid) => says_up(&mut draft, case, pid, dockerd),
        Differs::SaysEnded(init) => says_ended(&mut draft, case, init),
    }
    restart(&mut draft, dockerd);
    let seconds = at.since(since).as_secs();
    draft.fact_since(format!("it has been so for at least {seconds} s"), Source::Samples, since);
    if let Waits::Pod(word) = waits {
        word.tell(&mut draft);
    }
    let is_waited_for = !matches!(waits, Waits::Nobody);
    draft.blocks_deletion = is_waited_for.then_some(true);
    draft.severity = if is_waited_for { Severity::Critical } else { Severity::Warning };
    rule_out(&mut draft, case, sample);
    draft
}

fn record(case: &OutOfStep) -> Source {
    Source::file(safe_path(&case.directory.join("config.v2.json")))
}

fn says_up(draft: &mut Draft, case: &OutOfStep, pid: u32, dockerd: Option<&Runtime>) {
    draft.fact(format!("dockerd says that the container runs, as process {pid}"), record(case));
    let shim = match &case.shim {
        Some(shim) => format!("its shim (pid {}) lives", shim.pid),
        None => "no shim of it lives".into(),
    };
    draft.fact(
        format!("process {pid} is not there, or is none of the container's; {shim}"),
        Source::proc(format!("/proc/{pid}/cgroup and /proc/*/cmdline")),
    );
    draft.explanation = "dockerd takes the container for running: it has not learned that it ended. Who stops or \
        removes it waits for an event that does not come, and kubelet, where it asks Docker, removes nothing of the \
        pod before."
        .into();
    let (docker, id) = (docker(dockerd), word(&case.container.id));
    let running = format!("{docker} inspect --format \"{{{{.State.Running}}}}\" {id}");
    let name = clip(&safe(case.container.id.as_bytes()), NAME);
    let does = format!("have dockerd kill container {name}, and learn that it has ended");
    let step = Step::new(does, format!("{docker} kill {id}"))
        .verified_by(format!("sleep 11; [ \"$({running})\" = false ]"));
    draft.remedy(
        step,
        "none: it has no process. dockerd takes it for ended when the time is over that it gives a container to stop, \
         10 s unless it was told another",
    );
}

fn says_ended(draft: &mut Draft, case: &OutOfStep, init: Option<u32>) {
    draft.fact("dockerd says that the container has ended", record(case));
    if let Some(shim) = &case.shim {
        let of = format!("/proc/{}/cmdline", shim.pid);
        let fact = format!("its shim (pid {}) is older than that, and lives", shim.pid);
        draft.fact(fact, Source::proc(of));
    }
    if let Some(init) = init {
        let fact = format!("its first process (pid {init}) lives");
        draft.fact(fact, Source::proc(format!("/proc/{init}/cgroup")));
    }
    draft.explanation = "dockerd takes the container for ended, while its task is there. It does not stop what it takes \
        for ended, and cannot start or remove what containerd still has."
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
                let risk = "the container's processes end; dockerd believes that they have";
                draft.remedy(step.verified_by(has_ended(init)), risk);
            }
            let act = format!("{ctr} delete --force {id}");
            let step = if_same("have containerd forget the task of", process, act);
            draft.remedy(
                step.verified_by(has_ended(shim.pid)),
                "low where its processes have ended: containerd forgets the task, and its shim ends",
            );
        }
        _ => {
            draft.advice(
                "have containerd end and forget the task (`ctr --namespace moby task kill`, `task delete`): no command \
                 is given, because where containerd listens was not seen",
                "the container's processes end",
            );
        }
    }
}

/// Docker's client, for a dockerd that listens elsewhere than is usual.
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

/// dockerd compares what it has written with its tasks only when it starts.
fn restart(draft: &mut Draft, dockerd: Option<&Runtime>) {
    const RISK: &str = "all containers of the node end, unless Docker's live-restore is set. With it a task that dockerd \
        takes for ended may stay";
    match dockerd.and_then(|it| unit::of(it.group.as_deref()?)) {
        Some(unit) => draft.remedy(unit::restart(unit), RISK),
        None => draft.advice(
            "restart dockerd: no command is given, because which service it is was not seen",
            RISK,
        ),
    };
}

fn rule_out(draft: &mut Draft, case: &OutOfStep, sample: &NodeSample) {
    let runs = |component| sample.runtimes.iter().any(|it| it.component == component);
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "it is what dockerd has written that is not so",
    );
    if runs(Component::Containerd) {
        let fact = "dockerd and containerd run, and nothing keeps them from it";
        draft.rule_out(ids::DOCKERD_HANG, fact);
        draft.rule_out(ids::RUNTIME_DOWN, fact);
    }
    let fact = if case.shim.is_some() { "its shim runs" } else { "no shim of it is left" };
    draft.rule_out(ids::SHIM_HUNG, fact);
    // What dockerd knows it cannot write then, and what is read is old.
    if sample.spaces.iter().any(|space| space.exhausted().is_some()) {
        draft.doubt("whether dockerd knows better and cannot write it: a disk is full");
    }
}
