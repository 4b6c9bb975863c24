//! Targets whose path the probes have sent: each is sent once.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};

/// The probes' table of them.
pub(super) struct Announced(HashMap<MapData, u64, u8>);

impl Announced {
    /// Takes the table out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("ANNOUNCED").context("this build has no map `ANNOUNCED`")?;
        Ok(Self(HashMap::try_from(map).context("map `ANNOUNCED`")?))
    }

    /// Makes the probes send these targets again, at their next call.
    pub(super) fn forget(&mut self, targets: &[u64]) {
        for target in targets {
            // The probes forget, too: the entry may be gone already.
            let _ = self.0.remove(target);
        }
    }
}
