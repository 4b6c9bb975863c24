//! Runtimes that cannot act, as scans of the node show them.

use jiff::Timestamp;

use super::{
    play::{Node, Play, UID, at, group, sample},
    removals::Plays,
    states::of_pod,
};
use crate::{
    model::{
        client::{Client, Request},
        container::ContainerState,
        halted::Halted,
        identity::Component,
        node::NodeSample,
        runtime::{Differs, GoneRuntime, HaltedShim, LogDriver, OutOfStep, Runtime, Shim, ShimOf},
        said::{Report, Said},
    },
    testing::{self, space},
};

const SOCKET: &str = "/run/containerd/containerd.sock";
const GROUP: &str = "/system.slice/containerd.service";

fn shim(namespace: &str) -> Shim {
    let of = ShimOf::Containerd { socket: SOCKET.into(), namespace: namespace.into() };
    Shim { group: Some(GROUP.into()), of: Some(of), ..testing::shim() }
}

fn running(component: Component, pid: u32, halted: Option<Halted>) -> Runtime {
    let socket = if component == Component::Dockerd { "/run/docker.sock" } else { SOCKET };
    Runtime { pid, halted, sockets: vec![socket.into()], ..testing::runtime(component) }
}

fn gone(component: Component) -> GoneRuntime {
    let socket = (component == Component::Containerd).then(|| SOCKET.into());
    GoneRuntime { component, socket, shims: 3, group: Some(GROUP.into()) }
}

/// A Docker container.
fn container() -> ContainerState {
    ContainerState { init: Some(42), shim: Some(shim("moby")), ..testing::container_state() }
}

fn client(pid: u32, command: &str, request: Request) -> Client {
    let command = command.into();
    Client { pid, since: at(602.0), component: Component::Other, command, request }
}

/// A stopped, a frozen and a missing runtime, for a pod in deletion, for a container in question, and with no
/// waiting request.
pub(super) fn runtime_state() -> Plays {
    let (containerd, dockerd) = (Component::Containerd, Component::Dockerd);
    let with_pod = || {
        let pods = vec![of_pod(true, Vec::new())];
        let group = group(Vec::new(), true, false);
        let shims = vec![shim("k8s.io")];
        let cgroups = vec![crate::model::pod_group::PodGroup { shims, ..group }];
        NodeSample { pods, cgroups, ..sample(0.0) }
    };
    let with_container = || NodeSample { containers: vec![container()], ..sample(0.0) };
    let frozen = Halted::Frozen { group: format!("/sys/fs/cgroup{GROUP}").into() };
    let stopped = |component| vec![running(component, 40, Some(Halted::Stopped))];
    let below = running(containerd, 39, None);
    let of_docker = [vec![below], stopped(dockerd)].concat();
    [
        ("a pod's is stopped", with_pod(), stopped(containerd), Vec::new()),
        ("a pod's is frozen", with_pod(), vec![running(containerd, 40, Some(frozen))], Vec::new()),
        ("a pod's is gone", with_pod(), Vec::new(), vec![gone(containerd)]),
        ("a container's is stopped", with_container(), of_docker, Vec::new()),
        ("a container's is gone", with_container(), Vec::new(), vec![gone(dockerd)]),
        ("no request is known to wait", sample(0.0), stopped(containerd), Vec::new()),
    ]
    .into_iter()
    .map(|(title, node, runtimes, gone)| {
        let clients = vec![
            client(77, "docker rm", Request::Pending),
            client(78, "docker logs", Request::Read),
        ];
        let mut play = Play::new(Node { clients, ..Node::default() });
        let time = Timestamp::from_second(590).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, time, "");
        play.said(600.0, Said { report: Some(Report::ToGo), ..said });
        for second in (602..618).step_by(2) {
            let at = at(f64::from(second));
            let (runtimes, gone) = (runtimes.clone(), gone.clone());
            play.sample(NodeSample { at, runtimes, gone, ..node.clone() });
        }
        play.sample(NodeSample { at: at(618.0), ..node });
        (title, play)
    })
    .collect()
}

