//! Shims: the runtime's processes that supervise a pod's containers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    namespace_members::{has_ended, stat, tracer_of},
    tasks,
};
use crate::{
    identity::{
        cgroup::{group_of, pod_of_cgroup},
        component::by_name,
        living::Living,
    },
    state::namespaces,
};
use podstuck_confine::{proc, silent};
use podstuck_model::{
    identity::Component,
    path::safe,
    pod_group::{PodGroup, Task},
    runtime::{DOCKERS, Shim, ShimOf, Unreaped},
};

/// Names of the programs, cut to the 15 bytes that the kernel keeps: containerd's shims, and the monitor of
/// CRI-O and Podman.
const NAMES: [&str; 2] = ["containerd-shim", "conmon"];
/// The parts of such a process. A container may have one of that name.
const PARTS: [Component; 2] = [Component::ContainerdShim, Component::CriO];
/// What is read of a command line.
const LINE: usize = 4096;
/// Processes whose parents are looked at.
const LOOKED_AT: usize = 8;
/// Most processes outside a pod's control groups that are recorded.
const STRAYS: usize = 32;

/// Those of a pod's containers: the parents of its processes, what runs in its control group itself, as Kata's, and
/// those that were started for a container whose control group is there, which may have no process left.
pub(super) fn of(tasks: &[Task], containers: &[String], all: &NodeShims) -> Vec<Shim> {
    let parents = tasks.iter().take(LOOKED_AT).filter_map(|task| parent(task.pid));
    let is_named = |task: &&Task| NAMES.iter().any(|name| task.comm.starts_with(name));
    let own = tasks.iter().filter(is_named).map(|task| task.pid);
    let started = all.pids_of(containers);
    let all: BTreeSet<u32> = parents.chain(own).chain(started).collect();
    all.into_iter().filter_map(look).collect()
}

/// Looks at the children of a pod's shims: those that have ended and are not reaped, those that live, with mounts of their
/// own, outside the pod's control groups, and those whose exit waits for others. The kernel lists the latter in no
/// `cgroup.procs` (`css_task_iter_advance` in kernel/cgroup/cgroup.c).
pub(super) fn look_at_children(group: &mut PodGroup) {
    let PodGroup { uid, tasks, outside, shims, .. } = group;
    if shims.is_empty() {
        return;
    }
    for pid in children(shims) {
        let place = PathBuf::from(format!("/proc/{pid}"));
        let Some(stat) = stat(pid) else { continue };
        let parent = stat.ppid.cast_unsigned();
        let Some(shim) = shims.iter_mut().find(|shim| shim.pid == parent) else { continue };
        if has_ended(&stat) {
            let comm = safe(stat.comm.as_bytes()).into_owned();
            let traced_by = tracer_of(pid).filter(|tracer| tracer.pid != parent);
            shim.unreaped.push(Unreaped { pid, started: stat.starttime, comm, traced_by });
            continue;
        }
        let Some(its_group) = group_of(&place) else { continue };
        let is_in_pod = pod_of_cgroup(&its_group).is_some_and(|(of, _)| of == *uid);
        if !is_in_pod && has_own_mounts(pid, parent) {
            outside.extend(tasks::read(pid, Path::new(&its_group)));
        } else if is_in_pod && !tasks.iter().any(|task| task.pid == pid) {
            let exits = tasks::read(pid, Path::new(&its_group)).filter(|task| task.exiting);
            tasks.extend(exits);
        }
    }
}

/// Finds the processes in the PID namespaces of a pod's containers that have left the pod's control groups: the runtime
/// signals those in the groups, and the kernel ends the others with the namespace's init process.
pub(super) fn look_for_strays(group: &mut PodGroup) {
    let PodGroup { uid, tasks, outside, shims, .. } = group;
    let namespace = |pid: u32| proc::namespace(&PathBuf::from(format!("/proc/{pid}")), "pid");
    let own = tasks.iter().chain(&*outside).map(|task| task.pid);
    let mut seen: HashSet<u32> = own.chain(shims.iter().map(|shim| shim.pid)).collect();
    let of_node = proc::namespace(Path::new("/proc/self"), "pid");
    let its: HashSet<PathBuf> = seen.iter().filter_map(|pid| namespace(*pid)).collect();
    let of_shims: HashSet<PathBuf> = shims.iter().filter_map(|shim| namespace(shim.pid)).collect();
    let its: HashSet<PathBuf> = its.difference(&of_shims).cloned().collect();
    if of_node.is_none_or(|node| its.is_empty() || its.contains(&node)) {
        return;
    }
    for pid in proc::processes() {
        if !seen.insert(pid) || namespace(pid).is_none_or(|of| !its.contains(&of)) {
            continue;
        }
        let Some(its_group) = group_of(&PathBuf::from(format!("/proc/{pid}"))) else { continue };
        if pod_of_cgroup(&its_group).is_none_or(|(of, _)| of != *uid) && outside.len() < STRAYS {
            outside.extend(tasks::read(pid, Path::new(&its_group)));
        }
    }
}

