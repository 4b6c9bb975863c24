//! Running container runtimes.

use std::path::Path;

use super::{component::by_name, roots::is_of_node};
use crate::{
    model::identity::Component,
    proc::{comm, processes_in},
};

/// The daemons. Those in a pod are another node's, or call themselves so, as anybody may.
const RUNTIMES: [&[u8]; 3] = [b"containerd", b"dockerd", b"crio"];

/// Running daemons, and which they are.
pub(crate) fn running_runtimes(proc: &Path) -> Vec<(u32, Component)> {
    let daemons = processes_in(proc).into_iter().filter_map(|pid| {
        let process = proc.join(pid.to_string());
        let comm = comm(&process);
        let is_one = RUNTIMES.contains(&comm.as_slice()) && is_of_node(&process);
        is_one.then(|| (pid, by_name(&comm)))
    });
    daemons.collect()
}
