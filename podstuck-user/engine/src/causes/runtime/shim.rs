//! Shims that cannot run: stopped by a signal, or waiting in the kernel. No runtime can end the container before that is
//! over. For a pod with a complaint in the runtime's log, the finding about that complaint names the shim.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use podstuck_common::component::name_hash;

use crate::{
    causes::runtime::{causes::SHIM_HANGS, suspect::Collects},
    command::{Process, kill},
    event::{Event, What},
    ids,
    model::{
        container::ContainerName,
        evidence::Source,
        finding::Severity,
        identity::Target,
        node::NodeSample,
        runtime::{Shim, Unreaped},
        time::Monotonic,
    },
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// What a shim must do.
pub(super) const MUST: &str = "answer the runtime";
/// How long a shim must be stopped: two samples. A debugger stops a process for a moment.
const STOPPED: Duration = Duration::from_secs(5);
/// How long a shim must wait in the kernel, in each sample: writes to a slow disk often show it there.
const WAITS: Duration = Duration::from_secs(20);

/// A shim that cannot run, and its container.
pub(crate) struct Idle<'a> {
    pub(crate) container: &'a ContainerName,
    pub(crate) shim: &'a Shim,
    /// The container's own directory; empty if not known.
    pub(crate) directory: PathBuf,
    /// Whether the run is about the container.
    pub(crate) is_asked: bool,
    /// Whether the container's removal has begun.
    pub(crate) to_go: bool,
    pub(crate) since: Monotonic,
}

/// The halted shims of the last sample.
#[derive(Default)]
pub(crate) struct ShimStates {
    /// By process ID, start time, and whether it is stopped: since when.
    since: BTreeMap<(u32, u64, bool), Monotonic>,
    /// Target IDs with a finding.
    reported: BTreeSet<u64>,
}

impl ShimStates {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let mut all = halted(sample);
        let before = std::mem::take(&mut self.since);
        for idle in &mut all {
            let key = (idle.shim.pid, idle.shim.started, idle.shim.is_stopped());
            idle.since = before.get(&key).copied().unwrap_or(sample.at);
            self.since.insert(key, idle.since);
        }
        let mut over = std::mem::take(&mut self.reported);
        for idle in all {
            let needed = if idle.shim.is_stopped() { STOPPED } else { WAITS };
            let target_id = name_hash(idle.container.id.as_bytes());
            let pod = idle.container.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            let subject = Subject { target_id, path: &idle.directory, pod, at: sample.at };
            let lasts = sample.at.since(idle.since) >= needed;
            if lasts && !context.is_explained(self.id(), &subject) {
                over.remove(&target_id);
                self.reported.insert(target_id);
                steps.found([draft(&idle, target_id, sample.at)]);
            }
        }
        let (tracker, at) = (self.id(), sample.at);
        steps.say(over.into_iter().map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

/// The halted shims of the container that the run asks about and of containers in no pod.
fn halted(sample: &NodeSample) -> Vec<Idle<'_>> {
    let asked = sample.containers.iter().filter_map(|state| {
        let shim = state.shim.as_ref().filter(|shim| shim.is_halted())?;
        // A container with several parts is identified by its bundle or its layer.
        let directory = state.parts.first().map(|part| part.path.clone()).unwrap_or_default();
        let (container, to_go, since) = (&state.container, state.to_go, sample.at);
        Some(Idle { container, shim, directory, is_asked: true, to_go, since })
    });
    let asked: Vec<Idle<'_>> = asked.collect();
    let is_asked = |shim: &Shim| asked.iter().any(|other| other.shim.pid == shim.pid);
    let others = sample.shims.iter().filter(|it| it.container.pod.is_none() && !is_asked(&it.shim));
    let others = others.map(|it| Idle {
        container: &it.container,
        shim: &it.shim,
        directory: PathBuf::new(),
        is_asked: false,
        to_go: it.to_go,
        since: sample.at,
    });
    let others: Vec<Idle<'_>> = others.collect();
    asked.into_iter().chain(others).collect()
}

impl Tracker for ShimStates {
    fn id(&self) -> TrackerId {
        TrackerId::ShimState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        if let What::Sample(sample) = &event.what {
            self.sampled(context, sample, steps);
        }
    }
}

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
    tell(&mut draft, shim, "the container's shim");
    let seconds = now.since(*since).as_secs();
    draft.fact_since(format!("this has lasted for at least {seconds} s"), Source::Samples, *since);
    draft.explanation = "The shim starts and ends its container, and it cannot run. A request to the runtime to end \
        or remove the container waits, or fails without an answer. Everything else on the node continues."
        .into();
    ways_out(
        &mut draft,
        shim,
        "low for a container that is to be deleted: it ends, and the runtime cleans up after the shim. A shim that \
         waits in the kernel takes no signal until that wait ends",
    );
    let waits = idle.is_asked || idle.to_go;
    draft.blocks_deletion = waits.then_some(true);
    draft.severity = if waits { Severity::Critical } else { Severity::Warning };
    rule_out(&mut draft);
    draft
}