/// The children of shims; all processes of the node where the kernel does not list them.
fn children(shims: &[Shim]) -> Vec<u32> {
    let all: Vec<_> = shims.iter().filter_map(|shim| proc::children(shim.pid)).collect();
    if all.is_empty() { proc::processes() } else { all.concat() }
}

/// The runtime's own commands see the shim's mounts.
fn has_own_mounts(pid: u32, shim: u32) -> bool {
    let both = namespaces::of_process(pid).zip(namespaces::of_process(shim));
    both.is_some_and(|(its, of_shim)| its != of_shim)
}

pub(super) fn parent(pid: u32) -> Option<u32> {
    Some(stat(pid)?.ppid.cast_unsigned())
}

/// A process that may be one.
fn look(pid: u32) -> Option<Shim> {
    let stat = stat(pid)?;
    let place = PathBuf::from(format!("/proc/{pid}"));
    if !NAMES.iter().any(|name| stat.comm.starts_with(name)) {
        return None;
    }
    let living = Living::look(&place)?;
    let is_one = PARTS.contains(&living.component()) || is_in_its_pod(&living);
    if living.started != stat.starttime || !is_one {
        return None;
    }
    let channel = || silent::read(&place, |place| fs::read(place.join("wchan")).ok());
    let waits = (stat.state == 'D').then(channel).flatten();
    let mut arguments = arguments(&place);
    Some(Shim {
        pid,
        comm: safe(arguments.program(&stat.comm).as_bytes()).into_owned(),
        state: stat.state,
        started: stat.starttime,
        group: group_of(&place),
        wait_channel: waits.map(|name| safe(&name).into_owned()),
        of: arguments.of(),
        container: arguments.container.take(),
        unreaped: Vec::new(),
        lost_directory: fs::read_link(place.join("cwd")).is_ok_and(|cwd| is_deleted(&cwd)),
    })
}

/// Whether the kernel shows a path as deleted (d_path in fs/d_path.c). A directory may also have such a name.
fn is_deleted(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") && !path.exists()
}

/// Whether it is one that its runtime puts into the pod's own control group, as Kata's are: it is the node's root and sees
/// the node's mounts, as no container's process does that only has such a name.
fn is_in_its_pod(living: &Living) -> bool {
    let host = namespaces::of_process(1).or_else(|| namespaces::of_process(std::process::id()));
    living.is_root
        && by_name(&living.comm) == Component::ContainerdShim
        && host == Some(living.mnt_ns)
}

/// All shims of the node, kept from one sample to the next: their arguments do not change.
#[derive(Debug, Default)]
pub(super) struct NodeShims {
    /// By id and start; `None` for what only has such a name.
    known: HashMap<(u32, u64), Option<Shim>>,
    /// The starts of processes.
    starts: proc::Looks<Option<u64>>,
}

impl NodeShims {
    /// Those among processes that have such a name.
    pub(super) fn refresh(&mut self, named: &[u32]) {
        let mut before = std::mem::take(&mut self.known);
        for (pid, started) in self.starts.look(named.iter().copied(), proc::started) {
            let Some(started) = *started else { continue };
            let look = || look(pid).filter(|shim| shim.started == started);
            let known = before.remove(&(pid, started)).unwrap_or_else(look);
            self.known.insert((pid, started), known);
        }
    }

    /// All of them. Their states are old.
    pub(super) fn all(&self) -> impl Iterator<Item = &Shim> {
        self.known.values().flatten()
    }

