//! Reads exact counts from the kernel without losing one.
//!
//! There are two tables. User space tells the probes to write the other one, waits until every program that may still
//! have read the old instruction has ended, and then reads and empties the table that no program writes any more.
//! Programs run inside an RCU read-side section, and `membarrier(MEMBARRIER_CMD_GLOBAL)` returns after a grace period
//! (`synchronize_rcu` in kernel/sched/membarrier.c), so no increment can fall between reading an entry and removing
//! it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{Array, HashMap as BpfHashMap, IterableMap, MapData, MapError},
};
use nix::libc;
use podstuck_common::count::{self, CallTotals, CountKey};

use super::{failures::Failures, shared::Shared, totals::Totals};

/// Replaces the grace period where the kernel does not offer it (`nohz_full`): programs take microseconds, so this is
/// long, but it is a guess and not a proof.
const WITHOUT_MEMBARRIER: Duration = Duration::from_millis(100);

/// A table is emptied before the next drain once one of this number of parts is filled.
const PARTS: u32 = 4;
/// Limit of entries kept in user space until the next drain. Further ones stay in the kernel, which reports when its
/// table is full.
const KEPT: usize = 1 << 16;

type Table = BpfHashMap<MapData, CountKey, CallTotals>;

/// Both tables of counts and the switch between them.
pub(super) struct Counts {
    tables: [Table; 2],
    generation: Array<MapData, u32>,
    written: usize,
    /// A table with more new entries than this is emptied before the next drain.
    many: u64,
    /// Counts taken out of the tables and not yet drained.
    taken: HashMap<CountKey, CallTotals>,
    /// Entries created in total.
    made: Shared<AtomicU64>,
    /// Entries created in total when a table was last emptied.
    made_before: u64,
    /// Where the totals outlive this process.
    kept: Option<Kept>,
}

/// Counts whose totals outlive this process are removed from their table only when the totals include them. Whenever
/// it is killed, each count is in a table or in the totals: what the valid totals include, the next process removes.
struct Kept {
    totals: Totals,
    /// The table that was read last, and its keys, which are to be removed.
    read: Option<(usize, Vec<CountKey>)>,
    /// Whether the reader of the counts has those of that table.
    is_drained: bool,
    /// Whether the totals include them.
    is_saved: bool,
    /// Whether the last drain has begun.
    is_over: bool,
}

impl Kept {
    /// Takes the totals of all counts that were drained.
    fn save(&mut self, text: &[u8], has_more: bool) {
        let table = self.read.as_ref().filter(|_| self.is_drained).map(|(table, _)| *table);
        if self.totals.save(text, table) {
            self.is_saved = self.is_drained;
            if !has_more {
                self.totals.set_unsaved(false);
            }
        }
    }
}

