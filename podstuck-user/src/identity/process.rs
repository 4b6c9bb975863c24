//! Who a process is, also after it has ended: a helper such as `umount` lives for milliseconds.

use std::{fs, os::linux::fs::MetadataExt, path::Path, sync::Arc};

use podstuck_common::record;
use podstuck_engine::bounded::Bounded;

use super::{
    cgroup::{best_path, pod_of_cgroup},
    component::component,
};
use crate::{
    clock,
    model::{
        identity::{Actor, Component, Parent, Pod},
        path::safe,
    },
    proc::comm,
};

/// Processes remembered. One that still lives is read again when it was forgotten.
const REMEMBERED: usize = 8192;
/// Places of the node's components remembered. There are as many as components.
const PLACES: usize = 256;

/// Processes seen.
pub(crate) struct ActorCache {
    by_pid: Bounded<u32, Known>,
    /// Where components of the node were while they lived.
    places: Bounded<Place, ()>,
}

impl Default for ActorCache {
    fn default() -> Self {
        Self { by_pid: Bounded::new(REMEMBERED), places: Bounded::new(PLACES) }
    }
}

struct Known {
    seen: record::Caller,
    actor: Arc<Actor>,
}

/// Control group (version 2) and mount namespace.
type Place = (u64, u32);

impl ActorCache {
    /// Describes a process by what the probes saw and what `/proc` still says. Reads `/proc` only,
    /// and only at the first sight of a process.
    pub(crate) fn resolve(&mut self, pid: u32, seen: &record::Caller) -> Arc<Actor> {
        if let Some(known) = self.by_pid.get_mut(&pid)
            && same_process(&known.seen, seen)
        {
            return known.actor.clone();
        }
        let actor = Arc::new(match cgroup_of(pid) {
            Some(cgroup) => self.alive(pid, seen, cgroup),
            None => self.ended(pid, seen),
        });
        self.by_pid.insert(pid, Known { seen: *seen, actor: actor.clone() });
        actor
    }

    /// How many were forgotten because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.by_pid.dropped() + self.places.dropped()
    }

    fn alive(&mut self, pid: u32, seen: &record::Caller, cgroup: String) -> Actor {
        let actor = describe(pid, seen, Some(cgroup));
        if is_of_the_node(actor.component) {
            self.places.insert((seen.cgroup, seen.mnt_ns), ());
        }
        actor
    }

    /// Of a process that has ended nobody can say any more whether it was in a container, and a
    /// container may call a process `kubelet`. Its name is believed if it was where the node's
    /// components are; a container has a mount namespace of its own.
    fn ended(&self, pid: u32, seen: &record::Caller) -> Actor {
        let mut actor = describe(pid, seen, None);
        if self.places.contains(&(seen.cgroup, seen.mnt_ns)) {
            return actor;
        }
        let Some(parent) = Living::of(seen.parent) else {
            actor.component = Component::Other;
            return actor;
        };
        if parent.component == Component::Workload {
            // Who is started in a pod's control group stays in it.
            actor.component = Component::Workload;
            actor.pod = parent.pod;
        } else if parent.mnt_ns != seen.mnt_ns || parent.component == Component::Other {
            actor.component = Component::Other;
        }
        actor
    }
}

/// A parent that still lives, by what `/proc` says.
struct Living {
    component: Component,
    pod: Option<Pod>,
    mnt_ns: u32,
}

impl Living {
    fn of(pid: u32) -> Option<Self> {
        let cgroup = cgroup_of(pid)?;
        // Answered by nsfs; it reaches no other file system.
        let namespace = fs::metadata(format!("/proc/{pid}/ns/mnt")).ok()?;
        let pod = pod_of_cgroup(&cgroup).map(|(uid, _)| Pod { uid, namespace: None, name: None });
        Some(Self {
            component: component(&comm(Path::new(&format!("/proc/{pid}"))), Some(&cgroup)),
            pod,
            mnt_ns: u32::try_from(namespace.st_ino()).ok()?,
        })
    }
}

