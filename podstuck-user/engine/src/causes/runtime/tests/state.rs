//! Runtimes that are halted or gone.

use super::*;

fn shim_of_state(namespace: &str) -> Shim {
    let of = ShimOf::Containerd { socket: SOCKET.into(), namespace: namespace.into() };
    Shim { group: Some("/system.slice/containerd.service".into()), of: Some(of), ..testing::shim() }
}

fn runtime_of_state(component: Component, socket: &str, halted: Option<Halted>) -> Runtime {
    let pid = if socket == SOCKET { 40 } else { 43 };
    Runtime { pid, halted, sockets: vec![socket.into()], ..testing::runtime(component) }
}

fn containerd(halted: Option<Halted>) -> Runtime {
    runtime_of_state(Component::Containerd, SOCKET, halted)
}

fn gone() -> GoneRuntime {
    let group = Some("/system.slice/containerd.service".into());
    let (component, socket) = (Component::Containerd, Some(SOCKET.into()));
    GoneRuntime { component, socket, shims: 1, group }
}

/// A pod that runs, with its shim.
fn node_of_state(runtimes: Vec<Runtime>, gone: Vec<GoneRuntime>) -> NodeSample {
    let pod = PodState { populated: Some(true), ..pod_state(UID) };
    let target = Target { pod: Some(named()), ..Target::unknown() }.into();
    let shims = vec![shim_of_state("k8s.io")];
    let group = PodGroup { target, shims, ..testing::pod_group(UID) };
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

#[test]
fn a_pod_waits_for_a_runtime_that_is_stopped() {
    let mut alone = to_go();
    let stopped = node_of_state(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert!(
        last_verdicts(&mut alone, &[20, 22], &stopped).is_empty(),
        "as by a debugger, for a moment"
    );
    let [draft] = found(last_verdicts(&mut alone, &[24, 26], &stopped)).try_into().unwrap();
    draft.assert_is("runtime-hang", Certainty::Firm);
    assert_eq!((draft.blocks_deletion, draft.target.pod.clone()), (Some(true), Some(named())));
    assert!(draft.explanation.starts_with("containerd (pid 40) answers no request"), "{draft:?}");
    let command = draft.remedies[0].command.as_deref().unwrap();
    assert!(command.contains("kill -CONT 40"), "{command}");
    let pod = Subject { target_id: 0, path: std::path::Path::new(""), pod: UID, at: at(26) };
    assert!(alone.tracker.explains(&pod, Claim::Finding));
    let runs = node_of_state(vec![containerd(None)], Vec::new());
    let over = last_verdicts(&mut alone, &[28], &runs);
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::RuntimeState, .. }]));
    assert!(!alone.tracker.explains(&pod, Claim::Suspicion));
}

#[test]
fn a_pod_waits_for_a_runtime_without_descriptors() {
    let mut alone = to_go();
    let halted = |hard| Halted::NoDescriptors { open: 1024, most: 1024, hard };
    let node = |hard| node_of_state(vec![containerd(Some(halted(hard)))], Vec::new());
    assert!(last_verdicts(&mut alone, &[20], &node(None)).is_empty(), "for a moment");
    let command = |draft: &Draft| draft.remedies[0].command.clone().unwrap();
    let [draft] = found(last_verdicts(&mut alone, &[26], &node(None))).try_into().unwrap();
    draft.assert_is("runtime-hang", Certainty::Firm);
    assert!(draft.evidence[0].fact.contains("1024 file descriptors open, of 1024"), "{draft:?}");
    assert!(command(&draft).ends_with("prlimit --pid 40 --nofile=2048:"), "{draft:?}");
    let [draft] = found(last_verdicts(&mut alone, &[28], &node(Some(1024)))).try_into().unwrap();
    assert!(command(&draft).ends_with("--nofile=2048:2048"), "the hard limit, too: {draft:?}");
}

#[test]
fn a_pod_waits_for_a_runtime_that_may_start_no_task() {
    let mut alone = to_go();
    let group = "/sys/fs/cgroup/system.slice/containerd.service".into();
    let halted = Halted::NoTasks { group, tasks: 512, most: 512 };
    let node = node_of_state(vec![containerd(Some(halted))], Vec::new());
    assert!(last_verdicts(&mut alone, &[20], &node).is_empty(), "for a moment");
    let [draft] = found(last_verdicts(&mut alone, &[26], &node)).try_into().unwrap();
    draft.assert_is("runtime-hang", Certainty::Firm);
    let command = draft.remedies[0].command.clone().unwrap();
    assert!(
        command.contains("echo 1024 > /sys/fs/cgroup/system.slice/containerd.service/pids.max"),
        "{command}"
    );
}

#[test]
fn a_pod_waits_for_a_runtime_that_is_gone_for_longer_than_a_restart_takes() {
    let mut alone = to_go();
    let node = node_of_state(Vec::new(), vec![gone()]);
    assert!(last_verdicts(&mut alone, &[20, 28], &node).is_empty(), "it may be restarted");
    let [draft] = found(last_verdicts(&mut alone, &[30], &node)).try_into().unwrap();
    draft.assert_is("runtime-down", Certainty::Firm);
    assert!(draft.evidence[0].fact.contains(SOCKET), "{draft:?}");
    let command = draft.remedies[1].command.as_deref();
    assert_eq!(command, Some("systemctl start containerd.service"));
}