/// Describes the state of a shim that cannot run.
pub(crate) fn tell(draft: &mut Draft, shim: &Shim, whose: &str) {
    let Shim { pid, comm, state, .. } = shim;
    draft.held_by(shim.who());
    draft.must = Some(MUST);
    let what = match (shim.is_stopped(), &shim.wait_channel) {
        (true, _) => format!("is stopped (state {state})"),
        (false, Some(channel)) => format!("waits in the kernel, in {channel} (state {state})"),
        (false, None) => format!("waits in the kernel (state {state})"),
    };
    let fact = format!("{comm} (pid {pid}), {whose}, {what}");
    draft.fact(fact, Source::proc(format!("/proc/{pid}/stat")));
}

/// Adds how to continue the shim, or to end it.
pub(crate) fn ways_out(draft: &mut Draft, shim: &Shim, risk: &'static str) {
    let process = Process::new(shim.pid, Some(shim.started), Some(&shim.comm));
    if shim.is_stopped() {
        draft.remedy(
            kill("kill -CONT", process).so(", which is stopped"),
            "low: a shim that a signal has stopped continues; if a debugger holds it, end the debugger first",
        );
    } else {
        draft.doubt("whether the shim waits for the same thing all the time");
    }
    draft.remedy(kill("kill -KILL", process).so(", and with it the container"), risk);
}

/// Describes a shim that runs and does not collect the exit of its child.
pub(crate) fn does_not_collect(draft: &mut Draft, collects: Collects<'_>) {
    let Collects { shim, child, since } = collects;
    let Shim { pid, comm, .. } = shim;
    draft.held_by(shim.who());
    draft.must = Some(MUST);
    let Unreaped { pid: ended, comm: name, .. } = child;
    draft.fact_since(
        format!(
            "{name} (pid {ended}), a child of {comm} (pid {pid}), has ended (state Z), and its exit status is not \
             collected"
        ),
        Source::proc(format!("/proc/{ended}/stat")),
        since,
    );
    draft.explanation = format!(
        "The pod's shim, {comm} (pid {pid}), neither collects the exit status of a process that has ended nor \
         reports the exit to the runtime: the shim is blocked internally, or gets next to no CPU. The runtime waits for the \
         container's end, and kubelet waits for the runtime."
    );
    let process = Process::new(*pid, Some(shim.started), Some(comm));
    draft.remedy(
        kill("kill -KILL", process).so(", which does not collect the exit of its container"),
        "low for a pod that is to be deleted: the runtime ends all its containers and cleans up after the shim",
    );
    rule_out(draft);
}

/// Rules out the look-alikes.
pub(crate) fn rule_out(draft: &mut Draft) {
    draft.rule_out(ids::SANDBOX_NOT_STOPPED, "the shim itself does not respond");
    draft.rule_out(ids::ZOMBIE_NOT_REAPED, "the shim itself does not respond");
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim exists, and does not respond");
    draft.rule_out(ids::RUNTIME_HANG, "the container's own shim does not respond");
    draft.rule_out(
        ids::CONTAINER_NOT_KILLED,
        "the shim, which would forward a signal, does not respond",
    );
    draft.rule_out(
        ids::DOCKER_CONTAINERD_STATE_DESYNC,
        "the shim, which would report the state of the container, does not respond",
    );
}