fn cgroup_of(pid: u32) -> Option<String> {
    best_path(&fs::read(format!("/proc/{pid}/cgroup")).ok()?)
}

fn is_of_the_node(component: Component) -> bool {
    !matches!(component, Component::Workload | Component::Other | Component::CsiDriver)
}

/// By the start, which `/proc` tells in ticks only. Where the probes could not read it: threads of one
/// process may have names of their own, so the name does not count; a process id that was given again
/// nearly always has another parent or control group.
fn same_process(a: &record::Caller, b: &record::Caller) -> bool {
    if a.started_ns != 0 && b.started_ns != 0 {
        let tick = clock::tick_ns();
        return a.started_ns / tick == b.started_ns / tick;
    }
    let parent = a.parent == b.parent && a.parent_comm == b.parent_comm;
    parent && a.cgroup == b.cgroup && a.mnt_ns == b.mnt_ns
}

fn describe(pid: u32, seen: &record::Caller, cgroup: Option<String>) -> Actor {
    let comm = until_nul(&seen.comm);
    let pod = cgroup.as_deref().and_then(pod_of_cgroup);
    let parent = (seen.parent != 0).then(|| Parent {
        pid: seen.parent,
        comm: safe(until_nul(&seen.parent_comm)).into_owned(),
    });
    Actor {
        pid,
        started: (seen.started_ns != 0).then(|| seen.started_ns / clock::tick_ns()),
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

    /// No process has this id.
    const GONE: u32 = u32::MAX >> 1;

    fn seen(comm: &[u8], parent: u32) -> record::Caller {
        let mut actor = record::Caller { parent, ..record::Caller::default() };
        actor.comm[..comm.len()].copy_from_slice(comm);
        actor.parent_comm[..4].copy_from_slice(b"init");
        actor
    }

    #[test]
    fn a_process_that_has_ended_keeps_what_the_probes_saw() {
        let mut cache = ActorCache::default();
        let actor = cache.resolve(GONE, &seen(b"umount", GONE));
        assert_eq!(actor.comm, "umount");
        assert_eq!(actor.parent.as_ref().map(|p| p.comm.as_str()), Some("init"));
        let reused = cache.resolve(GONE, &seen(b"rm", GONE - 1));
        assert_eq!(reused.comm, "rm");
    }

    #[test]
    fn a_name_alone_proves_nothing_of_a_process_that_has_ended() {
        let mut cache = ActorCache::default();
        let component = |cache: &mut ActorCache, seen: &record::Caller| {
            cache.by_pid.retain(|_, _| false);
            cache.resolve(GONE, seen).component
        };
        let ended = seen(b"kubelet", GONE);
        assert_eq!(component(&mut cache, &ended), Component::Other);
        // A parent that is nothing in particular.
        assert_eq!(component(&mut cache, &seen(b"umount", std::process::id())), Component::Other);
        cache.places.insert((0, 0), ());
        assert_eq!(component(&mut cache, &ended), Component::Kubelet);
        let in_a_container = record::Caller { mnt_ns: 4, ..ended };
        assert_eq!(component(&mut cache, &in_a_container), Component::Other);
    }

    #[test]
    fn a_component_that_lives_vouches_for_who_is_beside_it() {
        let mut cache = ActorCache::default();
        let kubelet = record::Caller { cgroup: 9, mnt_ns: 4, ..seen(b"kubelet", 1) };
        assert_eq!(cache.resolve(std::process::id(), &kubelet).component, Component::Kubelet);
        let umount = record::Caller { cgroup: 9, mnt_ns: 4, ..seen(b"umount", GONE) };
        assert_eq!(cache.resolve(GONE, &umount).component, Component::UmountHelper);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut cache = ActorCache::default();
        let count = u32::try_from(REMEMBERED).unwrap();
        for n in 0..=count {
            cache.resolve(GONE - n, &seen(b"rm", GONE));
        }
        assert_eq!((cache.by_pid.len(), cache.dropped()), (REMEMBERED, 1));
        assert!(!cache.by_pid.contains(&GONE) && cache.by_pid.contains(&(GONE - 1)));
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
