//! What is said of a daemon that runs and answers nobody.

use crate::{
    causes::{
        runtime::silent_daemon::Silence,
        shared::{clients, unit},
    },
    command::{Process, if_same},
    ids,
    model::{
        client::{Client, Request},
        node::NodeSample,
        runtime::Runtime,
    },
    verdict::Draft,
};

const RESTART: &str = "low: the runtime finds its containers again by their shims. Docker without live-restore ends \
    those that it finds";

/// Tells who is not answered, and what ends that; why nobody is.
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
        draft.lacks("that a second one is not answered either");
    }
    if sample.spaces.iter().any(|space| space.exhausted().is_some()) {
        draft.doubt("whether it waits for a disk that is full");
    }
    let process = Process::new(pid, Some(runtime.started), Some(name));
    draft.remedy(
        if_same("have a stack trace written by", process, format!("kill -USR1 {pid}")),
        "none; it writes what each of its threads waits for into its log, or a file that the log names",
    );
    match runtime.group.as_deref().and_then(unit::of) {
        Some(unit) => draft.remedy(unit::restart(unit), RESTART),
        None => draft.advice(
            format!(
                "restart {name}: no command is given, because which service it is was not seen"
            ),
            RESTART,
        ),
    };
    if is_shut {
        format!(
            "{name} (pid {pid}) takes no connection any more, though nothing keeps it from running."
        )
    } else {
        format!(
            "{name} (pid {pid}) has read requests for what takes a moment, and does not answer them, though nothing \
             keeps it from running."
        )
    }
}

/// What else it is not.
pub(super) fn rule_out(draft: &mut Draft, sample: &NodeSample) {
    let full = sample.spaces.iter().any(|space| space.exhausted().is_some());
    if !full {
        draft.rule_out(ids::DISK_FULL_RUNTIME, "the disks of kubelet and the runtimes have room");
    }
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "what is asked is about no container");
    draft.rule_out(ids::SHIM_HUNG, "what is asked is about no container");
    draft.rule_out(ids::RUNTIME_DOWN, "its process is there");
    draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, "what is asked is about no container");
}
