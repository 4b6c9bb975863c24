//! Identity of a process: name, component, container and pod.

use std::{fs, path::Path};

use procfs::process::Process;

use crate::identity::{cgroup::pod_of_cgroup, living::Living};
use podstuck_confine::proc;
use podstuck_model::{
    holder::{Holder, How},
    identity::Pod,
    path::{JsonPath, safe},
};

use super::relation::Hit;

/// A holder that is a process, with everything that `/proc` says about it. `count` objects of this
/// kind are held, one of them `object`.
pub(super) fn process(pid: u32, how: How, hit: Hit, object: JsonPath, source: String) -> Holder {
    let living = Living::look(Path::new(&format!("/proc/{pid}")));
    let comm = living.as_ref().map(|living| safe(&living.comm).into_owned());
    let component = living.as_ref().map(Living::component);
    let started = living.as_ref().map(|living| living.started);
    let cgroup = living.map(|living| living.cgroup);
    let is_child = cgroup.as_deref().is_some_and(|cgroup| is_child(pid, started, cgroup));
    let (uid, container) = cgroup.as_deref().and_then(pod_of_cgroup).unzip();
    Holder {
        file: None,
        nested: None,
        pid: Some(pid),
        started,
        comm,
        component,
        is_child,
        container: container.flatten(),
        pod: uid.map(|uid| Pod { uid, namespace: None, name: None }),
        cgroup,
        ..kernel(how, hit, object, source)
    }
}

/// Where systemd's groups are, with either version.
const TREES: [&str; 3] = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Where its services are.
const SERVICES: &str = "/system.slice/";

/// Whether the process is not the first of its service: its parent's PID is above 1, or its control group has an older
/// process, as kubelet is older than a FUSE server that it started.
fn is_child(pid: u32, started: Option<u64>, cgroup: &str) -> bool {
    let stat = Process::new(pid.cast_signed()).ok().and_then(|process| process.stat().ok());
    if stat.is_some_and(|stat| stat.ppid > 1) {
        return true;
    }
    let procs = |tree: &&str| fs::read_to_string(format!("{tree}{cgroup}/cgroup.procs")).ok();
    let Some(all) = TREES.iter().filter(|_| cgroup.starts_with(SERVICES)).find_map(procs) else {
        return false;
    };
    started.is_some_and(|started| has_older(&all, started))
}

/// Whether one of these processes started before this time.
fn has_older(procs: &str, started: u64) -> bool {
    let mut all = procs.lines().filter_map(|pid| proc::started(pid.parse().ok()?));
    all.any(|other| other < started)
}

/// A holder that is the kernel itself, or a mount.
pub(super) fn kernel(how: How, hit: Hit, object: JsonPath, source: String) -> Holder {
    Holder {
        file: None,
        nested: None,
        how,
        object,
        count: 1,
        through: hit.through,
        mount: hit.mount,
        explains_ebusy: hit.explains,
        exact: true,
        pid: None,
        started: None,
        comm: None,
        component: None,
        cgroup: None,
        is_child: false,
        container: None,
        pod: None,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_its_first_process() {
        let own = std::process::id();
        let started = proc::started(own);
        assert!(is_child(own, started, "/user.slice/x.scope"), "a user has started it");
        assert!(!is_child(1, proc::started(1), "/"));
        let procs = format!("{own}\n1\n");
        assert!(has_older(&procs, started.unwrap()) && !has_older(&procs, 0));
        assert!(!has_older("", u64::MAX) && !has_older("x\n4294967295\n", u64::MAX));
    }
}