#[test]
fn a_pod_that_is_not_known_to_be_deleted_waits_for_nothing() {
    let mut alone = Alone::<RuntimeStates>::new();
    let node = node_of_state(Vec::new(), vec![gone()]);
    let [draft] = found(last_verdicts(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!((draft.blocks_deletion, &draft.target.pod), (None, &None));
    let other = NodeSample { gone: Vec::new(), ..node };
    assert_eq!(last_verdicts(&mut alone, &[32], &other).len(), 1, "over");
}

#[test]
fn another_runtimes_fault_does_not_concern_the_pod() {
    let mut alone = to_go();
    let other = runtime_of_state(Component::Containerd, "/run/k3s/c.sock", Some(Halted::Stopped));
    let node = node_of_state(vec![containerd(None), other], Vec::new());
    let [draft] = found(last_verdicts(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!(draft.blocks_deletion, None);
    assert_eq!(draft.path, std::path::Path::new("/run/k3s/c.sock"));
}

#[test]
fn a_pod_that_a_sample_leaves_out_still_waits() {
    let mut alone = to_go();
    let node = node_of_state(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert_eq!(last_verdicts(&mut alone, &[20, 30], &node).len(), 1);
    let others = NodeSample { cgroups: Vec::new(), ..node.clone() };
    assert!(last_verdicts(&mut alone, &[32, 34], &others).is_empty());
    assert_eq!(last_verdicts(&mut alone, &[36], &node).len(), 1);
}

#[test]
fn a_container_of_docker_needs_both_its_daemons() {
    let container = |shim: Option<Shim>| ContainerState { shim, ..testing::container_state() };
    let dockerd = |halted| runtime_of_state(Component::Dockerd, "/run/docker.sock", halted);
    let causes = |shim: Option<Shim>, runtimes: Vec<Runtime>| {
        let containers = vec![container(shim)];
        let node = NodeSample { containers, runtimes, ..NodeSample::default() };
        let drafts = found(last_verdicts(&mut Alone::<RuntimeStates>::new(), &[20, 30], &node));
        let named = |it: &crate::verdict::Draft| {
            let of = it.target.container.clone();
            (of, it.blocks_deletion, it.explanation.split(' ').next().unwrap().to_owned())
        };
        drafts.iter().map(named).collect::<Vec<_>>()
    };
    let stopped = Some(Halted::Stopped);
    let of = |name: &str| vec![(Some(id()), Some(true), name.to_owned())];
    let with_shim = |runtimes| causes(Some(shim_of_state("moby")), runtimes);
    assert_eq!(with_shim(vec![containerd(None), dockerd(stopped.clone())]), of("dockerd"));
    assert_eq!(with_shim(vec![containerd(stopped.clone()), dockerd(None)]), of("containerd"));
    assert_eq!(with_shim(vec![containerd(None), dockerd(None)]), []);
    assert_eq!(causes(None, vec![dockerd(stopped.clone())]), of("dockerd"));
    let one_of_two = causes(None, vec![dockerd(stopped), Runtime { pid: 44, ..dockerd(None) }]);
    assert_eq!(one_of_two[0].1, None, "it is not known whose the container is");
}

/// The daemon gets no request: its clients show that it does not answer.
#[test]
fn a_daemon_that_runs_and_does_not_answer() {
    let dockerd = |connections: &[u64], halted| {
        let group = Some("/system.slice/docker.service".into());
        let connections = connections.to_vec();
        Runtime {
            group,
            connections,
            ..runtime_of_state(Component::Dockerd, "/run/docker.sock", halted)
        }
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
    let look = |clients: &[Client], other: Option<Runtime>, is_measured: bool| {
        let mut alone = Alone::<RuntimeStates>::new();
        let mut last = Vec::new();
        for second in (100..140).step_by(2) {
            let runtimes =
                [Some(dockerd(&[5], None)), other.clone()].into_iter().flatten().collect();
            let spaces = is_measured.then(|| space(1 << 29, at(second))).into_iter().collect();
            let sample = NodeSample { at: at(second), runtimes, spaces, ..NodeSample::default() };
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
    let of = |clients: &[Client], other| look(clients, other, true);
    let [no_disk_seen] = look(&[ps.clone(), info.clone()], None, false).try_into().unwrap();
    assert_eq!(no_disk_seen.certainty(), Certainty::Likely, "a disk may be full");
    let [both] = of(&[ps.clone(), info], None).try_into().unwrap();
    both.assert_is("runtime-hang", Certainty::Firm);
    assert_eq!((both.first, both.blocks_deletion), (at(99), None));
    let fact = &both.evidence[0].fact;
    assert!(fact.contains("docker ps (pid 77") && fact.contains("docker info (pid 78"), "{fact}");
    assert_eq!(both.remedies[1].command.as_deref(), Some("systemctl restart docker.service"));
    let [one] = of(std::slice::from_ref(&ps), None).try_into().unwrap();
    assert_eq!(one.certainty(), Certainty::Possible, "one alone may be slow");
    let [shut] = of(&[client(79, "kubelet", Request::Pending)], None).try_into().unwrap();
    assert_eq!(shut.certainty(), Certainty::Firm, "{:?}", shut.not_known());
    assert!(shut.explanation.contains("no longer accepts connections"), "{}", shut.explanation);
    assert!(of(&[client(79, "docker volume ls", Request::Read)], None).is_empty());
    let stopped = of(&[ps], Some(containerd(Some(Halted::Stopped))));
    let [stopped] = stopped.try_into().unwrap();
    assert!(stopped.explanation.starts_with("containerd (pid 40)"), "{}", stopped.explanation);
}
