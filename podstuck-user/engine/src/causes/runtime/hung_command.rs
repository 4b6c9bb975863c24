//! A command that a shim or the runtime has started for the pod, and that does not return: an OCI runtime (`runc delete`),
//! or a CNI plugin. The component that started it waits without a time limit.

use std::time::Duration;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, log, or_seen, seen, way},
    causes::{
        runtime::{suspect::Suspect, verdict},
        shared,
    },
    command::{Process, kill},
    ids,
    model::{diagnosis::Stage, evidence::Source, time::Monotonic, waiting::Waiting},
    verdict::Draft,
    waits::HungCommand,
};

/// A command of this age does not end soon by itself: kubelet's own requests end after two minutes at most.
const OLD: Duration = Duration::from_secs(60);
const RISK: &str = "low for a pod that is to be deleted: the component that started the command receives an error, \
    and kubelet's next attempt runs the command again";

/// A command that does not return.
pub(crate) static COMMAND_HANGS: Cause = Cause {
    id: ids::RUNTIME_COMMAND_HUNG,
    title: "a command that the runtime or a shim runs for the pod does not return",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "To end a container, its shim runs the OCI runtime (`runc kill`, `runc delete`); to tear down a \
        sandbox's network, the runtime runs CNI plugins. Such a command takes less than a second. This one waits for \
        a lock that another process holds, for an answer on a socket, or for a child process. There is no time \
        limit: the request fails for kubelet but continues in the component, and each later attempt waits behind it.",
    confirmed_by: &[
        seen(
            "a child of the pod's shim is an OCI runtime, or a program with its arguments, and has run for 30 s or longer",
            &[Origin::Proc],
        ),
        or_seen(
            "or a child of the runtime is a CNI plugin whose environment names the pod or its sandbox, and has run for \
             30 s or longer",
            &[Origin::Proc],
        ),
        seen(
            "the runtime's or kubelet's log has an error about the pod that was written after the command started",
            &[Origin::Log],
        ),
    ],
    log: log("kubelet", "StopPodSandbox ... rpc error: code = DeadlineExceeded"),
    look_alikes: &[
        like(ids::RUNTIME_HANG, "the command that the runtime or the shim waits for is seen"),
        like(ids::CNI_TEARDOWN_FAILED, "a network plugin that is the cause has not returned"),
    ],
    ways_out: &[
        way(
            "kill the command with `kill -9`: the component that started it receives an error, and kubelet retries",
            "",
        ),
        way(
            "resume or restart the process that the command waits for",
            "everything else that this process serves is interrupted",
        ),
    ],
    field: &[
        "runc#1959",
        "moby#40817",
        "containernetworking/plugins#561",
        "containerd#4666",
        "calico#2098",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "containerd pkg/process/init.go, delete and kill",
        "containerd go-cni cni.go, Remove",
        "CNI specification, \"Parameters\"",
    ],
};

/// Adds the end of the server that the command waits for: the next command would wait for it in the same way.
fn end_server(draft: &mut Draft, server: &Waiting) {
    let process = Process::new(server.pid, Some(server.started), Some(&server.command));
    draft.remedy(
        kill("kill -KILL", process).so(", which does not answer the command"),
        "everything else that this process serves is interrupted. Its service starts it again; if none does, start it",
    );
}

/// The finding.
pub(super) fn draft(suspect: &Suspect<'_>, hung: &HungCommand<'_>, now: Monotonic) -> Draft {
    let HungCommand { by, command, since, .. } = hung;
    let mut draft = verdict::about(&COMMAND_HANGS, suspect);
    let (own, parent) = (command.who(), by.who());
    let age = now.since(*since);
    draft.fact_since(
        format!("{own}, a child of {parent}, has run for {} s", age.as_secs()),
        Source::proc(format!("/proc/{}/stat", command.pid)),
        *since,
    );
    let last = shared::hung_command::tell(&mut draft, hung);
    draft.explanation = format!(
        "{parent} has started {own} for this pod and waits for it to end, without a time limit. Each of kubelet's \
         attempts to stop the pod waits behind it and fails."
    );
    let server = hung.silent_server();
    if let Some((server, true)) = server {
        end_server(&mut draft, server);
    }
    shared::hung_command::end(&mut draft, hung, command, RISK);
    if let Some((server, false)) = server {
        end_server(&mut draft, server);
    } else if let Some(last) = last.filter(|_| server.is_none()) {
        draft.advice(
            format!(
                "have {} {}; if the command hangs again after it was ended, restart that process's service",
                last.who, last.must
            ),
            "a restart interrupts everything else that this process serves",
        );
    }
    if age < OLD {
        draft.doubt("whether the command returns by itself after all");
    }
    if suspect.logged.last < *since {
        draft.lacks("that an attempt to stop the pod has failed since the command was started");
    }
    draft
        .rule_out(ids::RUNTIME_HANG, "the runtime or the shim waits for a command that it started");
    draft.rule_out(ids::CNI_TEARDOWN_FAILED, "the command has not returned, so it has not failed");
    draft
}