impl Counts {
    /// Takes the tables out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf, is_kept: bool) -> Result<Self> {
        let totals = is_kept.then(|| Totals::take(ebpf)).transpose()?;
        let mut table = |name: &str| -> Result<Table> {
            let map = ebpf.take_map(name).with_context(|| format!("no map `{name}`"))?;
            Table::try_from(map).with_context(|| format!("map `{name}`"))
        };
        let [first, second] = count::TABLES;
        let tables = [table(first)?, table(second)?];
        let entries = tables[0].map().info().context("size of the tables of counts")?.max_entries();
        let map = ebpf.take_map("GENERATION").context("no map `GENERATION`")?;
        let generation: Array<_, u32> = Array::try_from(map)?;
        let written = usize::from(generation.get(&0, 0).context("reading `GENERATION`")? != 0);
        let made = ebpf.take_map("COUNTS_MADE").context("no map `COUNTS_MADE`")?;
        let made = Shared::map(made, 1).context("map `COUNTS_MADE`")?;
        let taken = HashMap::new();
        // What is taken out before the next drain is lost if this process is killed then.
        let parts = if is_kept { 2 } else { PARTS };
        let many = u64::from(entries / parts);
        let mut kept = None;
        if let Some(totals) = totals {
            let table = totals.included().filter(|table| *table == 1 - written);
            let keys = |table: usize| tables[table].keys().collect::<Result<Vec<_>, _>>();
            let read = table.map(|table| Ok::<_, MapError>((table, keys(table)?))).transpose();
            let read = read.context("listing the counts of the process before")?;
            kept = Some(Kept { totals, read, is_drained: true, is_saved: true, is_over: false });
        }
        let mut counts =
            Self { tables, generation, written, many, taken, made, made_before: 0, kept };
        counts.made_before = counts.made();
        Ok(counts)
    }

    /// Whether the counts outlive this process.
    pub(super) const fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// No drain follows the next one.
    pub(super) fn end(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.is_over = true);
    }

    /// Takes the totals of all counts that were drained so far.
    pub(super) fn save(&mut self, totals: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.save(totals, !self.taken.is_empty());
        }
    }

    /// All counts since the last drain. Takes tens of milliseconds, most of it waiting. A count that cannot be read
    /// stays in its table, and is read with a later drain.
    pub(super) fn drain(&mut self, failed: &mut Failures) -> Vec<(CountKey, CallTotals)> {
        self.empty(failed);
        if let Some(kept) = &mut self.kept {
            kept.is_drained = true;
        }
        // Returns the memory of a large table.
        std::mem::take(&mut self.taken).into_iter().collect()
    }

    /// Whether the table that is written now is filling up. If the counts outlive this process, those
    /// after the last drain stay in the table.
    pub(super) fn fills(&self) -> bool {
        !self.kept.as_ref().is_some_and(|kept| kept.is_over)
            && self.made().saturating_sub(self.made_before) > self.many
            && self.taken.len() < KEPT
    }

    /// Whether the table that is written now is nearly empty.
    pub(super) fn is_at_rest(&self) -> bool {
        self.made().saturating_sub(self.made_before) < self.many / 8
    }

    fn made(&self) -> u64 {
        self.made.all().iter().map(|made| made.load(Ordering::Relaxed)).sum()
    }

    /// Moves the counts from the tables to user space.
    pub(super) fn empty(&mut self, failed: &mut Failures) {
        self.made_before = self.made();
        self.remove_read(failed);
        let (full, other) = (self.written, 1 - self.written);
        let switched = self.generation.set(0, other as u32, 0);
        if failed.note("switching to the other table of counts", switched).is_none() {
            return;
        }
        self.written = other;
        wait_for_programs();
        let table = &mut self.tables[full];
        // Keys first: removing while iterating restarts the kernel's iteration, which ends at an error.
        let keys: Vec<CountKey> =
            table.keys().map_while(|key| failed.note("listing counts", key)).collect();
        if let Some(kept) = &mut self.kept {
            for key in &keys {
                if let Some(part) = failed.note("reading a count", table.get(key, 0)) {
                    self.taken.entry(key.in_lane(0)).or_default().merge(&part);
                }
            }
            (kept.is_drained, kept.is_saved) = (false, keys.is_empty());
            kept.read = Some((full, keys));
            return;
        }
        for key in keys {
            let Some(part) = failed.note("reading a count", table.get(&key, 0)) else { continue };
            // Otherwise it would be counted twice.
            if failed.note("removing a count that was read", table.remove(&key)).is_some() {
                self.taken.entry(key.in_lane(0)).or_default().merge(&part);
            }
        }
    }
}

impl Counts {
    /// Removes what was read before from its table, which is the one to be written next.
    fn remove_read(&mut self, failed: &mut Failures) {
        let Some(kept) = &mut self.kept else { return };
        let Some((table, keys)) = kept.read.take() else { return };
        if !kept.is_saved {
            kept.totals.set_unsaved(true);
        }
        for key in keys {
            failed.note("removing a count that was read", self.tables[table].remove(&key));
        }
    }
}

fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes three integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result != 0 {
        thread::sleep(WITHOUT_MEMBARRIER);
    }
}
