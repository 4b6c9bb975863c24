//! The probes of a run, and all that is read from them: or nothing, where none are let in.

use std::{future::pending, io, os::fd::AsFd, time::Duration};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::setup;
use crate::model::{degraded::Degraded, summary::SelfCost};
use podstuck_confine::fork_server::{Held, hold};
use podstuck_probe::{
    kernel::{attach::by_reason, links, load::Probes},
    source::{
        cost::{self, ProgramTimes, Skipped},
        losses::Losses,
        ring::Ring,
        tables::{self, Drained, Tables, Turn},
    },
};

/// What probes see.
pub(super) struct Probing(Option<Loaded>);

struct Loaded {
    probes: Probes,
    /// Has the hooks, too, and is ended after the probes are: nobody else waits for the grace periods.
    _held: Option<Held>,
    ring: Ring,
    tables: Tables,
    measured: Option<ProgramTimes>,
    /// What was lost and skipped while the probes went in one after the other is no loss of the run.
    baseline: Losses,
    skipped: Option<Skipped>,
}

/// What the probes missed.
#[derive(Default)]
pub(super) struct Missed {
    /// By reason.
    pub losses: Losses,
    /// Calls whose return was missed and whose thread has ended.
    pub abandoned: u64,
    /// Calls at whose entry or return the kernel ran no program; `None` where it does not count them.
    pub skipped: Option<Skipped>,
    /// Drains that could not read or empty all of a map.
    pub drains_failed: u64,
    /// Probes that are not in, each with the reason.
    pub probes: Vec<String>,
    /// What could not be read of them any more.
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
            let tables = Tables::take(&mut probes.ebpf, hung_after)?;
            let baseline = Losses::default();
            let held = held().inspect_err(|why| tracing::info!("the end takes longer: {why:#}"));
            let (_held, skipped) = (held.ok(), None);
            anyhow::Ok(Loaded { probes, _held, ring, tables, measured, baseline, skipped })
        };
        Ok(Self(probes.map(take).transpose()?))
    }

    /// Whether programs that are there to unmount are seen when they are executed.
    pub(super) fn sees_exec(&self) -> bool {
        self.0.as_ref().is_some_and(|loaded| loaded.probes.attached.sees_exec)
    }

    /// Shows the probes' own debug lines, if they were loaded with them.
    pub(super) fn log_lines(&mut self) {
        if let Some(loaded) = &mut self.0 {
            setup::log_probe_lines(&mut loaded.probes);
        }
    }

    /// The first counts: what was missed before them is forgotten.
    pub(crate) async fn begin(&mut self) -> Result<Drained> {
        let drained = answer(&mut self.drain(Turn::Usual, Vec::new())).await?;
        if let Some(loaded) = &mut self.0 {
            loaded.baseline = drained.losses;
            loaded.skipped = cost::skipped(&loaded.probes.ebpf);
        }
        Ok(drained)
    }

    /// Waits for records; for ever where there are no probes. Safe to cancel.
    pub(crate) async fn records(&mut self) -> io::Result<Vec<Bytes>> {
        match &mut self.0 {
            Some(loaded) => loaded.ring.next().await,
            None => pending().await,
        }
    }

    /// Asks for the counts, and has targets told again that were forgotten.
    pub(crate) fn drain(&self, turn: Turn, forgotten: Vec<u64>) -> Draining {
        let nothing = || {
            let (answer, receiver) = oneshot::channel();
            // It is received by whoever asked.
            let _ = answer.send(Drained::default());
            receiver
        };
        Some(self.0.as_ref().map_or_else(nothing, |loaded| loaded.tables.drain(turn, forgotten)))
    }

    /// What was missed up to a drain.
    pub(crate) fn missed(&self, drained: &Drained) -> Missed {
        // Where there are no probes, none is skipped.
        let nothing = || Missed { skipped: Some(Skipped::default()), ..Missed::default() };
        let Some(loaded) = &self.0 else { return nothing() };
        let skipped = cost::skipped(&loaded.probes.ebpf).zip(loaded.skipped);
        Missed {
            losses: drained.losses.since(&loaded.baseline),
            abandoned: drained.abandoned,
            drains_failed: drained.failed,
            skipped: skipped.map(|(now, then)| now.since(then)),
            probes: by_reason(&loaded.probes.attached.missing),
            degraded: Vec::new(),
        }
    }

    /// What the run has cost.
    pub(crate) fn cost(&self) -> SelfCost {
        let loaded = self.0.as_ref();
        cost::measure(
            loaded.map(|loaded| &loaded.probes.ebpf),
            loaded.and_then(|l| l.measured.as_ref()),
        )
    }

    /// Records that are there.
    pub(crate) fn rest(&mut self) -> Vec<Bytes> {
        self.0.as_mut().map_or_else(Vec::new, |loaded| loaded.ring.rest())
    }
}

/// Has the hooks held by a process of their own, too.
fn held() -> Result<Held> {
    let all = links::descriptors()?;
    let all: Vec<_> = all.iter().map(AsFd::as_fd).collect();
    hold(&all).map_err(|why| anyhow!(why))
}

/// The answer of the drain under way, or for ever none when there is no such drain.
pub(crate) async fn answer(draining: &mut Draining) -> Result<Drained> {
    match draining {
        Some(receiver) => receiver.await.map_err(|_| tables::gone()),
        None => pending().await,
    }
}
