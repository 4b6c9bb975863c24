//! Looks at a node on which a runtime does nothing, against verdicts.

use jiff::Timestamp;

use super::*;
use crate::model::halted::Halted;
use crate::{
    model::{
        client::Request,
        container::ContainerName,
        identity::{Pod, Target},
        runtime::{GoneRuntime, Runtime, Shim},
        said::{Report, Said},
    },
    testing::{Alone, found, pod_state},
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const SOCKET: &str = "/run/containerd/containerd.sock";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn shim(namespace: &str) -> Shim {
    let of = ShimOf::Containerd { socket: SOCKET.into(), namespace: namespace.into() };
    Shim {
        pid: 41,
        comm: "containerd-shim-runc-v2".into(),
        state: 'S',
        started: 5,
        group: Some("/system.slice/containerd.service".into()),
        wait_channel: None,
        of: Some(of),
    }
}

fn runtime(component: Component, socket: &str, halted: Option<Halted>) -> Runtime {
    let pid = if socket == SOCKET { 40 } else { 43 };
    let (sockets, group, connections) = (vec![socket.into()], None, Vec::new());
    Runtime { pid, component, started: 4, mnt_ns: None, halted, sockets, group, connections }
}

fn containerd(halted: Option<Halted>) -> Runtime {
    runtime(Component::Containerd, SOCKET, halted)
}

fn gone() -> GoneRuntime {
    let group = Some("/system.slice/containerd.service".into());
    let (component, socket) = (Component::Containerd, Some(SOCKET.into()));
    GoneRuntime { component, socket, shims: 1, group }
}

/// A pod that runs, with its shim.
fn node(runtimes: Vec<Runtime>, gone: Vec<GoneRuntime>) -> NodeSample {
    let pod = PodState { populated: Some(true), ..pod_state(UID) };
    let target = Target { pod: Some(named()), ..Target::unknown() };
    let group = PodGroup {
        target_id: 7,
        target: target.into(),
        uid: UID.into(),
        path: "/sys/fs/cgroup/pod".into(),
        has_containers: true,
        frozen: None,
        tasks: Vec::new(),
        shims: vec![shim("k8s.io")],
    };
    NodeSample { pods: vec![pod], cgroups: vec![group], runtimes, gone, ..NodeSample::default() }
}

fn named() -> Pod {
    Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("web".into()) }
}

fn to_go() -> Alone<RuntimeStates> {
    let mut alone = Alone::<RuntimeStates>::new();
    let time = Timestamp::from_second(1).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, time, "");
    let said = Said { report: Some(Report::ToGo), ..said };
    alone.take(at(10), What::Said(Box::new(said)));
    alone
}

/// What is said after the same look at each of these seconds.
fn told(alone: &mut Alone<RuntimeStates>, seconds: &[u64], node: &NodeSample) -> Vec<Verdict> {
    let look = |second: &u64| NodeSample { at: at(*second), ..node.clone() };
    let looks: Vec<NodeSample> = seconds.iter().map(look).collect();
    let mut last = Vec::new();
    for sample in looks {
        last = alone.take(sample.at, What::Sample(sample.into())).verdicts;
    }
    last
}

#[test]
fn a_pod_waits_for_a_runtime_that_is_stopped() {
    let mut alone = to_go();
    let stopped = node(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert!(told(&mut alone, &[20, 22], &stopped).is_empty(), "as by a debugger, for a moment");
    let [draft] = found(told(&mut alone, &[24, 26], &stopped)).try_into().unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("dockerd-hang", Certainty::Firm));
    assert_eq!((draft.blocks_deletion, draft.target.pod.clone()), (Some(true), Some(named())));
    assert!(draft.explanation.starts_with("containerd (pid 40) answers nobody"), "{draft:?}");
    let command = draft.remedies[0].command.as_deref().unwrap();
    assert!(command.contains("kill -CONT 40"), "{command}");
    let pod = Subject { target_id: 0, path: std::path::Path::new(""), pod: UID, at: at(26) };
    assert!(alone.tracker.explains(&pod, Claim::Finding));
    let runs = node(vec![containerd(None)], Vec::new());
    let over = told(&mut alone, &[28], &runs);
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::RuntimeState, .. }]));
    assert!(!alone.tracker.explains(&pod, Claim::Suspicion));
}

