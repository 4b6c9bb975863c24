//! Running container runtimes.

use std::path::Path;

use super::{component::component, roots::in_pod};
use crate::{
    model::identity::Component,
    proc::{comm, processes_in},
};

/// The daemons. Those in a container are another node's, or call themselves so.
const RUNTIMES: [&[u8]; 3] = [b"containerd", b"dockerd", b"crio"];

/// Running daemons, and which they are.
pub(crate) fn running_runtimes(proc: &Path) -> Vec<(u32, Component)> {
    let daemons = processes_in(proc).into_iter().filter_map(|pid| {
        let process = proc.join(pid.to_string());
        let comm = comm(&process);
        let is_one = RUNTIMES.contains(&comm.as_slice()) && !in_pod(&process);
        is_one.then(|| (pid, component(&comm, None)))
    });
    daemons.collect()
}
