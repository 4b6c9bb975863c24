//! Who a process is, also after it has ended: a helper such as `umount` lives for milliseconds.

use std::{path::Path, sync::Arc};

use podstuck_common::record;
use podstuck_model::bounded::Bounded;

use super::{
    cgroup::pod_of_cgroup,
    component::{by_name, component},
    living::Living,
};
use podstuck_confine::{clock, proc};
use podstuck_model::{
    identity::{Actor, Component, Parent, Pod},
    path::safe,
};

/// Processes remembered. One that still lives is read again when it was forgotten.
const REMEMBERED: usize = 8192;
/// Places remembered. There are as many as components of the node, and drivers.
const PLACES: usize = 1024;

/// Processes seen.
pub struct ActorCache {
    by_pid: Bounded<u32, Known>,
    /// Who was where while he lived.
    places: Bounded<Place, Resident>,
    /// Mount namespaces of the node's own: that of its first process, the tool's, and those of daemons.
    homes: Bounded<u32, ()>,
}

struct Known {
    seen: record::Caller,
    who: Who,
}

/// A process, and whether it is proven to be the node's root, or was when it called.
#[derive(Clone, Debug)]
pub struct Who {
    /// Its name, its group, and the pod and the part that follow from them.
    pub actor: Arc<Actor>,
    /// Whether it is proven to be the node's root.
    pub is_root: bool,
}

/// What a look at a process says.
#[derive(Debug)]
pub enum Looked {
    /// It lives, and this is known of it.
    Lives(Living),
    /// It has ended.
    HasEnded,
    /// It took too long, or nothing could be opened. On a node that is short of time or of descriptors that may
    /// happen with anybody, and the next look has an answer.
    NoAnswer,
}

impl Looked {
    /// Looks at a process, given its directory. May wait as [`Living::look`] does.
    pub fn at(process: &Path) -> Self {
        match Living::look(process) {
            Some(living) => Self::Lives(living),
            None if process.exists() => Self::NoAnswer,
            None => Self::HasEnded,
        }
    }

    /// Whoever lives, unless another process has his id by now.
    fn living(self, is_him: impl FnOnce(&Living) -> bool) -> Option<Living> {
        if let Self::Lives(living) = self { Some(living).filter(is_him) } else { None }
    }
}

/// Control group (version 2) and mount namespace, as the kernel tells them of each caller.
type Place = (u64, u32);

/// Whoever is in a place beside somebody who was looked at.
#[derive(Clone, Debug)]
enum Resident {
    /// A daemon of the node.
    OfNode,
    /// The root of a pod's container: a driver, maybe.
    OfPod(Pod),
}

impl Default for ActorCache {
    fn default() -> Self {
        let mut homes = Bounded::new(PLACES);
        let of =
            |process: &str| proc::mount_namespace(&proc::namespace(Path::new(process), "mnt")?);
        ["/proc/1", "/proc/self"].into_iter().filter_map(of).for_each(|home| {
            homes.insert(home, ());
        });
        Self { by_pid: Bounded::new(REMEMBERED), places: Bounded::new(PLACES), homes }
    }
}

impl ActorCache {
    /// Describes a process by what the probes saw and what a look at it says, if it still lives. It is
    /// looked at only at its first sight, and again after a look without an answer.
    pub fn resolve(
        &mut self,
        pid: u32,
        seen: &record::Caller,
        mut look: impl FnMut(u32) -> Looked,
    ) -> Who {
        if let Some(known) = self.by_pid.get_mut(&pid)
            && same_process(&known.seen, seen)
        {
            return known.who.clone();
        }
        let mut is_answered = true;
        let mut look = |pid| {
            let looked = look(pid);
            is_answered &= !matches!(looked, Looked::NoAnswer);
            looked
        };
        let who = match look(pid).living(|living| is_or_may_be(living, seen)) {
            Some(living) => {
                // Who has other credentials since has called with those.
                let is_root = seen.is_root().unwrap_or(living.is_root);
                self.alive(pid, seen, Living { is_root, ..living })
            }
            None => self.ended(pid, seen, look),
        };
        if is_answered {
            self.by_pid.insert(pid, Known { seen: *seen, who: who.clone() });
        }
        who
    }

    /// How many were forgotten because there were too many.
    pub fn dropped(&self) -> u64 {
        self.by_pid.dropped() + self.places.dropped() + self.homes.dropped()
    }

    fn alive(&mut self, pid: u32, seen: &record::Caller, living: Living) -> Who {
        let is_root = living.is_root;
        let actor = describe(pid, seen, Some(living));
        let place = (seen.cgroup, seen.mnt_ns);
        match &actor.pod {
            // Who has entered the node's mounts from a pod is there beside the node's own.
            Some(pod) if is_root && !self.homes.contains(&seen.mnt_ns) => {
                self.places.insert(place, Resident::OfPod(pod.clone()));
            }
            None if stays(actor.component) => {
                self.places.insert(place, Resident::OfNode);
                self.homes.insert(seen.mnt_ns, ());
            }
            _ => {}
        }
        Who { actor: actor.into(), is_root }
    }

