//! Processes that made counted calls, as the probes saw them: they may have ended by now.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use podstuck_common::record::{Caller, Process};

/// The probes' table of processes.
pub(super) struct Actors(HashMap<MapData, Process, Caller>);

impl Actors {
    /// Takes the table out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("ACTORS").context("this build has no map `ACTORS`")?;
        Ok(Self(HashMap::try_from(map).context("map `ACTORS`")?))
    }

    /// A process; `None` when the table has forgotten it.
    pub(super) fn get(&self, process: Process) -> Option<Caller> {
        self.0.get(&process, 0).ok()
    }
}
