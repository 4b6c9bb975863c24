//! Who a process is, also after it has ended: a helper such as `umount` lives for milliseconds.

use std::{collections::HashMap, fs, sync::Arc};

use podstuck_common::record;

use super::{
    cgroup::{best_path, pod_of_cgroup},
    component::component,
};
use crate::model::{
    identity::{Actor, Parent, Pod},
    path::safe,
};

/// Processes remembered; the whole memory is dropped when it is full, which costs a few reads.
const REMEMBERED: usize = 8192;

/// Processes seen.
#[derive(Default)]
pub struct ActorCache {
    by_pid: HashMap<u32, (record::Actor, Arc<Actor>)>,
}

impl ActorCache {
    /// Describes a process by what the probes saw and what `/proc` still says. Reads `/proc` only,
    /// and only at the first sight of a process.
    pub fn resolve(&mut self, pid: u32, seen: &record::Actor) -> Arc<Actor> {
        if let Some((then, actor)) = self.by_pid.get(&pid)
            && same_process(then, seen)
        {
            return actor.clone();
        }
        let cgroup = fs::read(format!("/proc/{pid}/cgroup")).ok();
        let cgroup = cgroup.and_then(|contents| best_path(&contents));
        let actor = Arc::new(describe(pid, seen, cgroup));
        if self.by_pid.len() >= REMEMBERED {
            self.by_pid.clear();
        }
        self.by_pid.insert(pid, (*seen, actor.clone()));
        actor
    }
}

/// Threads of one process may have names of their own, so the name does not count; a process id
/// that was given again nearly always has another parent or control group.
fn same_process(a: &record::Actor, b: &record::Actor) -> bool {
    let parent = a.parent == b.parent && a.parent_comm == b.parent_comm;
    parent && a.cgroup == b.cgroup && a.mnt_ns == b.mnt_ns
}

fn describe(pid: u32, seen: &record::Actor, cgroup: Option<String>) -> Actor {
    let comm = until_nul(&seen.comm);
    let pod = cgroup.as_deref().and_then(pod_of_cgroup);
    let parent = (seen.parent != 0).then(|| Parent {
        pid: seen.parent,
        comm: safe(until_nul(&seen.parent_comm)).into_owned(),
    });
    Actor {
        pid,
        comm: safe(comm).into_owned(),
        component: component(comm, cgroup.as_deref()),
        pod: pod.map(|(uid, _)| Pod { uid, namespace: None, name: None }),
        cgroup,
        parent,
    }
}

fn until_nul(comm: &[u8; 16]) -> &[u8] {
    comm.split(|b| *b == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Component;

    fn seen(comm: &[u8], parent: u32) -> record::Actor {
        let mut actor = record::Actor { parent, ..record::Actor::default() };
        actor.comm[..comm.len()].copy_from_slice(comm);
        actor.parent_comm[..4].copy_from_slice(b"init");
        actor
    }

    #[test]
    fn a_process_that_has_ended_keeps_what_the_probes_saw() {
        let mut cache = ActorCache::default();
        let gone = u32::MAX >> 1;
        let actor = cache.resolve(gone, &seen(b"umount", 7));
        assert_eq!((actor.comm.as_str(), actor.component), ("umount", Component::UmountHelper));
        assert_eq!(actor.parent.as_ref().map(|p| p.comm.as_str()), Some("init"));
        let reused = cache.resolve(gone, &seen(b"kubelet", 8));
        assert_eq!(reused.component, Component::Kubelet);
    }

    #[test]
    fn a_container_that_calls_itself_kubelet_is_none() {
        let group = "/kubepods/burstable/pod0f0e0d0c-1111-2222-3333-444455556666/abc";
        let actor = describe(1, &seen(b"kubelet", 1), Some(group.into()));
        assert_eq!(actor.component, Component::Workload);
        assert!(actor.pod.is_some());
    }

    #[test]
    fn a_name_with_escape_codes_is_harmless() {
        let actor = describe(1, &seen(b"\x1b[2Jx", 1), None);
        assert_eq!(actor.comm, r"\x1b[2Jx");
    }

    #[test]
    fn own_process_is_read_from_proc() {
        let actor = ActorCache::default().resolve(std::process::id(), &seen(b"test", 1));
        assert!(actor.cgroup.is_some());
    }
}
