//! The runtimes' daemons: running, kept from running, or gone while their shims run.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use super::{halted::Trees, shims::NodeShims};
use crate::{
    identity::cgroup::group_of,
    state::{
        namespaces,
        sockets::{self, Listener, Table},
    },
};
use podstuck_confine::proc;
use podstuck_model::{
    identity::Component,
    runtime::{DOCKERS, GoneRuntime, Runtime, Shim, ShimOf},
};

/// Most connections of one daemon that are reported, the oldest first.
const CONNECTIONS: usize = 256;

/// All of a node, running and gone.
pub(super) fn look(
    daemons: &[(u32, Component)],
    shims: &NodeShims,
    trees: &Trees,
) -> (Vec<Runtime>, Vec<GoneRuntime>) {
    // Each sees the sockets of its own network only; mostly all are in the same one.
    let of_daemons = daemons.iter().map(|(pid, _)| *pid);
    let mut tables: HashMap<PathBuf, Table> = HashMap::new();
    for pid in of_daemons.chain(shims.all().map(|shim| shim.pid)) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        if let Some(network) = proc::namespace(&process, "net") {
            tables.entry(network).or_insert_with(|| sockets::table_for(&process));
        }
    }
    let (mut listening, mut connected): (Vec<Listener>, Vec<Listener>) = Default::default();
    for table in tables.into_values() {
        listening.extend(table.listening);
        connected.extend(table.connected);
    }
    let look = |(pid, component): &(u32, Component)| {
        let (state, started) = proc::stat(*pid, *pid)?;
        let sockets = sockets::of_process(*pid, &listening);
        let own = connected.iter().filter(|it| sockets.contains(&it.path));
        let mut connections: Vec<u64> = own.map(|it| it.inode).collect();
        connections.sort_unstable();
        connections.dedup();
        connections.truncate(CONNECTIONS);
        Some(Runtime {
            pid: *pid,
            component: *component,
            started,
            mnt_ns: namespaces::of_process(*pid),
            halted: trees.halted(*pid, state),
            sockets,
            group: group_of(Path::new(&format!("/proc/{pid}"))),
            connections,
        })
    };
    let running: Vec<Runtime> = daemons.iter().filter_map(look).collect();
    let gone = gone(&running, &listening, shims.all());
    (running, gone)
}

/// Those that living shims belong to, and which do not run.
fn gone<'a>(
    running: &[Runtime],
    listening: &[Listener],
    shims: impl Iterator<Item = &'a Shim>,
) -> Vec<GoneRuntime> {
    // One whose sockets are not known may listen on any, or is about to.
    let has_unknown = running.iter().any(|it| it.sockets.is_empty());
    let runs = |component| running.iter().any(|it| it.component == component);
    let listens = |socket: &Path| listening.iter().any(|it| it.path == socket);
    let mut found: BTreeMap<(Component, Option<PathBuf>), (usize, Option<String>)> =
        BTreeMap::new();
    for shim in shims {
        let mut missed = |component, socket| {
            let (count, group) = found.entry((component, socket)).or_default();
            *count += 1;
            *group = group.take().or_else(|| shim.group.clone());
        };
        match &shim.of {
            Some(ShimOf::Containerd { socket, namespace }) => {
                if !has_unknown && !listens(socket) {
                    missed(Component::Containerd, Some(socket.clone()));
                }
                if namespace == DOCKERS && !runs(Component::Dockerd) {
                    missed(Component::Dockerd, None);
                }
            }
            Some(ShimOf::CriO) if !runs(Component::CriO) => missed(Component::CriO, None),
            _ => {}
        }
    }
    let gone =
        |((component, socket), (shims, group))| GoneRuntime { component, socket, shims, group };
    found.into_iter().map(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(socket: &str, namespace: &str) -> Shim {
        let of = ShimOf::Containerd { socket: socket.into(), namespace: namespace.into() };
        Shim {
            pid: 7,
            comm: "containerd-shim-runc-v2".into(),
            state: 'S',
            started: 1,
            group: Some("/system.slice/containerd.service".into()),
            wait_channel: None,
            of: Some(of),
            container: None,
            unreaped: Vec::new(),
            lost_directory: false,
        }
    }

    fn runtime(component: Component, sockets: &[&str]) -> Runtime {
        let sockets = sockets.iter().map(PathBuf::from).collect();
        let (halted, group, connections) = (None, None, Vec::new());
        Runtime { pid: 5, component, started: 1, mnt_ns: None, halted, sockets, group, connections }
    }

    #[test]
    fn who_listens_nowhere_is_gone() {
        let listening = [Listener { path: "/run/one.sock".into(), inode: 1 }];
        let found = |running: &[Runtime], shims: &[Shim]| {
            let found = gone(running, &listening, shims.iter());
            found.into_iter().map(|it| (it.component, it.socket, it.shims)).collect::<Vec<_>>()
        };
        let (one, two) = (shim("/run/one.sock", "k8s.io"), shim("/run/two.sock", "k8s.io"));
        let own = runtime(Component::Containerd, &["/run/one.sock"]);
        let gone = (Component::Containerd, Some("/run/two.sock".into()), 2);
        let all = [one, two.clone(), two];
        assert_eq!(found(std::slice::from_ref(&own), &all), [gone]);
        let starting = runtime(Component::Containerd, &[]);
        assert_eq!(found(&[own.clone(), starting], &all), []);
        let docker = shim("/run/one.sock", "moby");
        let docker = std::slice::from_ref(&docker);
        let alone = found(std::slice::from_ref(&own), docker);
        assert_eq!(alone, [(Component::Dockerd, None, 1)]);
        let dockerd = runtime(Component::Dockerd, &["/run/docker.sock"]);
        assert_eq!(found(&[own, dockerd], docker), []);
    }

    #[test]
    fn a_monitor_of_cri_o_without_it_says_so() {
        let shim = Shim { of: Some(ShimOf::CriO), ..shim("", "") };
        let found = |running: &[Runtime]| gone(running, &[], [&shim].into_iter()).len();
        assert_eq!((found(&[]), found(&[runtime(Component::CriO, &["/c"])])), (1, 0));
    }
}