    /// Those that were started for one of these containers.
    fn pids_of(&self, containers: &[String]) -> impl Iterator<Item = u32> {
        let is_its =
            |shim: &&Shim| shim.container.as_ref().is_some_and(|id| containers.contains(id));
        self.all().filter(is_its).map(|shim| shim.pid)
    }

    /// Those of one container each that cannot run now, with the container.
    pub(super) fn halted(&self) -> Vec<(String, Shim)> {
        let halted = |known: &Shim| {
            let id = known.container.clone()?;
            let (state, started) = proc::stat(known.pid, known.pid)?;
            let is_halted = proc::is_stopped(state) || state == 'D';
            let now = (is_halted && started == known.started).then(|| look(known.pid))?;
            Some((id, now.filter(Shim::is_halted)?))
        };
        let mut all: Vec<(String, Shim)> = self.all().filter_map(halted).collect();
        all.sort_by_key(|(_, shim)| shim.pid);
        all
    }

    /// The one that was started for a container of Docker's.
    pub(super) fn of_docker(&self, id: &str) -> Option<Shim> {
        let is_dockers = |shim: &Shim| matches!(&shim.of, Some(ShimOf::Containerd { namespace, .. }) if namespace == DOCKERS);
        let known = self.all().find(|it| it.container.as_deref() == Some(id) && is_dockers(it))?;
        look(known.pid).filter(|shim| shim.started == known.started)
    }

    /// The shim of a container, whose first process is its child.
    pub(super) fn of_container(&self, id: &str, init: Option<u32>) -> Option<Shim> {
        let parent = init.and_then(parent).and_then(look);
        let named = || {
            let known = self.all().find(|known| known.container.as_deref() == Some(id))?;
            look(known.pid)
        };
        parent.or_else(named)
    }
}

/// The arguments of a shim.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    program: String,
    /// `-id`: the container that it was started for, a pod's sandbox with Kubernetes and containerd.
    container: Option<String>,
    socket: Option<PathBuf>,
    namespace: Option<String>,
    /// conmon's `--exit-dir`
    exits: Option<PathBuf>,
}

/// By its command line (containerd `core/runtime/v2/shim.go`, conmon's `cli.c`).
fn arguments(process: &Path) -> Arguments {
    let line = silent::read(process, |process| proc::command_line(process, LINE).ok());
    parse(&line.unwrap_or_default())
}

fn parse(line: &[u8]) -> Arguments {
    let mut words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word));
    let mut arguments = Arguments {
        program: words.next().unwrap_or_default().into_owned(),
        ..Arguments::default()
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().map(|it| it.into_owned()).filter(|it| !it.is_empty());
        let Some(name) = word.strip_prefix('-') else { continue };
        match name.trim_start_matches('-') {
            // `-c` and `--cid` of conmon.
            "id" | "c" | "cid" => arguments.container = value(),
            "address" => arguments.socket = value().map(PathBuf::from),
            "namespace" => arguments.namespace = value(),
            "exit-dir" => arguments.exits = value().map(PathBuf::from),
            _ => {}
        }
    }
    arguments
}

impl Arguments {
    /// The name of its program, of which the kernel keeps the beginning only: gVisor's and Kata's shims are
    /// called after them.
    fn program<'a>(&'a self, comm: &'a str) -> &'a str {
        let name = self.program.rsplit('/').next().unwrap_or_default();
        if name.starts_with(comm) { name } else { comm }
    }

