//! The table of calls under way, and entries in it that nobody will remove.
//!
//! A return that the probes missed (see `tables`) leaves an entry behind. The thread's next call
//! replaces it; a thread that ended has no next call.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use podstuck_common::record::InFlight;

use crate::model::time::Monotonic;

/// Younger entries are left alone, so that a thread that is just ending is not judged.
const GRACE: Duration = Duration::from_secs(10);

/// Calls under way.
pub(super) struct InFlightTable(HashMap<MapData, u64, InFlight>);

impl InFlightTable {
    /// Takes the table out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("IN_FLIGHT").context("this build has no map `IN_FLIGHT`")?;
        Ok(Self(HashMap::try_from(map).context("map `IN_FLIGHT`")?))
    }

    /// Removes the entries of threads that have ended; how many there were.
    pub(super) fn sweep(&mut self) -> Result<u64> {
        let now = Monotonic::now();
        let entries: Vec<(u64, InFlight)> = self.0.iter().filter_map(|e| e.ok()).collect();
        let mut removed = 0;
        for (thread, entry) in entries {
            if now.since(Monotonic(entry.start_ns)) > GRACE && !lives(thread) {
                self.0.remove(&thread).context("removing the entry of a thread that has ended")?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Whether a thread, as `pid_tgid`, still exists.
fn lives(thread: u64) -> bool {
    let (pid, tid) = (thread >> 32, thread & 0xffff_ffff);
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}
