//! The table of calls under way, and entries in it that nobody will remove.
//!
//! A return that the probes missed (see `tables`) leaves an entry behind. The thread's next call
//! replaces it; a thread that ended has no next call.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData},
};
use podstuck_common::record::{IN_FLIGHT_SLOTS, InFlight};

use super::failures::Failures;
use crate::model::time::Monotonic;

const READING: &str = "reading a call in flight";
/// Younger entries are left alone, so that a thread that is just ending is not judged.
const GRACE: Duration = Duration::from_secs(10);

/// Calls under way: by slot, and those whose slot another thread is in.
pub(super) struct InFlightTable {
    slots: Array<MapData, InFlight>,
    beside: HashMap<MapData, u64, InFlight>,
}

impl InFlightTable {
    /// Takes the tables out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let mut map = |name: &str| {
            ebpf.take_map(name).with_context(|| format!("this build has no map `{name}`"))
        };
        let slots = Array::try_from(map("IN_FLIGHT")?).context("map `IN_FLIGHT`")?;
        let beside =
            HashMap::try_from(map("IN_FLIGHT_BESIDE")?).context("map `IN_FLIGHT_BESIDE`")?;
        Ok(Self { slots, beside })
    }

    /// The calls that were entered longer ago than this.
    ///
    /// An entry may change while it is read; one whose thread is written is as old as it says,
    /// because the thread is written last.
    pub(super) fn older_than(&self, threshold: Duration, failed: &mut Failures) -> Vec<InFlight> {
        let now = crate::clock::now();
        let is_old = |entry: &InFlight| {
            entry.thread != 0 && now.since(Monotonic(entry.start_ns)) >= threshold
        };
        let mut old = Vec::new();
        for slot in 0..IN_FLIGHT_SLOTS {
            let entry = failed.note(READING, self.slots.get(&slot, 0));
            old.extend(entry.filter(is_old));
        }
        let beside = self.beside.iter().filter_map(|entry| Some(entry.ok()?.1));
        old.extend(beside.filter(is_old));
        old
    }

    /// Removes the entries of threads that have ended; how many there were.
    pub(super) fn remove_abandoned(&mut self, failed: &mut Failures) -> u64 {
        const REMOVING: &str = "removing the entry of a thread that has ended";
        let now = crate::clock::now();
        let over =
            |entry: &InFlight| now.since(Monotonic(entry.start_ns)) > GRACE && !lives(entry.thread);
        let mut removed = 0;
        for slot in 0..IN_FLIGHT_SLOTS {
            let entry = failed.note(READING, self.slots.get(&slot, 0)).unwrap_or_default();
            if entry.thread != 0 && over(&entry) {
                let gone = failed.note(REMOVING, self.slots.set(slot, InFlight::default(), 0));
                removed += u64::from(gone.is_some());
            }
        }
        let beside: Vec<InFlight> =
            self.beside.iter().filter_map(|entry| Some(entry.ok()?.1)).collect();
        for entry in beside.iter().filter(|entry| over(entry)) {
            let gone = failed.note(REMOVING, self.beside.remove(&entry.thread));
            removed += u64::from(gone.is_some());
        }
        removed
    }
}

/// Whether a thread, as `pid_tgid`, still exists.
fn lives(thread: u64) -> bool {
    let (pid, tid) = (thread >> 32, thread & 0xffff_ffff);
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}
