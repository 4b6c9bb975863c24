use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::PathBuf,
};

use super::*;
use crate::identity::runtimes::{Daemons, running_daemons};

/// A `/proc` of described processes, each with all capabilities.
struct Node {
    top: tempfile::TempDir,
}

/// The description of a process.
struct Described<'a> {
    comm: &'a str,
    cgroup: &'a str,
    loginuid: &'a str,
    /// Owner of its program.
    owner: u32,
    root: &'a str,
    /// The user that started it, and its user ids now.
    started_by: u32,
    uid: &'a str,
}

const KUBELET: Described<'static> = Described {
    comm: "kubelet",
    cgroup: "0::/system.slice/kubelet.service",
    loginuid: NO_USER,
    owner: 0,
    root: "/",
    started_by: 0,
    uid: "0\t0\t0\t0",
};

const SESSION: &str = "/user.slice/user-1000.slice/session-3.scope";

impl Node {
    fn new() -> Self {
        let node = Self { top: tempfile::tempdir().unwrap() };
        for owner in [0, 1000] {
            let program = node.program(owner);
            fs::write(&program, "").unwrap();
            let _ = chown(program, Some(owner), None);
        }
        ["/", "/kind-1", "/kind-2"].iter().for_each(|root| {
            fs::create_dir_all(node.root(root)).unwrap();
        });
        node.add(1, &Described { comm: "systemd", cgroup: "0::/init.scope", ..KUBELET });
        node
    }

    fn program(&self, owner: u32) -> PathBuf {
        self.top.path().join(format!("program-{owner}"))
    }

    fn root(&self, name: &str) -> PathBuf {
        self.top.path().join(format!("roots{name}"))
    }

    fn proc(&self) -> PathBuf {
        self.top.path().join("host/proc")
    }

    fn add(&self, pid: u32, described: &Described<'_>) {
        let process = self.proc().join(pid.to_string());
        fs::create_dir_all(process.join("ns")).unwrap();
        let put = |name: &str, text: &[u8]| fs::write(process.join(name), text).unwrap();
        put("comm", described.comm.as_bytes());
        put("cgroup", described.cgroup.as_bytes());
        put("loginuid", described.loginuid.as_bytes());
        let status =
            format!("Uid:\t{}\nGid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n", described.uid);
        put("status", status.as_bytes());
        put("uid_map", &fs::read("/proc/self/uid_map").unwrap());
        let by = u64::from(described.started_by);
        let words = [(11, by), (12, 0), (13, by), (14, by), (0, 0)];
        let words = words.iter().flat_map(|(key, value): &(u64, u64)| [*key, *value]);
        put("auxv", &words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        symlink(fs::read_link("/proc/self/ns/user").unwrap(), process.join("ns/user")).unwrap();
        symlink(self.program(described.owner), process.join("exe")).unwrap();
        symlink(self.root(described.root), process.join("root")).unwrap();
    }

    fn daemons(&self) -> Daemons {
        running_daemons(&self.proc())
    }

    /// The trust in each kubelet, in their order.
    fn beliefs(&self) -> Vec<(u32, Belief)> {
        let daemons = self.daemons();
        daemons.kubelets.iter().map(|pid| (*pid, daemons.belief(*pid))).collect()
    }
}

/// Only root can create files that root owns.
fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn alone(described: Described<'_>) -> Result<Belief, String> {
    let node = Node::new();
    node.add(70, &described);
    let daemons = node.daemons();
    match daemons.standings.get(&70) {
        Some(standing) => Ok(standing.belief),
        None => Err(daemons.disbelieved.first().unwrap().1.clone()),
    }
}

#[test]
fn services_of_every_distribution_are_services() {
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of root's");
    }
    for (comm, cgroup) in [
        ("kubelet", "0::/system.slice/kubelet.service"),
        (
            "kubelet",
            "12:cpu,cpuacct:/system.slice\n1:name=systemd:/system.slice/kubelet.service\n0::/",
        ),
        ("k3s-server", "0::/system.slice/k3s.service"),
        ("rke2", "0::/system.slice/rke2-server.service"),
        // The child of RKE2 and of k0s.
        ("kubelet", "0::/system.slice/rke2-server.service"),
        ("kubelet", "0::/system.slice/k0sworker.service/kubelet"),
        // Its program is on a squashfs on which root owns all files.
        ("kubelite", "0::/system.slice/snap.microk8s.daemon-kubelite.service"),
        // No systemd at all.
        ("kubelet", "0::/"),
        ("kubelet", "1:name=openrc:/kubelet\n0::/"),
        ("containerd", "0::/system.slice/containerd.service"),
        ("dockerd", "0::/system.slice/docker.service"),
        ("crio", "0::/system.slice/crio.service"),
    ] {
        assert_eq!(alone(Described { comm, cgroup, ..KUBELET }), Ok(Belief::Service), "{cgroup}");
    }
    // A kernel without auditing shows no login user.
    assert_eq!(alone(Described { loginuid: "", ..KUBELET }), Ok(Belief::Service));
}

