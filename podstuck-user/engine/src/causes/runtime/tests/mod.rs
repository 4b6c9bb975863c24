//! runtime: facts against verdicts.

mod docker;
mod logs;
mod not_killed;
mod shim;
mod socket;
mod state;
mod unresponsive;

use std::{path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    causes::runtime::{
        docker::DockerStates, shim::ShimStates, state::RuntimeStates, tracker::RuntimeSays,
        unresponsive::SilentDaemons,
    },
    event::What,
    model::{
        client::{Client, Request},
        container::{ContainerName, ContainerState},
        evidence::Certainty,
        halted::Halted,
        identity::{Component, Pod, Target},
        mounted::Mounted,
        node::{LeftRootfs, NodeSample, PodState},
        object::{Entries, Entry},
        pod_group::{PodGroup, Reaper, Task, Term},
        pod_record::{ContainerRecord, ContainerState as RecordedState},
        runtime::{
            Differs, GoneRuntime, HaltedShim, LogDriver, OutOfStep, Runtime, Shim, ShimOf, Unreaped,
        },
        said::{Complaint, Report, Said},
        time::Monotonic,
    },
    query::{Answer, Contents, Listening},
    testing::{self, Alone, found, holder_of, pod_record, pod_state, reaper, space},
    tracker::{Claim, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn id() -> String {
    name(None).id
}

/// Docker's container `web`.
fn name(pod: Option<Pod>) -> ContainerName {
    ContainerName { pod, ..testing::container_state().container }
}

fn runtime(component: Component, socket: &str) -> Runtime {
    let pid = if component == Component::Dockerd { 43 } else { 40 };
    let group = Some(format!("/system.slice/{}.service", component.name()));
    Runtime { pid, sockets: vec![socket.into()], group, ..testing::runtime(component) }
}

/// The verdicts after the last of these seconds, with the same sample at each.
fn last_verdicts<T: Tracker>(
    alone: &mut Alone<T>,
    seconds: &[u64],
    node: &NodeSample,
) -> Vec<Verdict> {
    let mut last = Vec::new();
    for second in seconds {
        let sample = NodeSample { at: at(*second), ..node.clone() };
        last = alone.take(sample.at, What::Sample(sample.into())).verdicts;
    }
    last
}

fn commands(draft: &Draft) -> Vec<&str> {
    draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect()
}

fn task(group: &str) -> Task {
    Task { group: group.into(), ..testing::task("sleep", 7) }
}

fn shim_of_shim(state: char) -> Shim {
    let wait_channel = (state == 'D').then(|| "jbd2_log_wait_commit".into());
    Shim { state, wait_channel, ..testing::shim() }
}

const SOCKET: &str = "/run/containerd/containerd.sock";

fn said(uid: &str, complaint: Complaint, text: &str, second: i64) -> What {
    let source = "log of containerd (pid 9), /var/log/containerd.log";
    let at = Timestamp::from_second(second).unwrap();
    let said = Said::new(Component::Containerd, source, uid, at, text);
    What::Said(Box::new(Said { complaint: Some(complaint), ..said }))
}

fn node(what: Differs, shim: Option<Shim>, pod: Option<Pod>) -> NodeSample {
    let case = OutOfStep {
        container: name(pod),
        directory: format!("/var/lib/docker/containers/{}", id()).into(),
        runtime: Component::Dockerd,
        daemon: 43,
        what,
        shim,
        log_driver: Some(LogDriver { name: "json-file".into(), address: None }),
        started_at: None,
    };
    let dockerd = runtime(Component::Dockerd, "/run/docker.sock");
    let containerd = runtime(Component::Containerd, "/run/containerd/containerd.sock");
    NodeSample {
        runtimes: vec![containerd, dockerd],
        out_of_step: vec![case],
        ..NodeSample::default()
    }
}
