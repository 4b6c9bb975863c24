//! Running container runtimes.

use std::path::Path;

use super::{
    component::by_name,
    distribution::K0S,
    roots::{is_kubelets, is_of_node},
};
use crate::{
    model::identity::Component,
    proc::{comm, processes_in},
};

/// The daemons. Those in a pod are another node's, or call themselves so, as anybody may.
const RUNTIMES: [&[u8]; 3] = [b"containerd", b"dockerd", b"crio"];

/// Their names begin so: containerd's shims, and the monitor of CRI-O and Podman.
const SHIMS: [&[u8]; 2] = [b"containerd-shim", b"conmon"];

/// Daemons of the node that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Daemons {
    /// kubelets, and programs that contain one.
    pub(crate) kubelets: Vec<u32>,
    /// Programs that start a kubelet, and say where it is.
    pub(crate) supervisors: Vec<u32>,
    /// Runtimes, and which they are.
    pub(crate) runtimes: Vec<(u32, Component)>,
    /// Processes that are called like a shim, or a monitor. Nothing else is known of them.
    pub(crate) shims: Vec<u32>,
}

/// All of them, ascending. Their names are read first: few processes have one of these, and nothing else needs
/// to be read of the others.
pub(crate) fn running_daemons(proc: &Path) -> Daemons {
    let mut found = Daemons::default();
    for pid in processes_in(proc) {
        let process = proc.join(pid.to_string());
        let comm = comm(&process);
        if SHIMS.iter().any(|name| comm.starts_with(name)) {
            found.shims.push(pid);
        }
        let (is_kubelet, is_runtime) = (is_kubelets(&comm), RUNTIMES.contains(&comm.as_slice()));
        let is_supervisor = comm == K0S;
        if (is_kubelet || is_runtime || is_supervisor) && is_of_node(&process) {
            if is_supervisor {
                found.supervisors.push(pid);
            } else if is_kubelet {
                found.kubelets.push(pid);
            } else {
                found.runtimes.push((pid, by_name(&comm)));
            }
        }
    }
    found
}
