//! One deletion of many entries: how much, how fast, where, and whether it still goes on.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;

use super::mass_estimate::Look;
use crate::{
    aggregate::Delta,
    model::{
        call::{Call, Outcome},
        identity::TargetKind,
        operation::Operation,
        time::Monotonic,
    },
};

/// When a deletion is worth a word: entries, for how long, and how fast at the least.
struct Threshold {
    entries: u64,
    lasting: Duration,
    per_second: f64,
}

/// A volume: its pod waits meanwhile.
const OF_VOLUME: Threshold =
    Threshold { entries: 5_000, lasting: Duration::from_secs(2), per_second: 50.0 };
/// Anything else: only what can slow the whole disk down.
const ELSEWHERE: Threshold =
    Threshold { entries: 50_000, lasting: Duration::from_secs(5), per_second: 1_000.0 };
/// Rates are means over this time.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Silence after which a deletion that is not complete counts as stalled.
pub(super) const STALLED: Duration = Duration::from_secs(10);
/// Directory samples that the common ancestor is taken from.
const SAMPLES: usize = 64;

/// A target, or, for what has none, a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Where {
    Target(u64),
    Process(u32),
}

pub(super) struct Storm {
    pub(super) files: u64,
    pub(super) directories: u64,
    /// EISDIR on `unlinkat`: Go's way to find out that something is a directory.
    pub(super) eisdir: u64,
    pub(super) first: Monotonic,
    pub(super) last: Monotonic,
    /// (time, entries) at each tick that had any.
    recent: VecDeque<(Monotonic, u64)>,
    pub(super) op: Option<Operation>,
    samples: VecDeque<PathBuf>,
    pub(super) look: Option<Look>,
    pub(super) asked: Option<Monotonic>,
    /// Since it stalled, a look has shown that it was not complete.
    pub(super) incomplete: bool,
}

impl Storm {
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            files: 0,
            directories: 0,
            eisdir: 0,
            first: now,
            last: now,
            recent: VecDeque::new(),
            op: None,
            samples: VecDeque::new(),
            look: None,
            asked: None,
            incomplete: false,
        }
    }

    pub(super) fn deleted(&self) -> u64 {
        self.files + self.directories
    }

    pub(super) fn rate(&self, now: Monotonic) -> f64 {
        let recent = self.recent.iter().filter(|(time, _)| now.since(*time) <= RATE_WINDOW);
        let entries: u64 = recent.map(|(_, entries)| entries).sum();
        let window = now.since(self.first).min(RATE_WINDOW).as_secs_f64().max(1.0);
        entries as f64 / window
    }

    pub(super) fn stalled(&self, now: Monotonic) -> bool {
        now.since(self.last) > STALLED
    }

    pub(super) fn matters(&self, place: Where, now: Monotonic) -> bool {
        let limit = if matches!(place, Where::Target(_)) { &OF_VOLUME } else { &ELSEWHERE };
        let fast = self.rate(now) >= limit.per_second || self.stalled(now);
        self.deleted() >= limit.entries && self.last.since(self.first) >= limit.lasting && fast
    }

    /// The directory that is being emptied.
    pub(super) fn root(&self) -> Option<PathBuf> {
        let target = &self.op.as_ref()?.target;
        if target.kind != TargetKind::Other || !target.root.as_os_str().is_empty() {
            return Some(target.root.clone());
        }
        common_ancestor(self.samples.iter().map(PathBuf::as_path))
    }

    /// Notes a call: who deletes, and where.
    pub(super) fn note(&mut self, op: &Operation) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.extend(op.path.parent().map(Path::to_path_buf));
        // One call stands for all: the removal of a file, where there are files.
        if self.op.is_none() || !op.call.removes_directory() {
            self.op = Some(op.clone());
        }
    }

    /// Adds the counts of a tick.
    pub(super) fn count(&mut self, delta: &Delta, now: Monotonic) {
        if delta.outcome.is(Errno::EISDIR) {
            self.eisdir += delta.calls;
        }
        if delta.outcome != Outcome::OK || delta.call == Call::Umount2 {
            return;
        }
        if delta.call.removes_directory() {
            self.directories += delta.calls;
        } else {
            self.files += delta.calls;
        }
        self.last = now;
        self.incomplete = false;
        match self.recent.back_mut().filter(|(time, _)| *time == now) {
            Some((_, entries)) => *entries += delta.calls,
            None => self.recent.push_back((now, delta.calls)),
        }
        while self.recent.front().is_some_and(|(time, _)| now.since(*time) > RATE_WINDOW) {
            self.recent.pop_front();
        }
    }
}

fn common_ancestor<'a>(mut paths: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let first = paths.next()?.to_path_buf();
    let ancestor = paths.fold(first, |ancestor, path| {
        let mut candidate = ancestor.as_path();
        while !path.starts_with(candidate) {
            candidate = candidate.parent().unwrap_or(Path::new("/"));
        }
        candidate.to_path_buf()
    });
    Some(ancestor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_storm_is_what_its_samples_share() {
        let paths = ["/a/b/c/1", "/a/b/d", "/a/b/c/2/x"].map(Path::new);
        assert_eq!(common_ancestor(paths.into_iter()), Some("/a/b".into()));
        assert_eq!(common_ancestor(["/x", "/y"].map(Path::new).into_iter()), Some("/".into()));
    }

    #[test]
    fn a_rate_is_a_mean_of_the_last_seconds() {
        let mut storm = Storm::new(Monotonic(0));
        let delta =
            Delta { target_id: 1, pid: 1, call: Call::Unlink, outcome: Outcome::OK, calls: 3000 };
        for second in 1..=20_u64 {
            storm.count(&delta, Monotonic(second * 1_000_000_000));
        }
        let now = Monotonic(20_000_000_000);
        assert!((storm.rate(now) - 3000.0).abs() < 400.0, "{}", storm.rate(now));
        assert!(storm.matters(Where::Target(1), now));
        let later = Monotonic(31_000_000_000);
        assert!(storm.stalled(later) && storm.rate(later) == 0.0);
    }
}
