//! The lab's deleting and unmounting calls. Each is counted, as the reference for the probes.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, umount2};
use rustix::{
    fd::AsFd,
    fs::{AtFlags, unlinkat},
    io::Errno,
    path::Arg,
};

use podstuck_engine::model::{
    call::{Call, Outcome},
    summary::ByOutcome,
};

/// Number of calls by call and outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(BTreeMap<(Call, Outcome), u64>);

impl Tally {
    fn add(&mut self, call: Call, outcome: Outcome) {
        *self.0.entry((call, outcome)).or_default() += 1;
    }

    /// In the form of a watch's summary: every call is named, including those with no count.
    pub(super) fn by_outcome(&self) -> ByOutcome {
        let mut table: ByOutcome =
            Call::ALL.iter().map(|call| (call.name(), BTreeMap::new())).collect();
        for ((call, outcome), count) in &self.0 {
            table.entry(call.name()).or_default().insert(outcome.name(), *count);
        }
        table
    }
}

/// Makes and counts the calls.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    /// The counts so far.
    pub(super) tally: Tally,
    pace: Option<Pace>,
    stop: &'a AtomicBool,
}

impl<'a> Calls<'a> {
    /// At most `rate` deletions per second; `stop` ends the removal.
    pub(super) fn new(rate: Option<u32>, stop: &'a AtomicBool) -> Self {
        Self { tally: Tally::default(), pace: rate.map(Pace::new), stop }
    }

    /// Whether the removal is stopped.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `unlinkat(dir, name, 0)`
    pub(super) fn unlink(&mut self, dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
        let result = unlinkat(dir, name, AtFlags::empty());
        self.count(Call::Unlinkat, result)
    }

    /// `unlinkat(dir, name, AT_REMOVEDIR)`
    pub(super) fn rmdir(&mut self, dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
        let result = unlinkat(dir, name, AtFlags::REMOVEDIR);
        self.count(Call::UnlinkatDir, result)
    }

    /// `umount2(path, 0)`
    pub(super) fn umount(&mut self, path: &Path) -> Result<(), Errno> {
        let result = umount2(path, MntFlags::empty());
        self.count(Call::Umount2, result.map_err(|errno| Errno::from_raw_os_error(errno as i32)))
    }

    fn count(&mut self, call: Call, result: Result<(), Errno>) -> Result<(), Errno> {
        let outcome = match result {
            Ok(()) => Outcome::OK,
            // Every errno of Linux fits.
            Err(errno) => Outcome(errno.raw_os_error() as u16),
        };
        self.tally.add(call, outcome);
        if let (Ok(()), Some(pace)) = (result, &mut self.pace) {
            pace.step();
        }
        result
    }
}

/// A delay beyond this, from a slow disk or between attempts, is not made up for.
const LATE: Duration = Duration::from_millis(100);

/// Limits a loop to a number of steps per second.
#[derive(Debug)]
struct Pace {
    per_second: u32,
    steps: u32,
    start: Instant,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), steps: 0, start: Instant::now() }
    }

    /// Sleeps at most a hundred times per second, so that the rate is even at little cost. The count restarts every
    /// second.
    fn step(&mut self) {
        self.steps += 1;
        if !self.steps.is_multiple_of((self.per_second / 100).max(1)) {
            return;
        }
        let mut due = Duration::from_secs(1) * self.steps / self.per_second;
        if self.start.elapsed() > due + LATE {
            self.steps = self.steps.min((self.per_second / 100).max(1));
            self.start = Instant::now();
            due = Duration::from_secs(1) * self.steps / self.per_second;
        }
        thread::sleep(due.saturating_sub(self.start.elapsed()));
        if self.steps >= self.per_second || self.start.elapsed() > Duration::from_secs(2) {
            (self.steps, self.start) = (0, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept() {
        let mut pace = Pace::new(1000);
        let start = Instant::now();
        (0..300).for_each(|_| pace.step());
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(299) && took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn the_tally_names_every_call() {
        let mut tally = Tally::default();
        tally.add(Call::Umount2, Outcome(16));
        assert_eq!(tally.by_outcome()["umount2"]["EBUSY"], 1);
        assert!(tally.by_outcome()["rmdir"].is_empty());
    }
}