#[test]
fn a_pod_waits_for_a_runtime_without_descriptors() {
    let mut alone = to_go();
    let halted = |hard| Halted::NoDescriptors { open: 1024, most: 1024, hard };
    let node = |hard| node(vec![containerd(Some(halted(hard)))], Vec::new());
    assert!(told(&mut alone, &[20], &node(None)).is_empty(), "for a moment");
    let command = |draft: &Draft| draft.remedies[0].command.clone().unwrap();
    let [draft] = found(told(&mut alone, &[26], &node(None))).try_into().unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("dockerd-hang", Certainty::Firm));
    assert!(draft.evidence[0].fact.contains("1024 descriptors open, of 1024"), "{draft:?}");
    assert!(command(&draft).ends_with("prlimit --pid 40 --nofile=2048:"), "{draft:?}");
    let [draft] = found(told(&mut alone, &[28], &node(Some(1024)))).try_into().unwrap();
    assert!(command(&draft).ends_with("--nofile=2048:2048"), "the hard limit, too: {draft:?}");
}

#[test]
fn a_pod_waits_for_a_runtime_that_is_gone_for_longer_than_a_restart_takes() {
    let mut alone = to_go();
    let node = node(Vec::new(), vec![gone()]);
    assert!(told(&mut alone, &[20, 28], &node).is_empty(), "it may be restarted");
    let [draft] = found(told(&mut alone, &[30], &node)).try_into().unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("runtime-down", Certainty::Firm));
    assert!(draft.evidence[0].fact.contains(SOCKET), "{draft:?}");
    let command = draft.remedies[1].command.as_deref();
    assert_eq!(command, Some("systemctl start containerd.service"));
}

