//! Who a process is: name, part on the node, container and pod.

use std::path::Path;

use procfs::process::Process;

use crate::identity::{cgroup::pod_of_cgroup, living::Living};
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
    let stat = Process::new(pid.cast_signed()).ok().and_then(|process| process.stat().ok());
    let is_child = stat.is_some_and(|stat| stat.ppid > 1);
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
