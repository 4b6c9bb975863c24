//! The probes of a run, and all data read from them: empty when none can be loaded.

use std::{future::pending, io, os::fd::AsFd, time::Duration};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use podstuck_common::record::loss;
use tokio::sync::oneshot;

use super::{lasting::Lasting, setup};
use crate::model::{degraded::Degraded, summary::SelfCost, totals::Totals};
use podstuck_confine::fork_server::{Held, hold};
use podstuck_node::state::kernel_locks;
use podstuck_probe::{
    kernel::{attach::by_reason, links, load::Probes, locks},
    source::{
        cost::{self, ProgramTimes, Skipped},
        losses::Losses,
        ring::Ring,
        tables::{self, Drained, Tables, Turn},
    },
};

/// The loaded probes, if any.
pub(super) struct Probing(Option<Loaded>);

struct Loaded {
    probes: Probes,
    /// Holds the hooks, too, and ends after the probes: no other process waits for the grace periods.
    _held: Option<Held>,
    ring: Ring,
    tables: Tables,
    measured: Option<ProgramTimes>,
    /// Losses and skips while the probes were attached one after the other are not the run's.
    baseline: Losses,
    skipped: Option<Skipped>,
}

/// Data that the probes missed.
#[derive(Default)]
pub(super) struct Missed {
    /// By reason.
    pub losses: Losses,
    /// The kernel's own counters of them.
    pub raw_losses: Vec<u64>,
    /// Calls whose return was missed and whose thread has ended.
    pub abandoned: u64,
    /// Calls at whose entry or return the kernel ran no program; `None` when it does not count them.
    pub skipped: Option<Skipped>,
    /// Drains that could not read or empty all of a map.
    pub drains_failed: u64,
    /// Probes that are not attached, each with the reason.
    pub probes: Vec<String>,
    /// Data of the probes that can no longer be read.
    pub degraded: Vec<Degraded>,
}

/// The answer of the tables' thread.
pub(super) type Draining = Option<oneshot::Receiver<Drained>>;

impl Probing {
    /// Takes the probes that were loaded. Call it inside the runtime.
    pub(crate) fn take(
        probes: Option<Probes>,
        hung_after: Duration,
        measured: Option<ProgramTimes>,
    ) -> Result<Self> {
        let take = |mut probes: Probes| {
            let ring = Ring::take(&mut probes.ebpf)?;
            let tables = Tables::take(&mut probes.ebpf, hung_after, probes.kept.is_some())?;
            let baseline = Losses::default();
            // Pinned hooks are not removed at the end.
            let held = probes.kept.is_none().then(held).transpose();
            let held =
                held.inspect_err(|why| tracing::info!("the end of the run takes longer: {why:#}"));
            let (_held, skipped) = (held.ok().flatten(), None);
            anyhow::Ok(Loaded { probes, _held, ring, tables, measured, baseline, skipped })
        };
        Ok(Self(probes.map(take).transpose()?))
    }

    /// Whether the execution of unmount programs is seen.
    pub(super) fn sees_exec(&self) -> bool {
        self.0.as_ref().is_some_and(|loaded| loaded.probes.attached.sees_exec)
    }

    /// Shows the probes' own debug lines, if they were loaded with them.
    pub(super) fn log_lines(&mut self) {
        if let Some(loaded) = &mut self.0 {
            setup::log_probe_lines(&mut loaded.probes);
        }
    }

    /// The counts of the processes before, if those of this one are to outlive it: after [`Self::begin`].
    pub(super) fn inherited(&self) -> Option<(Totals, Option<Lasting>)> {
        let loaded = self.0.as_ref()?;
        let none = Totals { is_kept: Some(false), ..Totals::default() };
        let Some(kept) = &loaded.probes.kept else {
            return loaded.probes.not_kept.is_some().then_some((none, None));
        };
        let (totals, lasting) = Lasting::take_over(&kept.inherited, &loaded.baseline);
        Some((totals, Some(lasting)))
    }

