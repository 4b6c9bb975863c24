//! One deletion of many entries: how much, how fast, where, and whether it continues.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    causes::mass_deletion::estimate::{Looks, Rate},
    event::Count,
    model::{
        call::{Call, Outcome},
        client::Client,
        errno::Errno,
        identity::TargetKind,
        operation::Operation,
        time::Monotonic,
    },
};

/// When a deletion is reported: minimal entries, duration and rate.
struct Threshold {
    entries: u64,
    lasting: Duration,
    per_second: f64,
}

/// Threshold for a target, whose pod may wait meanwhile.
const OF_VOLUME: Threshold =
    Threshold { entries: 5_000, lasting: Duration::from_secs(2), per_second: 50.0 };
/// Threshold for anything else: only a deletion that can slow the whole disk down.
const ELSEWHERE: Threshold =
    Threshold { entries: 50_000, lasting: Duration::from_secs(5), per_second: 1_000.0 };
/// Rates are means over this time.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Silence after which a deletion counts as stalled.
pub(crate) const STALLED: Duration = Duration::from_secs(10);
/// Mean age of the data of a count when its answer arrives.
const HALF_A_LOOK: Duration = Duration::from_millis(350);
/// Entries deleted longer ago are in the counts, unless the deletion has paused.
const COUNTED_EVERY: Duration = Duration::from_secs(2);
/// Directory samples from which the common ancestor is derived.
const SAMPLES: usize = 64;

/// The place of a deletion: a target, or a process if the entries belong to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Where {
    Target(u64),
    Process(u32),
}

pub(crate) struct Run {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// EISDIR on `unlinkat`, by which Go recognizes a directory.
    pub(crate) eisdir: u64,
    pub(crate) first: Monotonic,
    pub(crate) last: Monotonic,
    /// (time, entries) of each tick with deletions.
    recent: VecDeque<(Monotonic, u64)>,
    pub(crate) op: Option<Operation>,
    samples: VecDeque<PathBuf>,
    pub(crate) looks: Looks,
    pub(crate) asked: Option<Monotonic>,
    /// The clients of the daemon that deletes, and when they were read.
    pub(crate) clients: Option<(Vec<Client>, Monotonic)>,
    /// Whether a count since the stall has shown that entries are left.
    pub(crate) incomplete: bool,
}

impl Run {
    pub(crate) fn new(now: Monotonic) -> Self {
        Self {
            files: 0,
            directories: 0,
            eisdir: 0,
            first: now,
            last: now,
            recent: VecDeque::new(),
            op: None,
            samples: VecDeque::new(),
            looks: Looks::default(),
            asked: None,
            clients: None,
            incomplete: false,
        }
    }

    /// Whether a count belongs to this deletion, and not to another process that reuses its process id.
    pub(crate) fn is_of(&self, place: Where, count: &Count) -> bool {
        let known = self.op.as_ref().and_then(|op| op.actor.started).zip(count.started);
        matches!(place, Where::Target(_)) || known.is_none_or(|(own, other)| own == other)
    }

    pub(crate) fn deleted(&self) -> u64 {
        self.files + self.directories
    }

    /// Entries deleted when the data of the answer that arrives now were read. Counts come once a second; at 50,000
    /// deletions per second, those since the last count are a large part of a tree.
    pub(crate) fn deleted_at_look(&self, now: Monotonic) -> u64 {
        let uncounted = now.since(self.last).saturating_sub(HALF_A_LOOK).min(COUNTED_EVERY);
        let rate = if self.stalled(now) { 0.0 } else { self.rate(now) };
        self.deleted() + (rate * uncounted.as_secs_f64()) as u64
    }

    pub(crate) fn rate(&self, now: Monotonic) -> f64 {
        let recent = self.recent.iter().filter(|(time, _)| now.since(*time) <= RATE_WINDOW);
        let entries: u64 = recent.map(|(_, entries)| entries).sum();
        let window = now.since(self.first).min(RATE_WINDOW).as_secs_f64().max(1.0);
        entries as f64 / window
    }

    pub(crate) fn rates(&self, now: Monotonic) -> Rate {
        let lasting = self.last.since(self.first).as_secs_f64().max(1.0);
        Rate { now: self.rate(now), overall: self.deleted() as f64 / lasting }
    }

    pub(crate) fn stalled(&self, now: Monotonic) -> bool {
        now.since(self.last) > STALLED
    }

    pub(crate) fn matters(&self, place: Where, now: Monotonic) -> bool {
        let limit = if matches!(place, Where::Target(_)) { &OF_VOLUME } else { &ELSEWHERE };
        let fast = self.rate(now) >= limit.per_second || self.stalled(now);
        self.deleted() >= limit.entries && self.last.since(self.first) >= limit.lasting && fast
    }

    /// The directory that is being emptied.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        let target = &self.op.as_ref()?.target;
        if target.kind != TargetKind::Other || !target.root.as_os_str().is_empty() {
            return Some(target.root.clone());
        }
        common_ancestor(self.samples.iter().map(PathBuf::as_path))
    }

    /// Records the process and directory of a call.
    pub(crate) fn note(&mut self, op: &Operation) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.extend(op.path.parent().map(Path::to_path_buf));
        // One call represents the run: preferably the removal of a file.
        if self.op.is_none() || !op.call.removes_directory() {
            self.op = Some(op.clone());
        }
    }

    /// Adds the counts of a tick.
    pub(crate) fn count(&mut self, count: &Count, now: Monotonic) {
        if count.outcome.is(Errno::EISDIR) {
            self.eisdir += count.calls;
        }
        if count.outcome != Outcome::OK || count.call == Call::Umount2 {
            return;
        }
        if count.call.removes_directory() {
            self.directories += count.calls;
        } else {
            self.files += count.calls;
        }
        self.last = now;
        self.incomplete = false;
        match self.recent.back_mut().filter(|(time, _)| *time == now) {
            Some((_, entries)) => *entries += count.calls,
            None => self.recent.push_back((now, count.calls)),
        }
        while self.recent.front().is_some_and(|(time, _)| now.since(*time) > RATE_WINDOW) {
            self.recent.pop_front();
        }
    }
}

pub(super) fn common_ancestor<'a>(mut paths: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
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
