//! Running daemons of the node, and how far each is believed.

use std::{collections::BTreeMap, path::Path};

use super::{
    component::by_name,
    distribution::K0S,
    roots::is_kubelets,
    trust::{Belief, Standing, raise_the_only_one},
};
use podstuck_confine::proc::{comm, processes_in};
use podstuck_model::identity::Component;

/// The daemons. Those in a pod are another node's, or call themselves so, as anybody may.
const RUNTIMES: [&[u8]; 3] = [b"containerd", b"dockerd", b"crio"];

/// Their names begin so: containerd's shims, and the monitor of CRI-O and Podman.
const SHIMS: [&[u8]; 2] = [b"containerd-shim", b"conmon"];

/// Daemons of the node that run. Of each kind, those that are believed more come first, and then those of lower ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    /// kubelets, and programs that contain one.
    pub kubelets: Vec<u32>,
    /// Programs that start a kubelet, and say where it is.
    pub(crate) supervisors: Vec<u32>,
    /// Runtimes, and which they are.
    pub runtimes: Vec<(u32, Component)>,
    /// Processes that are called like a shim, or a monitor. Nothing else is known of them.
    pub shims: Vec<u32>,
    /// How far each of the others is believed.
    pub standings: BTreeMap<u32, Standing>,
    /// Processes that have only the name of one of the others, and why.
    pub disbelieved: Vec<(u32, String)>,
}

impl Daemons {
    /// How far a daemon is believed; the lower grade where it is none of these.
    pub fn belief(&self, pid: u32) -> Belief {
        self.standings.get(&pid).map_or(Belief::Administrator, |standing| standing.belief)
    }
}

/// All of them. Their names are read first: few processes have one of these, and nothing else needs to be read of the
/// others.
pub fn running_daemons(proc: &Path) -> Daemons {
    let mut found = Daemons::default();
    for pid in processes_in(proc) {
        let process = proc.join(pid.to_string());
        let comm = comm(&process);
        if SHIMS.iter().any(|name| comm.starts_with(name)) {
            found.shims.push(pid);
        }
        let (is_kubelet, is_runtime) = (is_kubelets(&comm), RUNTIMES.contains(&comm.as_slice()));
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
            found.runtimes.push((pid, by_name(&comm)));
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
