//! Looks at a node on which dockerd says something else than is so, against verdicts.

use jiff::Timestamp;

use super::*;
use crate::{
    model::{
        container::{ContainerName, ContainerState},
        halted::Halted,
        identity::Pod,
        runtime::{GoneRuntime, Runtime, Shim, ShimOf},
        said::{Report, Said},
    },
    testing::{Alone, found},
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn id() -> String {
    "a1".repeat(32)
}

fn shim() -> Shim {
    let socket = "/run/containerd/containerd.sock".into();
    Shim {
        pid: 41,
        comm: "containerd-shim-runc-v2".into(),
        state: 'S',
        started: 5,
        group: None,
        wait_channel: None,
        of: Some(ShimOf::Containerd { socket, namespace: "moby".into() }),
    }
}

fn runtime(component: Component, socket: &str) -> Runtime {
    let pid = if component == Component::Dockerd { 43 } else { 40 };
    let group = Some(format!("/system.slice/{}.service", component.name()));
    let (sockets, connections) = (vec![socket.into()], Vec::new());
    Runtime { pid, component, started: 4, mnt_ns: None, halted: None, sockets, group, connections }
}

fn node(what: Differs, shim: Option<Shim>, pod: Option<Pod>) -> NodeSample {
    let case = OutOfStep {
        container: ContainerName { id: id(), name: Some("web".into()), pod },
        directory: format!("/var/lib/docker/containers/{}", id()).into(),
        dockerd: 43,
        what,
        shim,
    };
    let dockerd = runtime(Component::Dockerd, "/run/docker.sock");
    let containerd = runtime(Component::Containerd, "/run/containerd/containerd.sock");
    NodeSample {
        runtimes: vec![containerd, dockerd],
        out_of_step: vec![case],
        ..NodeSample::default()
    }
}

fn asked(node: NodeSample) -> NodeSample {
    let container = ContainerState {
        container: node.out_of_step[0].container.clone(),
        runtime: Component::Dockerd,
        init: None,
        shim: None,
        recorded: true,
        to_go: false,
        seen_by: None,
        mounts: Vec::new(),
        parts: Vec::new(),
    };
    NodeSample { containers: vec![container], ..node }
}

fn told(alone: &mut Alone<DockerStates>, seconds: &[u64], node: &NodeSample) -> Vec<Verdict> {
    let mut last = Vec::new();
    for second in seconds {
        let sample = NodeSample { at: at(*second), ..node.clone() };
        last = alone.take(sample.at, What::Sample(sample.into())).verdicts;
    }
    last
}

fn one(node: &NodeSample) -> Draft {
    let verdicts = told(&mut Alone::<DockerStates>::new(), &[10, 20, 30], node);
    let [draft] = found(verdicts).try_into().unwrap();
    draft
}

fn commands(draft: &Draft) -> Vec<&str> {
    draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect()
}

#[test]
fn one_that_has_ended_and_is_up() {
    let node = asked(node(Differs::SaysUp(99), None, None));
    let mut alone = Alone::<DockerStates>::new();
    assert!(told(&mut alone, &[10, 28], &node).is_empty(), "dockerd takes some time");
    let [draft] = found(told(&mut alone, &[30], &node)).try_into().unwrap();
    assert_eq!(
        (draft.id(), draft.certainty()),
        ("docker-containerd-state-desync", Certainty::Firm)
    );
    assert_eq!((draft.blocks_deletion, draft.first), (Some(true), at(10)));
    assert_eq!(draft.target.container_name.as_deref(), Some("web"));
    let id = id();
    let kill = format!("docker kill {id}");
    assert_eq!(commands(&draft), [kill.as_str(), "systemctl restart dockerd.service"]);
    let over = told(&mut alone, &[32], &NodeSample { out_of_step: Vec::new(), ..node });
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::DockerState, .. }]));
}

