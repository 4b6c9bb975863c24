//! Time in a loop, by the clock and on the processor: on a busy machine the two differ.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

/// Adds up the time of pieces of work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stopwatch {
    pub(crate) elapsed: Duration,
    pub(crate) on_cpu: Duration,
}

impl Stopwatch {
    /// Does a piece of work.
    pub(crate) fn time<T>(&mut self, work: impl FnOnce() -> T) -> Result<T> {
        let on_cpu = read(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        let began = read(ClockId::CLOCK_MONOTONIC)?;
        let outcome = work();
        self.elapsed += read(ClockId::CLOCK_MONOTONIC)?.saturating_sub(began);
        self.on_cpu += read(ClockId::CLOCK_THREAD_CPUTIME_ID)?.saturating_sub(on_cpu);
        Ok(outcome)
    }
}

fn read(clock: ClockId) -> Result<Duration> {
    Ok(clock_gettime(clock).context("cannot read the clock")?.into())
}
