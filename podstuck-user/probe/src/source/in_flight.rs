//! The table of calls in flight, and its abandoned entries.
//!
//! A return that the probes missed (see `tables`) leaves an entry behind. The thread's next call
//! replaces it; a thread that ended has no next call.

use std::time::Duration;

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use podstuck_common::in_flight::{IN_FLIGHT_SLOTS, IO_URING_NAME, InFlight};

use super::{failures::Failures, slots::Slots};
use podstuck_confine::proc;
use podstuck_model::time::Monotonic;

/// Calls in flight: by slot, and those whose slot is taken by another thread.
pub(super) struct InFlightTable {
    slots: Slots,
    beside: HashMap<MapData, u64, InFlight>,
    /// The names in requests of io_uring.
    names: HashMap<MapData, u64, [u8; IO_URING_NAME]>,
}

impl InFlightTable {
    /// Takes the tables out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let mut map = |name: &str| {
            ebpf.take_map(name).with_context(|| format!("this build has no map `{name}`"))
        };
        let slots = Slots::map(map("IN_FLIGHT")?, IN_FLIGHT_SLOTS as usize);
        let slots = slots.context("map `IN_FLIGHT`")?;
        let beside =
            HashMap::try_from(map("IN_FLIGHT_BESIDE")?).context("map `IN_FLIGHT_BESIDE`")?;
        let names = HashMap::try_from(map("NAMES")?).context("map `NAMES`")?;
        Ok(Self { slots, beside, names })
    }

    /// The calls that were entered longer ago than this.
    pub(super) fn older_than(&self, threshold: Duration) -> Vec<InFlight> {
        let now = podstuck_confine::clock::now();
        let is_old = |entry: &InFlight| now.since(Monotonic(entry.start_ns)) >= threshold;
        let slots = self.slots.all().iter().filter_map(|slot| slot.call());
        let beside = self.beside.iter().filter_map(|entry| Some(entry.ok()?.1));
        slots.chain(beside).filter(is_old).collect()
    }

    /// Removes the entries of threads that have ended; returns how many.
    pub(super) fn remove_abandoned(&mut self, failed: &mut Failures) -> u64 {
        const REMOVING: &str = "removing the entry of a thread that has ended";
        // A thread returns from its calls before it ends, so an entry that is still its own then stays.
        let over = |entry: &InFlight| !lives(entry.thread);
        let mut removed = 0;
        for slot in self.slots.all() {
            let thread = slot.call().filter(over).map(|entry| entry.thread);
            removed += u64::from(thread.is_some_and(|thread| slot.take_from(thread)));
        }
        let beside: Vec<InFlight> =
            self.beside.iter().filter_map(|entry| Some(entry.ok()?.1)).collect();
        for entry in beside.iter().filter(|entry| over(entry)) {
            let gone = failed.note(REMOVING, self.beside.remove(&entry.thread));
            removed += u64::from(gone.is_some());
        }
        // They belong to an entry, which was counted.
        let named: Vec<u64> =
            self.names.keys().flatten().filter(|thread| !lives(*thread)).collect();
        for thread in named {
            // It may be gone already.
            let _ = self.names.remove(&thread);
        }
        removed
    }
}

/// Whether a thread, as `pid_tgid`, still exists.
fn lives(thread: u64) -> bool {
    proc::exists((thread >> 32) as u32, thread as u32)
}