#[test]
fn one_that_lives_and_has_exited() {
    let draft = one(&node(Differs::SaysEnded(Some(99)), Some(shim()), None));
    assert_eq!((draft.certainty(), draft.blocks_deletion), (Certainty::Firm, None));
    let facts: Vec<&str> = draft.evidence.iter().map(|it| it.fact.as_str()).collect();
    assert!(facts.iter().any(|fact| fact.contains("first process (pid 99) lives")), "{facts:?}");
    let [kill, delete, _] = commands(&draft).try_into().unwrap();
    assert!(kill.contains("--namespace moby task kill --signal SIGKILL a1a1"), "{kill}");
    assert!(delete.contains("task delete --force a1a1"), "{delete}");
    let stopped = one(&node(Differs::SaysEnded(None), Some(shim()), None));
    assert!(commands(&stopped)[0].contains("task delete"), "nothing is to be killed");
}

#[test]
fn another_process_or_the_other_way_is_another_case() {
    let mut alone = Alone::<DockerStates>::new();
    assert!(told(&mut alone, &[10, 25], &node(Differs::SaysUp(99), None, None)).is_empty());
    assert!(told(&mut alone, &[30], &node(Differs::SaysUp(100), None, None)).is_empty());
    assert!(
        told(&mut alone, &[40], &node(Differs::SaysEnded(None), Some(shim()), None)).is_empty()
    );
}

/// A daemon that cannot run has missed nothing yet.
#[test]
fn who_is_kept_from_learning_is_not_out_of_step() {
    let halted = |component| {
        let mut node = node(Differs::SaysUp(99), None, None);
        for runtime in node.runtimes.iter_mut().filter(|it| it.component == component) {
            runtime.halted = Some(Halted::Stopped);
        }
        told(&mut Alone::<DockerStates>::new(), &[10, 40], &node).len()
    };
    assert_eq!([Component::Dockerd, Component::Containerd, Component::CriO].map(halted), [0, 0, 1]);
    let (component, socket, group) = (Component::Containerd, Some("/x".into()), None);
    let gone = vec![GoneRuntime { component, socket, shims: 1, group }];
    let node = NodeSample { gone, ..node(Differs::SaysUp(99), None, None) };
    assert!(told(&mut Alone::<DockerStates>::new(), &[10, 40], &node).is_empty());
    let alone = NodeSample { runtimes: vec![node.runtimes[1].clone()], gone: Vec::new(), ..node };
    assert_eq!(one(&alone).certainty(), Certainty::Possible, "no containerd was seen to run");
}

#[test]
fn a_pod_that_is_to_go_waits_for_it() {
    let pod = Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("web".into()) };
    let node = node(Differs::SaysUp(99), Some(shim()), Some(pod.clone()));
    let mut alone = Alone::<DockerStates>::new();
    let time = Timestamp::from_second(1).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, time, "");
    alone.take(at(9), What::Said(Box::new(Said { report: Some(Report::ToGo), ..said })));
    let [draft] = found(told(&mut alone, &[10, 40], &node)).try_into().unwrap();
    assert_eq!((draft.blocks_deletion, draft.target.pod.clone()), (Some(true), Some(pod)));
    let subject = Subject { target_id: 0, path: std::path::Path::new(""), pod: UID, at: at(40) };
    assert!(alone.tracker.explains(&subject, Claim::Finding));
    let other = Subject { pod: "", ..subject };
    assert!(!alone.tracker.explains(&other, Claim::Suspicion));
}

#[test]
fn a_dockerd_of_ones_own_is_reached_where_it_listens() {
    let mut node = node(Differs::SaysUp(99), None, None);
    node.runtimes[1].sockets = [
        "/run/x/libnetwork/3f4e5d6c7b8a.sock",
        "/run/x/metrics",
        "/run/x/docker/metrics.sock",
        "/run/x/own docker.sock",
    ]
    .map(Into::into)
    .to_vec();
    node.runtimes[1].group = None;
    let draft = one(&node);
    let expected = format!("docker --host unix://'/run/x/own docker.sock' kill {}", id());
    assert_eq!(commands(&draft), [expected.as_str()]);
}