    /// Of a process that has ended nobody can say any more in which control group it was, and a container may call a
    /// process `kubelet`. Its name is believed if it was the node's root when it called, as far as the kernel has
    /// told, and was where a daemon of the node is, or its parent is one; a container has a mount namespace of its
    /// own.
    fn ended(&self, pid: u32, seen: &record::Caller, mut look: impl FnMut(u32) -> Looked) -> Who {
        let mut actor = describe(pid, seen, None);
        let named = actor.component;
        // Without the kernel's types, nothing is told of anybody.
        let is_home = seen.mnt_ns == 0 || self.homes.contains(&seen.mnt_ns);
        actor.component = if is_home { Component::Other } else { Component::Workload };
        let mut is_root = is_home;
        match self.places.get(&(seen.cgroup, seen.mnt_ns)) {
            Some(Resident::OfNode) => actor.component = named,
            Some(Resident::OfPod(pod)) => {
                (actor.component, actor.pod) = (Component::Workload, Some(pod.clone()));
                is_root = true;
            }
            None => {
                if let Some(parent) = look(seen.parent).living(|parent| is_older(parent, seen)) {
                    let of_parent = parent.component();
                    let beside = parent.mnt_ns == seen.mnt_ns;
                    actor.pod = pod_of(&parent.cgroup);
                    actor.component = match of_parent {
                        // Who is started in a pod's control group stays in it.
                        Component::Workload if actor.pod.is_some() => Component::Workload,
                        Component::Other if beside => Component::Other,
                        of_node if beside && of_node != Component::Workload => named,
                        _ => actor.component,
                    };
                    is_root = parent.is_root && (beside || is_home);
                }
            }
        }
        if let Some(told) = seen.is_root() {
            is_root = told;
            if !told {
                actor.component = Component::Workload;
            }
        }
        Who { actor: actor.into(), is_root }
    }
}

/// Components that are there for long, where they are: a container's first process is called `runc` for a
/// moment, in the container.
fn stays(component: Component) -> bool {
    use Component::{CsiDriver, Other, Runc, Workload};
    !matches!(component, Workload | Other | CsiDriver | Runc)
}

/// Whether who lives is who called. Nobody can tell where the probes could not read a start.
fn is_or_may_be(living: &Living, seen: &record::Caller) -> bool {
    seen.started_ns == 0 || living.started == seen.started_ns / clock::tick_ns()
}

/// A parent was there before its child. Who has its id since it has ended was not.
fn is_older(parent: &Living, seen: &record::Caller) -> bool {
    seen.started_ns == 0 || parent.started <= seen.started_ns / clock::tick_ns()
}

/// Whether what is known of one holds for the other: by the start, by the mount namespace, which `setns` changes, and
/// by the credentials, where they are told. Where the probes could not read the start: threads of one process may have
/// names of their own, so the name does not count; a process id that was given again nearly always has another parent
/// or control group.
fn same_process(known: &record::Caller, seen: &record::Caller) -> bool {
    let is_same = if known.started_ns != 0 && seen.started_ns != 0 {
        same_start(known.started_ns, seen.started_ns)
    } else {
        let parent = known.parent == seen.parent && known.parent_comm == seen.parent_comm;
        parent && known.cgroup == seen.cgroup
    };
    let is_told = seen.credentials == 0 || known.credentials == seen.credentials;
    is_same && known.mnt_ns == seen.mnt_ns && is_told
}

/// The probes tell a start exactly, `/proc` in ticks only.
fn same_start(a: u64, b: u64) -> bool {
    let tick = clock::tick_ns();
    let in_ticks = a.is_multiple_of(tick) || b.is_multiple_of(tick);
    a == b || (in_ticks && a / tick == b / tick)
}

fn describe(pid: u32, seen: &record::Caller, living: Option<Living>) -> Actor {
    let comm = until_nul(&seen.comm);
    let parent = (seen.parent != 0).then(|| Parent {
        pid: seen.parent,
        comm: safe(until_nul(&seen.parent_comm)).into_owned(),
    });
    let component = match &living {
        Some(living) => component(comm, &living.cgroup, living.is_root),
        None => by_name(comm),
    };
    let cgroup = living.map(|living| living.cgroup);
    Actor {
        pid,
        started: (seen.started_ns != 0).then(|| seen.started_ns / clock::tick_ns()),
        comm: safe(comm).into_owned(),
        component,
        pod: cgroup.as_deref().and_then(pod_of),
        cgroup,
        parent,
    }
}

fn pod_of(cgroup: &str) -> Option<Pod> {
    pod_of_cgroup(cgroup).map(|(uid, _)| Pod { uid, namespace: None, name: None })
}

fn until_nul(comm: &[u8; 16]) -> &[u8] {
    comm.split(|b| *b == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
