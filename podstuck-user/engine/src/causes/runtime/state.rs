//! What is said of a runtime that cannot do anything.

use std::collections::BTreeMap;

use crate::{
    causes::{
        runtime::{
            causes::{RUNTIME_DOWN, RUNTIME_HANGS},
            silent,
            state_tracker::{Fault, Victim},
        },
        shared::{clients, halted, unit},
    },
    command::{Process, Step},
    ids,
    model::{
        client::Client,
        container::ContainerState,
        evidence::Source,
        finding::Severity,
        halted::Halted,
        identity::{Component, Pod, Target, TargetKind},
        node::NodeSample,
        path::safe_path,
        runtime::{Daemon, GoneRuntime},
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

const START: &str = "low: the runtime finds its containers again by their shims. Docker without live-restore ends \
    those that it finds";

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
        Daemon::Runs(runtime) => format!("{name} (pid {})", runtime.pid),
        Daemon::Gone(_) => format!("{name}, which does not run"),
    });
    let mut why = format!("{name} does not run.");
    let mut is_silent = false;
    for fault in faults {
        match (fault.daemon, &fault.silence) {
            (Daemon::Runs(runtime), Some(silence)) => {
                why = silent::tell(&mut draft, runtime, silence, sample);
                is_silent = true;
            }
            (Daemon::Runs(runtime), None) => {
                let Some(halted) = &runtime.halted else { continue };
                let process = Process::new(runtime.pid, Some(runtime.started), Some(name));
                let how = halted::go_on(&mut draft, process, halted);
                let result = match halted {
                    Halted::NoDescriptors { .. } => "does not work",
                    _ => "answers nobody",
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
                "{why} Nobody ends the pod's containers before that is over, and kubelet removes \
                 nothing of a pod whose containers are there."
            )
        }
        Victim::Container(_) => {
            format!("{why} Whoever asks it to end or remove the container waits, or is refused.")
        }
        Victim::Nobody => {
            format!("{why} As long as that is so, no container of it is ended or removed.")
        }
    };
    draft.blocks_deletion = (!matches!(victim, Victim::Nobody)).then_some(true);
    draft.severity = Severity::Critical;
    if is_silent {
        silent::rule_out(&mut draft, sample);
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
        Victim::Nobody => {
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
    let many =
        if *shims == 1 { "1 shim of it lives".into() } else { format!("{shims} shims of it live") };
    let fact = match socket {
        Some(socket) => {
            let socket = safe_path(socket);
            format!("nobody listens on {socket}, on which shims call {name}; {many}")
        }
        None => format!("no process of {name} runs; {many}"),
    };
    draft.fact(fact, Source::proc("/proc/*/cmdline and /proc/*/net/unix"));
    // What is below dockerd is a service of its own, or dockerd's child: its group would be the wrong one.
    let unit = group.as_deref().filter(|_| *component != Component::Dockerd).and_then(unit::of);
    match unit {
        Some(unit) => {
            let journal = format!("journalctl --unit {unit} --lines 50 --no-pager");
            draft.remedy(Step::new(format!("show how {name} ended"), journal), "none");
            draft.remedy(unit::start(unit), START);
        }
        None => {
            draft.advice(
                format!(
                    "start {name}: no command is given, because which service it is was not seen"
                ),
                START,
            );
        }
    }
}

fn since(draft: &mut Draft, fault: &Fault<'_>, sample: &NodeSample) {
    let seconds = sample.at.since(fault.since).as_secs();
    let fact = format!("it has been so for at least {seconds} s");
    draft.fact_since(fact, Source::Samples, fault.since);
}

fn rule_out(draft: &mut Draft) {
    if *draft.cause == RUNTIME_DOWN {
        draft.rule_out(ids::DOCKERD_HANG, "no process of the runtime is there");
        draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, "no process of the runtime is there");
        draft.rule_out(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the shim is there, and the runtime is not",
        );
    } else {
        const WHY: &str = "the daemon itself is kept from its work";
        for cause in [
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            ids::DISK_FULL_RUNTIME,
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            ids::SHIM_HUNG,
            ids::RUNTIME_DOWN,
        ] {
            draft.rule_out(cause, WHY);
        }
    }
}
