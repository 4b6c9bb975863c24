//! The chain of waits: from the API server over kubelet, the runtime or the driver to the last known link. It does
//! not depend on a recognised cause; a cause explains its last link.

mod cause;
mod containers;
mod driver;
mod facts;
mod kubelet;
mod link;

pub(crate) use cause::{holding, is_of_kubelet, waited_for};
use facts::RUNTIMES;
pub(crate) use facts::{Facts, weightiest};
pub(crate) use kubelet::failed_look;

use cause::{end_with, of_cause};
use containers::{of_answer, of_containers, of_runtime};
use driver::{first_left, mount_of, of_driver};
use kubelet::{fails_itself, kubelets_call, kubelets_task, of_kubelet, of_static_pod};
use link::{seen, waits_for};

use crate::{
    cause::CauseId,
    ids,
    model::{
        chain::{Link, Who},
        diagnosis::{PodStage, Stage, Terminating},
        finding::Finding,
        identity::Component,
        node::PodState,
        path::safe,
        said::{self, Said},
    },
};

/// Causes that hold the runtime after a container's end.
const OF_SANDBOX: [CauseId; 6] = [
    ids::OCI_HOOK_FAILS,
    ids::CNI_TEARDOWN_FAILED,
    ids::NETNS_BUSY,
    ids::SANDBOX_SHM_BUSY,
    ids::IMAGE_VOLUME_BUSY,
    ids::RUNTIME_DEVICE_BUSY,
];

/// Causes where kubelet asks no driver about the volume.
const UNASKED: [CauseId; 2] = [ids::KUBELET_RESTART_LOST_VOLUME, ids::UNMOUNT_NOT_ATTEMPTED];

/// The links of a pod's deletion, the API server's first.
pub(crate) fn chain(pod: &PodStage, facts: &Facts<'_>) -> Vec<Link> {
    let mut links: Vec<Link> = of_record(pod, facts).into_iter().collect();
    let cause = holding(pod, facts.causes);
    let has_finalizers = facts.record.is_some_and(|record| !record.finalizers.is_empty());
    if cause.is_some_and(|it| it.id == ids::MIRROR_POD_DELETED) {
        links.push(of_static_pod(facts));
    } else if pod.stage != Stage::Api || !has_finalizers {
        of_node(&mut links, pod, cause, facts);
    }
    // A cause inside kubelet is already in kubelet's link, unless kubelet waits for another one.
    if !cause.is_some_and(|it| is_of_kubelet(it.id) && waited_for(it).is_none()) {
        end_with(&mut links, of_cause(pod, facts.causes));
    }
    if cause.is_some_and(|it| it.id == ids::POD_FINALIZER) {
        links.extend(facts.last_of(&[Component::Workload]).map(of_controller));
    }
    links
}

/// The link of a container whose log has an error about the pod. Any container can log this.
fn of_controller(said: &Said) -> Link {
    let who = Who::object(said.writer());
    seen(who, "remove the finalizer, if it is its controller", None, said.quote("it"), &said.source)
}

/// Adds the links of the node's components, kubelet's first.
fn of_node(links: &mut Vec<Link>, pod: &PodStage, cause: Option<&Finding>, facts: &Facts<'_>) {
    let id = cause.map(|cause| cause.id);
    let stage = match pod.stage {
        // kubelet does not start on volumes and control groups before shim and runtime have finished.
        Stage::Volumes | Stage::Cgroup if facts.waits.holds_containers(facts.clock) => {
            Stage::Containers
        }
        Stage::Volumes | Stage::Cgroup | Stage::Directories
            if cause.map_or(facts.refused_kill().is_some(), |it| it.stage == Stage::Containers) =>
        {
            Stage::Containers
        }
        stage => stage,
    };
    let (mut kubelet, acts) = match id {
        Some(ids::SLICE_REMOVAL_TIMES_OUT) => {
            let (link, acts) = of_kubelet(&at_stage(pod, Stage::Cgroup), facts);
            (waits_for(link, "systemd's signal about the pod's slice"), acts)
        }
        _ => of_kubelet(&at_stage(pod, stage), facts),
    };
    let in_call = cause.and_then(|cause| kubelets_call(cause, &kubelet.who));
    let state = facts.sample.pod(&pod.pod.uid);
    let ends_here = in_call.is_some() || !acts || id.is_some_and(is_of_kubelet);
    let rest = match state.filter(|_| !ends_here) {
        Some(state) if stage == Stage::Containers => behind_containers(state, id, facts),
        Some(state) if stage == Stage::Volumes => {
            let (waited_for, rest) = behind_volumes(state, id, facts);
            kubelet.waits_for = waited_for.or(kubelet.waits_for);
            rest
        }
        _ => Vec::new(),
    };
    kubelet.waits_for = in_call.or(kubelet.waits_for);
    links.push(kubelet);
    links.extend(rest);
}

/// The links behind kubelet while the pod's containers are to be stopped.
fn behind_containers(state: &PodState, cause: Option<CauseId>, facts: &Facts<'_>) -> Vec<Link> {
    match cause {
        // The container has ended; the sandbox's own process ends after it.
        Some(id) if OF_SANDBOX.contains(&id) => {
            of_runtime(&state.uid, &[], facts).into_iter().collect()
        }
        Some(ids::POSTSTART_HOOK_PENDING) => Vec::new(),
        _ if let Some(own) = fails_itself(facts) => match said::answered(&own.text) {
            Some(_) => of_answer(&state.uid, own, facts).into_iter().collect(),
            None => Vec::new(),
        },
        _ if facts.not_asked.is_some() || facts.watch.is_some() => Vec::new(),
        None if let Some(said) = facts.refused_kill()
            && (state.populated == Some(false) || said::is_not_served(&said.text))
            && facts.last_of(&RUNTIMES).is_none() =>
        {
            of_answer(&state.uid, said, facts).into_iter().collect()
        }
        _ => of_containers(state, facts),
    }
}

/// The links behind kubelet while the pod's volumes are to be unmounted, and what kubelet waits for if these say so.
fn behind_volumes(
    state: &PodState,
    cause: Option<CauseId>,
    facts: &Facts<'_>,
) -> (Option<String>, Vec<Link>) {
    if cause.is_some_and(|id| UNASKED.contains(&id)) {
        return (first_left(state).and_then(mount_of), Vec::new());
    }
    if let Some(task) = kubelets_task(facts) {
        return task;
    }
    match failed_look(state, facts.said) {
        Some(failed) => (Some(failed.waited_for()), vec![failed.link()]),
        None => (None, of_driver(state, facts)),
    }
}

/// Overrides the stage: kubelet's current step may precede the state of the node.
fn at_stage(pod: &PodStage, stage: Stage) -> PodStage {
    PodStage { stage, ..pod.clone() }
}

/// The API server's link, if the deletion is known.
fn of_record(pod: &PodStage, facts: &Facts<'_>) -> Option<Link> {
    let Terminating { since, by } = facts.terminating?;
    let finalizers = facts.record.map(|record| record.finalizers.join(", ")).unwrap_or_default();
    let is_done = pod.stage >= Stage::Gone && !finalizers.is_empty();
    let waits_for = match is_done {
        true => format!("the controllers of the finalizers {}", safe(finalizers.as_bytes())),
        false => "kubelet, which deletes the record when the pod has ended".to_owned(),
    };
    let fact = "the pod has been Terminating".to_owned();
    let link = seen(
        Who::component("API server", None),
        "remove the pod's record",
        Some(waits_for),
        fact,
        by,
    );
    Some(Link { since: Some(*since), ..link })
}

#[cfg(test)]
pub(crate) mod tests;
