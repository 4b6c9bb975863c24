//! Finds the running daemons of the node, and the trust in each.

use std::{collections::BTreeMap, path::Path};

use super::{
    component::by_name,
    distribution::K0S,
    roots::is_kubelets,
    trust::{Belief, Standing, raise_the_only_one},
};
use podstuck_confine::proc::Names;
use podstuck_model::identity::Component;

/// Names of runtimes. Processes in a pod do not count: they are another node's, or only have the name.
const RUNTIMES: [&[u8]; 3] = [b"containerd", b"dockerd", b"crio"];

/// Prefixes of the names of containerd's shims, and of the monitor of CRI-O and Podman.
const SHIMS: [&[u8]; 2] = [b"containerd-shim", b"conmon"];

/// Running daemons of the node. Of each kind, those with higher trust come first, then those with lower process ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    /// kubelets, and programs that contain one.
    pub kubelets: Vec<u32>,
    /// Programs that start a kubelet; their command lines show its root.
    pub(crate) supervisors: Vec<u32>,
    /// Runtimes, each with its component.
    pub runtimes: Vec<(u32, Component)>,
    /// Processes with the name of a shim or a monitor; only the name was checked.
    pub shims: Vec<u32>,
    /// The trust in each of the others.
    pub standings: BTreeMap<u32, Standing>,
    /// Processes that only have the name of such a daemon, each with the reason.
    pub disbelieved: Vec<(u32, String)>,
}

impl Daemons {
    /// The trust in a daemon; the lower grade where the process is not one of these.
    pub fn belief(&self, pid: u32) -> Belief {
        self.standings.get(&pid).map_or(Belief::Administrator, |standing| standing.belief)
    }
}

/// Finds the daemons. Names are read first: few processes have one of these names, and only those are read further.
pub fn running_daemons(proc: &Path) -> Daemons {
    daemons_among(proc, &mut Names::default())
}

/// The same, with the names of the last look.
pub fn daemons_among(proc: &Path, names: &mut Names) -> Daemons {
    let mut found = Daemons::default();
    for (pid, comm) in names.look(proc) {
        let process = proc.join(pid.to_string());
        if SHIMS.iter().any(|name| comm.starts_with(name)) {
            found.shims.push(pid);
        }
        let (is_kubelet, is_runtime) = (is_kubelets(comm), RUNTIMES.contains(&comm));
        let is_supervisor = comm == K0S;
        if !(is_kubelet || is_runtime || is_supervisor) {
            continue;
        }
        match Standing::of(proc, &process) {
            Ok(standing) => drop(found.standings.insert(pid, standing)),
            Err(why) => {
                found.disbelieved.push((pid, why));
                continue;
            }
        }
        if is_supervisor {
            found.supervisors.push(pid);
        } else if is_kubelet {
            found.kubelets.push(pid);
        } else {
            found.runtimes.push((pid, by_name(comm)));
        }
    }
    found.rank();
    found
}

impl Daemons {
    fn rank(&mut self) {
        let Self { kubelets, supervisors, runtimes, standings, .. } = self;
        raise_the_only_one(kubelets.iter().chain(&*supervisors), standings);
        raise_the_only_one(runtimes.iter().map(|(pid, _)| pid), standings);
        let rank = |pid: &u32| std::cmp::Reverse(standings.get(pid).map(|it| it.belief));
        kubelets.sort_by_key(rank);
        supervisors.sort_by_key(rank);
        runtimes.sort_by_key(|(pid, _)| rank(pid));
    }
}