/// The same scan repeatedly, until its state is over.
fn looks(mut play: Play, node: &NodeSample, over: NodeSample) -> Play {
    for second in (602..640).step_by(2) {
        play.sample(NodeSample { at: at(f64::from(second)), ..node.clone() });
    }
    play.sample(NodeSample { at: at(640.0), ..over });
    play
}

/// A container that dockerd takes for running and one that it takes for ended, a shim that cannot run, and a dockerd
/// that does not answer.
pub(super) fn docker() -> Plays {
    let dockerd = Runtime {
        group: Some("/system.slice/docker.service".into()),
        connections: vec![7],
        ..running(Component::Dockerd, 40, None)
    };
    let daemons = || vec![running(Component::Containerd, 39, None), dockerd.clone()];
    let container = container();
    let differs = |what, shim| OutOfStep {
        container: container.container.clone(),
        directory: format!("/var/lib/docker/containers/{}", container.container.id).into(),
        runtime: Component::Dockerd,
        daemon: 40,
        what,
        shim,
        log_driver: Some(LogDriver { name: "json-file".into(), address: None }),
        started_at: None,
    };
    let up = NodeSample {
        runtimes: daemons(),
        containers: vec![ContainerState { init: None, shim: None, ..container.clone() }],
        out_of_step: vec![differs(Differs::SaysUp(42), None)],
        ..sample(0.0)
    };
    let mut logs = up.clone();
    let driver = LogDriver { name: "fluentd".into(), address: Some("127.0.0.1:24224".into()) };
    logs.out_of_step[0].log_driver = Some(driver);
    let ended = NodeSample {
        runtimes: daemons(),
        out_of_step: vec![differs(Differs::SaysEnded(Some(42)), Some(shim("moby")))],
        ..sample(0.0)
    };
    let stopped = Shim { state: 'T', ..shim("moby") };
    let with_shim = |shim: &Shim| NodeSample {
        runtimes: daemons(),
        containers: vec![ContainerState { shim: Some(shim.clone()), ..container.clone() }],
        ..sample(0.0)
    };
    let waits =
        Shim { state: 'D', wait_channel: Some("request_wait_answer".into()), ..stopped.clone() };
    let (name, shim) = (container.container.clone(), waits);
    let of_node = NodeSample {
        runtimes: daemons(),
        shims: vec![HaltedShim { container: name, to_go: true, shim }],
        ..sample(0.0)
    };
    let with_room = || NodeSample { spaces: vec![space(1 << 29, at(0.0))], ..sample(0.0) };
    let silent = NodeSample { runtimes: daemons(), ..with_room() };
    let clients =
        |clients: &[Client]| Play::new(Node { clients: clients.to_vec(), ..Node::default() });
    let (ps, info) =
        (client(77, "docker ps", Request::Read), client(78, "docker info", Request::Read));
    let pending = client(79, "kubelet", Request::Pending);
    let over = || NodeSample { runtimes: daemons(), ..sample(0.0) };
    let shut = NodeSample { runtimes: vec![dockerd.clone()], ..with_room() };
    let none = || NodeSample {
        runtimes: vec![Runtime { connections: Vec::new(), ..dockerd.clone() }],
        ..sample(0.0)
    };
    vec![
        ("it has ended, and is up", looks(clients(&[]), &up, over())),
        ("its log driver waits", looks(clients(&[]), &logs, over())),
        ("it lives, and has exited", looks(clients(&[]), &ended, over())),
        ("its shim is stopped", looks(clients(&[]), &with_shim(&stopped), over())),
        ("a shim waits in the kernel", looks(clients(&[]), &of_node, over())),
        ("dockerd answers no request", looks(clients(&[ps, info]), &silent, none())),
        ("dockerd accepts no connection", looks(clients(&[pending]), &shut, none())),
    ]
}
