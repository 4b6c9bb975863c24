//! Events that the probes could not see, count or send.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray},
};
use podstuck_common::record::loss;

/// Totals since the probes were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Indexed by `record::loss`.
    by_reason: [u64; loss::COUNT as usize],
}

impl Losses {
    /// The total of one reason of `record::loss`.
    pub fn of(&self, reason: u32) -> u64 {
        self.by_reason.get(reason as usize).copied().unwrap_or(0)
    }

    /// All of them, by reason.
    pub fn all(&self) -> &[u64] {
        &self.by_reason
    }

    /// These totals, by reason.
    pub fn of_all(all: &[u64]) -> Self {
        let mut losses = Self::default();
        losses.by_reason.iter_mut().zip(all).for_each(|(own, it)| *own = *it);
        losses
    }

    /// These totals, with those of some reasons from elsewhere.
    pub fn with(mut self, other: &Self, reasons: &[u32]) -> Self {
        for reason in reasons {
            self.by_reason[*reason as usize] = other.of(*reason);
        }
        self
    }

    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut delta = *self;
        for (now, then) in delta.by_reason.iter_mut().zip(earlier.by_reason) {
            *now = now.saturating_sub(then);
        }
        delta
    }
}

/// The probes' own counters of losses.
pub(super) struct LossCounters(PerCpuArray<MapData, u64>);

impl LossCounters {
    /// Takes the counters out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("LOSSES").context("this build has no map `LOSSES`")?;
        Ok(Self(PerCpuArray::try_from(map).context("map `LOSSES`")?))
    }

    /// Totals now.
    pub(super) fn read(&self) -> Result<Losses> {
        let mut losses = Losses::default();
        for (reason, sum) in losses.by_reason.iter_mut().enumerate() {
            let shares = self.0.get(&(reason as u32), 0).context("reading loss counters")?;
            *sum = shares.iter().sum();
        }
        Ok(losses)
    }
}