    /// The first counts: what was missed before them is not counted.
    pub(crate) async fn begin(&mut self) -> Result<Drained> {
        let drained = answer(&mut self.drain(Turn::First, Vec::new(), None)).await?;
        if let Some(loaded) = &mut self.0 {
            loaded.baseline = drained.losses;
            if let Some(kept) = &loaded.probes.kept {
                // While the probes of two processes are attached, one of them misses what the other has taken.
                loaded.baseline = Losses::of_all(&kept.inherited.losses)
                    .with(&drained.losses, &[loss::UNMATCHED_EXIT, loss::OVERWRITTEN]);
            }
            loaded.skipped = cost::skipped(&loaded.probes.ebpf);
        }
        Ok(drained)
    }

    /// Reads which threads sleep for a lock of the kernel, while that is of interest.
    pub(super) fn locks(&mut self) {
        let shown = self.0.as_mut().filter(|loaded| loaded.probes.shows_locks);
        let Some(loaded) = shown.filter(|_| kernel_locks::are_wanted()) else { return };
        match locks::waits(&mut loaded.probes.ebpf) {
            Ok(waits) => kernel_locks::read(waits),
            Err(why) => {
                tracing::info!("holders of kernel locks are not known any more: {why:#}");
                loaded.probes.shows_locks = false;
            }
        }
    }

    /// Waits for records; for ever without probes. Safe to cancel.
    pub(crate) async fn records(&mut self) -> io::Result<Vec<Bytes>> {
        match &mut self.0 {
            Some(loaded) => loaded.ring.next().await,
            None => pending().await,
        }
    }

    /// Requests the counts, leaves the totals of those before to the next process, and makes the probes send forgotten targets again.
    pub(crate) fn drain(
        &self,
        turn: Turn,
        forgotten: Vec<u64>,
        totals: Option<Vec<u8>>,
    ) -> Draining {
        let nothing = || {
            let (answer, receiver) = oneshot::channel();
            // The caller holds the receiver.
            let _ = answer.send(Drained::default());
            receiver
        };
        Some(
            self.0
                .as_ref()
                .map_or_else(nothing, |loaded| loaded.tables.drain(turn, forgotten, totals)),
        )
    }

    /// Losses up to a drain.
    pub(crate) fn missed(&self, drained: &Drained) -> Missed {
        // Without probes, no call is skipped.
        let nothing = || Missed { skipped: Some(Skipped::default()), ..Missed::default() };
        let Some(loaded) = &self.0 else { return nothing() };
        let skipped = cost::skipped(&loaded.probes.ebpf).zip(loaded.skipped);
        Missed {
            losses: drained.losses.since(&loaded.baseline),
            raw_losses: drained.losses.all().to_vec(),
            abandoned: drained.abandoned,
            drains_failed: drained.failed,
            skipped: skipped.map(|(now, then)| now.since(then)),
            probes: by_reason(&loaded.probes.attached.missing),
            degraded: Vec::new(),
        }
    }

    /// The cost of the run.
    pub(crate) fn cost(&self) -> SelfCost {
        let loaded = self.0.as_ref();
        cost::measure(
            loaded.map(|loaded| &loaded.probes.ebpf),
            loaded.and_then(|l| l.measured.as_ref()),
        )
    }

    /// The records in the ring now.
    pub(crate) fn rest(&mut self) -> Vec<Bytes> {
        self.0.as_mut().map_or_else(Vec::new, |loaded| loaded.ring.rest())
    }
}

/// Makes a process of its own hold the hooks, too.
fn held() -> Result<Held> {
    let all = links::descriptors()?;
    let all: Vec<_> = all.iter().map(AsFd::as_fd).collect();
    hold(&all).map_err(|why| anyhow!(why))
}

/// The answer of the drain in progress; never ready without one.
pub(crate) async fn answer(draining: &mut Draining) -> Result<Drained> {
    match draining {
        Some(receiver) => receiver.await.map_err(|_| tables::gone()),
        None => pending().await,
    }
}