#[test]
fn a_pod_of_which_nobody_says_that_it_is_to_go_waits_for_nothing() {
    let mut alone = Alone::<RuntimeStates>::new();
    let node = node(Vec::new(), vec![gone()]);
    let [draft] = found(told(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!((draft.blocks_deletion, &draft.target.pod), (None, &None));
    let other = NodeSample { gone: Vec::new(), ..node };
    assert_eq!(told(&mut alone, &[32], &other).len(), 1, "over");
}

#[test]
fn another_runtimes_fault_is_none_of_the_pods() {
    let mut alone = to_go();
    let other = runtime(Component::Containerd, "/run/k3s/c.sock", Some(Halted::Stopped));
    let node = node(vec![containerd(None), other], Vec::new());
    let [draft] = found(told(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!(draft.blocks_deletion, None);
    assert_eq!(draft.path, std::path::Path::new("/run/k3s/c.sock"));
}

#[test]
fn who_was_not_looked_at_this_time_waits_still() {
    let mut alone = to_go();
    let node = node(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert_eq!(told(&mut alone, &[20, 30], &node).len(), 1);
    let others = NodeSample { cgroups: Vec::new(), ..node.clone() };
    assert!(told(&mut alone, &[32, 34], &others).is_empty());
    assert_eq!(told(&mut alone, &[36], &node).len(), 1);
}

#[test]
fn a_container_of_docker_needs_both_its_daemons() {
    let container = |shim: Option<Shim>| ContainerState {
        container: ContainerName { id: "aa".into(), name: Some("web".into()), pod: None },
        runtime: Component::Dockerd,
        init: None,
        shim,
        recorded: true,
        to_go: false,
        seen_by: None,
        mounts: Vec::new(),
        parts: Vec::new(),
    };
    let dockerd = |halted| runtime(Component::Dockerd, "/run/docker.sock", halted);
    let causes = |shim: Option<Shim>, runtimes: Vec<Runtime>| {
        let containers = vec![container(shim)];
        let node = NodeSample { containers, runtimes, ..NodeSample::default() };
        let drafts = found(told(&mut Alone::<RuntimeStates>::new(), &[20, 30], &node));
        let named = |it: &crate::verdict::Draft| {
            let of = it.target.container.clone();
            (of, it.blocks_deletion, it.explanation.split(' ').next().unwrap().to_owned())
        };
        drafts.iter().map(named).collect::<Vec<_>>()
    };
    let stopped = Some(Halted::Stopped);
    let of = |name: &str| vec![(Some("aa".into()), Some(true), name.to_owned())];
    let with_shim = |runtimes| causes(Some(shim("moby")), runtimes);
    assert_eq!(with_shim(vec![containerd(None), dockerd(stopped.clone())]), of("dockerd"));
    assert_eq!(with_shim(vec![containerd(stopped.clone()), dockerd(None)]), of("containerd"));
    assert_eq!(with_shim(vec![containerd(None), dockerd(None)]), []);
    assert_eq!(causes(None, vec![dockerd(stopped.clone())]), of("dockerd"));
    let one_of_two = causes(None, vec![dockerd(stopped), Runtime { pid: 44, ..dockerd(None) }]);
    assert_eq!(one_of_two[0].1, None, "it is not known whose the container is");
}

/// Whether it answers is not asked: who waits for it says so.
#[test]
fn a_daemon_that_runs_and_answers_nobody() {
    let dockerd = |connections: &[u64], halted| {
        let group = Some("/system.slice/docker.service".into());
        let connections = connections.to_vec();
        Runtime { group, connections, ..runtime(Component::Dockerd, "/run/docker.sock", halted) }
    };
    let client = |pid, command: &str, request| Client {
        pid,
        since: at(99),
        component: Component::Other,
        command: command.into(),
        request,
    };
    let (ps, info) =
        (client(77, "docker ps", Request::Read), client(78, "docker info", Request::Read));
    let of = |clients: &[Client], other: Option<Runtime>| {
        let mut alone = Alone::<RuntimeStates>::new();
        let mut last = Vec::new();
        for second in (100..140).step_by(2) {
            let runtimes =
                [Some(dockerd(&[5], None)), other.clone()].into_iter().flatten().collect();
            let sample = NodeSample { at: at(second), runtimes, ..NodeSample::default() };
            let steps = alone.take(sample.at, What::Sample(sample.into()));
            last = steps.verdicts;
            for query in steps.queries {
                let answer = Box::new(Answer::Clients(Ok(clients.to_vec())));
                let query = Box::new(query);
                alone.take(at(second), What::Answer { query, answer });
            }
        }
        found(last)
    };
    let [both] = of(&[ps.clone(), info], None).try_into().unwrap();
    assert_eq!((both.id(), both.certainty()), ("dockerd-hang", Certainty::Firm));
    assert_eq!((both.first, both.blocks_deletion), (at(99), None));
    let fact = &both.evidence[0].fact;
    assert!(fact.contains("docker ps (pid 77") && fact.contains("docker info (pid 78"), "{fact}");
    assert_eq!(both.remedies[1].command.as_deref(), Some("systemctl restart docker.service"));
    let [one] = of(std::slice::from_ref(&ps), None).try_into().unwrap();
    assert_eq!(one.certainty(), Certainty::Possible, "one alone may be slow");
    let [shut] = of(&[client(79, "kubelet", Request::Pending)], None).try_into().unwrap();
    assert_eq!(shut.certainty(), Certainty::Firm);
    assert!(shut.explanation.contains("takes no connection"), "{}", shut.explanation);
    assert!(of(&[client(79, "docker volume ls", Request::Read)], None).is_empty());
    let stopped = of(&[ps], Some(containerd(Some(Halted::Stopped))));
    let [stopped] = stopped.try_into().unwrap();
    assert!(stopped.explanation.starts_with("containerd (pid 40)"), "{}", stopped.explanation);
}
