//! Who a process is: name, part on the node, container and pod.

use std::{fs, path::Path};

use crate::{
    identity::{
        cgroup::{best_path, pod_of_cgroup},
        component::component,
    },
    model::{
        holder::{Holder, How},
        identity::Pod,
        path::{JsonPath, safe},
    },
    proc,
};

use super::relation::Hit;

/// A holder that is a process, with everything that `/proc` says about it. `count` objects of this
/// kind are held, one of them `object`.
pub(super) fn process(pid: u32, how: How, hit: Hit, object: JsonPath, source: String) -> Holder {
    let comm = proc::comm(Path::new(&format!("/proc/{pid}")));
    let cgroup = fs::read(format!("/proc/{pid}/cgroup")).ok();
    let cgroup = cgroup.and_then(|contents| best_path(&contents));
    let (uid, container) = cgroup.as_deref().and_then(pod_of_cgroup).unzip();
    Holder {
        file: None,
        nested: None,
        pid: Some(pid),
        started: proc::started(pid),
        comm: (!comm.is_empty()).then(|| safe(&comm).into_owned()),
        component: Some(component(&comm, cgroup.as_deref())),
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
        container: None,
        pod: None,
        source,
    }
}
