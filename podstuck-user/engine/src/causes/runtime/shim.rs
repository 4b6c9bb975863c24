//! What is said of a shim that cannot run.

use crate::{
    causes::runtime::{causes::SHIM_HANGS, shim_tracker::Idle},
    command::{Process, kill},
    ids,
    model::{
        container::ContainerName, evidence::Source, finding::Severity, identity::Target,
        runtime::Shim, time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// The finding about one container.
pub(crate) fn draft(idle: &Idle<'_>, target_id: u64, now: Monotonic) -> Draft {
    let Idle { container, shim, since, .. } = idle;
    let ContainerName { id, name, pod } = (*container).clone();
    let target = Target {
        root: idle.directory.clone(),
        pod,
        container: Some(id),
        container_name: name,
        ..Target::unknown()
    };
    let (path, target) = (target.root.clone(), target.into());
    let mut draft =
        Draft::about_state(TrackerId::ShimState, &SHIM_HANGS, target_id, target, path, now);
    draft.first = *since;
    draft.held_by(format!("{} (pid {})", shim.comm, shim.pid));
    tell(&mut draft, shim, "which looks after the container");
    let seconds = now.since(*since).as_secs();
    draft.fact_since(format!("it has been so for at least {seconds} s"), Source::Samples, *since);
    draft.explanation = "A container is started and ended by its shim, which cannot run. Whoever asks the runtime to \
        end or remove the container waits, or is told that there was no answer. Everything else on the node goes on."
        .into();
    ways_out(
        &mut draft,
        shim,
        "low for a container that is to go: it ends, and the runtime cleans up after the shim. One that waits in the \
         kernel takes no signal before that is over",
    );
    let waits = idle.is_asked || idle.to_go;
    draft.blocks_deletion = waits.then_some(true);
    draft.severity = if waits { Severity::Critical } else { Severity::Warning };
    rule_out(&mut draft);
    draft
}

/// What it is.
pub(crate) fn tell(draft: &mut Draft, shim: &Shim, whose: &str) {
    let Shim { pid, comm, state, .. } = shim;
    let what = match (shim.is_stopped(), &shim.wait_channel) {
        (true, _) => format!("is stopped (state {state})"),
        (false, Some(channel)) => format!("waits in the kernel, in {channel} (state {state})"),
        (false, None) => format!("waits in the kernel (state {state})"),
    };
    let fact = format!("{comm} (pid {pid}), {whose}, {what}");
    draft.fact(fact, Source::proc(format!("/proc/{pid}/stat")));
}

/// How it goes on, or ends.
pub(crate) fn ways_out(draft: &mut Draft, shim: &Shim, risk: &'static str) {
    let process = Process::new(shim.pid, Some(shim.started), Some(&shim.comm));
    if shim.is_stopped() {
        draft.remedy(
            kill("kill -CONT", process).so(", which is stopped"),
            "low: a shim that a signal has stopped goes on; a debugger that holds it must be ended first",
        );
    } else {
        draft.doubt("whether it waits for the same all the time");
    }
    draft.remedy(kill("kill -KILL", process).so(", and with it the container"), risk);
}

/// What else it is not.
pub(crate) fn rule_out(draft: &mut Draft) {
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim is there, and cannot run");
    draft.rule_out(ids::DOCKERD_HANG, "the container's own shim cannot run");
    draft.rule_out(
        ids::DOCKER_CONTAINERD_STATE_DESYNC,
        "the shim, which would tell how the container is, cannot run",
    );
}