#[test]
fn what_an_administrator_has_started_is_no_service() {
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of root's");
    }
    let session = format!("0::{SESSION}");
    let v1 = format!("4:memory:/\n1:name=systemd:{SESSION}\n0::/");
    let login = "1000";
    for described in [
        // The demo, under sudo, from a clone that user 1000 owns: each of the three is enough.
        Described { cgroup: &session, loginuid: login, owner: 1000, ..KUBELET },
        Described { cgroup: &session, ..KUBELET },
        Described { cgroup: &v1, ..KUBELET },
        Described { loginuid: login, cgroup: "0::/", ..KUBELET },
        // root has logged in.
        Described { loginuid: "0", cgroup: "0::/", ..KUBELET },
        Described { owner: 1000, ..KUBELET },
        Described {
            cgroup: "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x",
            ..KUBELET
        },
    ] {
        assert_eq!(alone(described), Ok(Belief::Administrator));
    }
}

#[test]
fn a_process_with_other_ids_than_roots_is_not_trusted() {
    let su = Described { started_by: 4242, uid: "4242\t0\t0\t0", ..KUBELET };
    assert!(alone(su).unwrap_err().contains("ids are 0"));
    // It has changed to root's ids since, and the kernel knows the user that started it.
    let all = Described { started_by: 4242, ..KUBELET };
    assert!(alone(all).unwrap_err().contains("set-user-ID"));
    let pod = "0::/kubepods/pod0f0e0d0c-1111-2222-3333-444455556666/x";
    assert!(alone(Described { cgroup: pod, ..KUBELET }).unwrap_err().contains("of pod"));
}

#[test]
fn a_kubelet_in_another_root_directory_yields_unless_it_is_the_only_one() {
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of root's");
    }
    use Belief::{Administrator, Service};
    let nspawn = "0::/machine.slice/systemd-nspawn@x.service/payload/system.slice/kubelet.service";
    let kind = |root| Described { root, cgroup: "0::/docker/0a/kubelet.slice", ..KUBELET };
    let node = Node::new();
    node.add(70, &kind("/kind-1"));
    assert_eq!(node.beliefs(), [(70, Service)], "a kubelet in a container, as of Talos");
    // With its supervisor it is still one node.
    node.add(71, &Described { comm: "rke2", ..kind("/kind-1") });
    assert_eq!(node.beliefs(), [(70, Service), (71, Service)]);
    // A lab beside it is not the node's.
    node.add(72, &Described { loginuid: "1000", ..KUBELET });
    assert_eq!(node.beliefs(), [(70, Service), (71, Service), (72, Administrator)]);
    node.add(73, &kind("/kind-2"));
    assert!(node.beliefs().iter().all(|(_, belief)| *belief == Administrator), "two nodes of kind");
    // The host's own comes first, whatever its id.
    node.add(90, &KUBELET);
    assert_eq!(node.beliefs()[0], (90, Service));
    assert!(node.beliefs()[1..].iter().all(|(_, belief)| *belief == Administrator));
    let node = Node::new();
    node.add(70, &Described { root: "/kind-1", cgroup: nspawn, ..KUBELET });
    node.add(90, &KUBELET);
    assert_eq!(node.beliefs(), [(90, Service), (70, Administrator)]);
}

/// From within a node of kind, and from a debugging pod with the host at `/host`.
#[test]
fn the_nodes_root_directory_is_its_first_processs() {
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of root's");
    }
    let node = Node::new();
    fs::remove_file(node.proc().join("1/root")).unwrap();
    symlink(node.root("/kind-1"), node.proc().join("1/root")).unwrap();
    node.add(70, &Described { root: "/kind-1", ..KUBELET });
    node.add(71, &Described { root: "/kind-2", ..KUBELET });
    assert_eq!(node.beliefs(), [(70, Belief::Service), (71, Belief::Administrator)]);
}

/// As on a node whose first process is protected from all others.
#[test]
fn the_nodes_root_directory_is_where_its_processes_are_shown_if_nothing_else_is_known() {
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of root's");
    }
    let node = Node::new();
    fs::remove_file(node.proc().join("1/root")).unwrap();
    // The tool is in its own container, with the node's root at `/host`.
    node.add(70, &Described { root: "/../host", ..KUBELET });
    node.add(71, &Described { root: "/kind-1", ..KUBELET });
    assert_eq!(node.beliefs(), [(70, Belief::Service), (71, Belief::Administrator)]);
}

#[test]
fn a_program_that_others_may_write_is_not_roots_alone() {
    for (owner, mode, expected) in [
        (0, 0o755, true),
        (0, 0o4755, true),
        (0, 0o775, false),
        (0, 0o757, false),
        (7, 0o755, false),
    ] {
        assert_eq!(is_roots_alone(owner, mode), expected, "{owner} {mode:o}");
    }
}