    fn of(&self) -> Option<ShimOf> {
        if let Some((socket, namespace)) = self.socket.clone().zip(self.namespace.clone()) {
            return Some(ShimOf::Containerd { socket, namespace });
        }
        // Podman, which has no daemon, uses the same monitor.
        let is_crio = self.exits.as_ref()?.iter().any(|name| name == "crio");
        is_crio.then_some(ShimOf::CriO)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::state::sample::cgroups::without_processes;

    #[test]
    fn a_command_line_tells_whose_it_is() {
        let of = |words: &str| parse(words.replace(' ', "\0").as_bytes());
        let line = "/usr/bin/containerd-shim-kata-v2 -namespace k8s.io -address /run/c.sock \
             -publish-binary /usr/bin/containerd -id aa ";
        let arguments = of(line);
        let (socket, namespace) = ("/run/c.sock".into(), "k8s.io".into());
        assert_eq!(arguments.of(), Some(ShimOf::Containerd { socket, namespace }));
        assert_eq!(arguments.container.as_deref(), Some("aa"));
        assert_eq!(arguments.program("containerd-shim"), "containerd-shim-kata-v2");
        assert_eq!(arguments.program("conmon"), "conmon");
        let crio = of("/usr/bin/conmon -b /x --exit-dir /var/run/crio/exits -l /y ");
        assert_eq!(crio.of(), Some(ShimOf::CriO));
        let podman =
            of("/usr/bin/conmon --exit-dir /run/libpod/exits --exit-command /usr/bin/podman ");
        assert_eq!((podman.of(), parse(b"").of()), (None, None));
        assert_eq!(of("shim -namespace x -address").of(), None);
        let of_container = of("/usr/bin/conmon -b /x -c bb --exit-dir /var/run/crio/exits ");
        assert_eq!(of_container.container.as_deref(), Some("bb"));
    }

    #[test]
    fn the_shim_of_a_container_without_a_process_is_found_by_its_arguments() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("containerd-shim");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let id = "a".repeat(64);
        let mut shim = Command::new(&program);
        shim.args(["-c", "echo; read _", "shim", "-id", &id]);
        let mut shim = shim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Its name is set only after `spawn` has returned.
        shim.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mut all = NodeShims::default();
        all.refresh(&[shim.id(), std::process::id()]);
        let found =
            |id: String| of(&[], &[id], &all).into_iter().map(|it| it.pid).collect::<Vec<_>>();
        let (its, none) = (found(id), found("b".repeat(64)));
        shim.kill().unwrap();
        shim.wait().unwrap();
        assert_eq!((its, none), (vec![shim.id()], vec![]));
    }

    /// A container's process may join another control group, as those of nested runtimes do.
    #[test]
    fn a_process_that_has_left_the_pods_groups_is_found_by_its_pid_namespace() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root alone makes a PID namespace");
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--fork", "--kill-child", "--pid", "sh", "-c", "sleep 60 & echo; wait"]);
        let mut unshare = unshare.stdout(Stdio::piped()).spawn().unwrap();
        unshare.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let [init] = proc::children(unshare.id()).unwrap()[..] else { panic!("one child") };
        let stray = proc::children(init).unwrap();
        let mut group = without_processes("0f0e0d0c-1111-2222-3333-444455556666");
        group.tasks.extend(tasks::read(init, Path::new("/k")));
        group.tasks.extend(tasks::read(std::process::id(), Path::new("/k")));
        let of_node = group.tasks.pop().unwrap();
        look_for_strays(&mut group);
        tasks::look_for_inits(group.tasks.iter_mut().chain(&mut group.outside));
        let found: Vec<u32> = group.outside.iter().map(|task| task.pid).collect();
        let is_init = group.tasks.iter().chain(&group.outside).map(|it| it.is_init);
        let is_init: Vec<bool> = is_init.collect();
        // A pod in the node's PID namespace has all of the node's processes beside it.
        group.tasks.push(of_node);
        group.outside.clear();
        look_for_strays(&mut group);
        unshare.kill().unwrap();
        unshare.wait().unwrap();
        assert_eq!(found, stray);
        assert_eq!(is_init, [true, false]);
        assert!(group.outside.is_empty(), "{group:?}");
    }

    /// containerd#11984: the sandbox's first process is in another control group.
    #[test]
    fn a_child_outside_the_pods_groups_is_found() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root alone makes a mount namespace");
        }
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("containerd-shim");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut shim = Command::new(&program);
        // The child's parent is the shim itself: `unshare` becomes the shell that waits.
        shim.args(["-c", "unshare --mount sh -c 'echo; read _' <&0; true", "shim", "-id", "aa"]);
        let mut shim = shim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        shim.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mut group = without_processes("0f0e0d0c-1111-2222-3333-444455556666");
        group.shims.push(look(shim.id()).unwrap());
        look_at_children(&mut group);
        drop(shim.stdin.take());
        shim.wait().unwrap();
        let found: Vec<_> = group.outside.iter().map(|it| it.comm.as_str()).collect();
        assert_eq!(found, ["sh"]);
    }

    #[test]
    fn fuzz_shim_words() {
        podstuck_fuzz::fuzz("shim_words", |input| {
            let arguments = parse(input);
            let _ = (arguments.of(), arguments.program("conmon"));
        });
    }
}
