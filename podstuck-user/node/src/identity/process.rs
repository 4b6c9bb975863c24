//! Identifies processes, also after they have ended: a helper such as `umount` runs for milliseconds.

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

/// Most processes remembered. A running one is read again after it was forgotten.
const REMEMBERED: usize = 8192;
/// Most places remembered: one for each component of the node, and each driver.
const PLACES: usize = 1024;

/// The processes that were seen.
pub struct ActorCache {
    by_pid: Bounded<u32, Known, REMEMBERED>,
    /// The residents of places, noted while they ran.
    places: Bounded<Place, Resident, PLACES>,
    /// The node's own mount namespaces: those of its first process, of this tool and of daemons.
    homes: Bounded<u32, (), PLACES>,
}

struct Known {
    seen: record::Caller,
    who: Who,
}

/// A process, and whether it is, or was when it called, proven to be the node's root.
#[derive(Clone, Debug)]
pub struct Who {
    /// Its name and control group, and the pod and component that follow from them.
    pub actor: Arc<Actor>,
    /// Whether it is proven to be the node's root.
    pub is_root: bool,
}

/// The result of reading a process.
#[derive(Debug)]
pub enum Looked {
    /// It runs.
    Lives(Living),
    /// It has ended.
    HasEnded,
    /// The read took too long, or no file could be opened. On an overloaded node, or one short of descriptors, this can
    /// happen with any process, and the next read has an answer.
    NoAnswer,
}

impl Looked {
    /// Reads a process, given its directory in `/proc`. May block as [`Living::look`] does.
    pub fn at(process: &Path) -> Self {
        match Living::look(process) {
            Some(living) => Self::Lives(living),
            None if process.exists() => Self::NoAnswer,
            None => Self::HasEnded,
        }
    }

    /// The running process, unless its id belongs to another one by now.
    fn living(self, is_same: impl FnOnce(&Living) -> bool) -> Option<Living> {
        if let Self::Lives(living) = self { Some(living).filter(is_same) } else { None }
    }
}

/// Control group (version 2) and mount namespace, as the kernel reports them for each caller.
type Place = (u64, u32);

/// What a process in a place is, by another process in it that was read.
#[derive(Clone, Debug)]
enum Resident {
    /// A daemon of the node.
    OfNode,
    /// The root user of a pod's container, possibly a driver.
    OfPod(Pod),
}

impl Default for ActorCache {
    fn default() -> Self {
        let mut homes = Bounded::default();
        let of =
            |process: &str| proc::mount_namespace(&proc::namespace(Path::new(process), "mnt")?);
        ["/proc/1", "/proc/self"].into_iter().filter_map(of).for_each(|home| {
            homes.insert(home, ());
        });
        Self { by_pid: Bounded::default(), places: Bounded::default(), homes }
    }
}

impl ActorCache {
    /// Describes a process by the probes' data and, if it still runs, by `look`. It is read only when it is first seen,
    /// and again after a read without an answer.
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
                // The credentials at the time of the call count, also if the process has changed them since.
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
            // A pod's process that has entered the node's mounts shares the place with the node's own processes.
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

    /// The control group of a process that has ended is not known, and a container may name a process `kubelet`. The name
    /// is believed if the process was the node's root when it called, where the kernel has reported that, and if a daemon
    /// of the node is in the same place or is its parent. A container has its own mount namespace.
    fn ended(&self, pid: u32, seen: &record::Caller, mut look: impl FnMut(u32) -> Looked) -> Who {
        let mut actor = describe(pid, seen, None);
        let named = actor.component;
        // Without the kernel's type information, the probes report no mount namespace.
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
                        // A child starts in its parent's control group.
                        Component::Workload if actor.pod.is_some() => Component::Workload,
                        Component::Other if beside => Component::Other,
                        of_node if beside && of_node != Component::Workload => named,
                        _ => actor.component,
                    };
                    is_root = parent.is_root && (beside || is_home);
                }
            }
        }
        if let Some(reported) = seen.is_root() {
            is_root = reported;
            if !reported {
                actor.component = Component::Workload;
            }
        }
        Who { actor: actor.into(), is_root }
    }
}

/// Whether a component stays in its place for long: a container's first process is named `runc` for a moment, inside the
/// container.
fn stays(component: Component) -> bool {
    use Component::{CsiDriver, Other, Runc, Workload};
    !matches!(component, Workload | Other | CsiDriver | Runc)
}

/// Whether the running process is, or may be, the caller: unknown where the probes could not read the start time.
fn is_or_may_be(living: &Living, seen: &record::Caller) -> bool {
    seen.started_ns == 0 || living.started == seen.started_ns / clock::tick_ns()
}

/// Whether a parent was started before its child. A process that has the parent's id since then was not.
fn is_older(parent: &Living, seen: &record::Caller) -> bool {
    seen.started_ns == 0 || parent.started <= seen.started_ns / clock::tick_ns()
}

/// Whether both are the same process: by the start time, the mount namespace, which `setns` changes, and the credentials,
/// where they are reported. Without a start time, the parent and the control group decide: a reused process id nearly
/// always has others. The name does not count, since threads of one process may have different names.
fn same_process(known: &record::Caller, seen: &record::Caller) -> bool {
    let is_same = if known.started_ns != 0 && seen.started_ns != 0 {
        same_start(known.started_ns, seen.started_ns)
    } else {
        let parent = known.parent == seen.parent && known.parent_comm == seen.parent_comm;
        parent && known.cgroup == seen.cgroup
    };
    let has_credentials = seen.credentials == 0 || known.credentials == seen.credentials;
    is_same && known.mnt_ns == seen.mnt_ns && has_credentials
}

/// Whether two start times are the same: the probes report nanoseconds, `/proc` only clock ticks.
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
