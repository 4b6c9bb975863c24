//! Attempts at an object, and when the next one is expected.

use std::path::{Path, PathBuf};

use podstuck_engine::{
    backoff,
    bounded::Bounded,
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        identity::Pod,
        operation::Operation,
        time::{Clock, Monotonic},
    },
};
use podstuck_model::errno::Errno;

/// Limit of objects followed: a tree that cannot be removed fails once for each directory in it.
const OBJECTS_MAX: usize = 256;
/// Limit of attempts kept of each object, the latest.
const ATTEMPTS_MAX: usize = 64;

/// One call on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it returned.
    pub at: Monotonic,
    /// What was called.
    pub call: Call,
    /// Its outcome.
    pub outcome: Outcome,
    /// The name (`comm`) of the calling process.
    pub comm: String,
    /// Its process id; 0 when a log does not give it.
    pub pid: u32,
    /// The log that reports it; `None` when the probes saw it.
    pub logged_in: Option<String>,
}

/// The attempts at an object.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The object.
    pub path: PathBuf,
    /// The pod that it belongs to.
    pub pod: Option<Pod>,
    /// The latest attempts, by time.
    pub attempts: Vec<Attempt>,
    /// Number of attempts left out, because there were too many.
    pub left_out: u64,
    ladder: backoff::Attempts,
    begun: Monotonic,
}

impl Tried {
    /// Number of attempts: one attempt of kubelet may make several calls. A log reports each once.
    pub fn tries(&self) -> u64 {
        let logged = self.attempts.iter().filter(|attempt| attempt.logged_in.is_some()).count();
        self.ladder.count() + logged as u64
    }

    fn new(op: &Operation) -> Self {
        Self {
            path: op.path.clone(),
            pod: op.target.pod.clone(),
            attempts: Vec::new(),
            left_out: 0,
            ladder: backoff::Attempts::default(),
            begun: op.end,
        }
    }

    fn note(&mut self, op: &Operation) {
        let after = self.attempts.partition_point(|attempt| attempt.at <= op.end);
        // A log's past entries say nothing of the current interval.
        if op.logged_in.is_none() && self.ladder.note(op.end) {
            self.begun = op.end;
        }
        let attempt = Attempt {
            at: op.end,
            call: op.call,
            outcome: op.outcome,
            comm: op.actor.comm.clone(),
            pid: op.actor.pid,
            logged_in: op.logged_in.as_deref().map(str::to_owned),
        };
        self.attempts.insert(after, attempt);
        self.left_out += u64::from(op.suppressed);
        if self.attempts.len() > ATTEMPTS_MAX {
            self.attempts.remove(0);
            self.left_out += 1;
        }
    }

    /// Number of failures among the attempts kept.
    pub fn failures(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.outcome != Outcome::OK).count()
    }

    /// The next attempt, if the intervals so far are kubelet's back-off and the last attempt failed.
    pub fn next(&self, clock: &Clock) -> Option<jiff::Timestamp> {
        let last = self.attempts.last()?;
        let gap = self.ladder.next_gap().filter(|_| last.outcome != Outcome::OK)?;
        let at = self.begun.0.saturating_add(u64::try_from(gap.as_nanos()).ok()?);
        Some(clock.at(Monotonic(at)))
    }
}

/// Collects attempts from the events of a run.
#[derive(Debug, Default)]
pub(super) struct Attempts(Bounded<PathBuf, Tried, OBJECTS_MAX>);

impl Attempts {
    /// Takes an event.
    pub(super) fn take(&mut self, event: &Event) {
        let (What::Operation(op) | What::Logged(op)) = &event.what else { return };
        // As in the engine, such a call decides nothing.
        if op.actor.is_stranger_to(&op.target) {
            return;
        }
        let known = self.0.get_mut(op.path.as_path());
        match known {
            Some(tried) => tried.note(op),
            None if is_fault(op) => {
                self.0.or_insert_with(op.path.clone(), || Tried::new(op)).note(op);
            }
            None => {}
        }
    }

    /// All objects, those with these paths first, then by their failures.
    pub(super) fn all<'a>(&self, first: impl Iterator<Item = &'a Path>) -> Vec<Tried> {
        let first: Vec<&Path> = first.collect();
        let rank = |tried: &Tried| first.iter().position(|path| *path == tried.path);
        let mut all: Vec<Tried> = self.0.iter().map(|(_, tried)| tried.clone()).collect();
        all.sort_by_cached_key(|tried| {
            let rank = rank(tried).unwrap_or(usize::MAX);
            (rank, std::cmp::Reverse(tried.failures()), tried.path.clone())
        });
        all
    }
}

/// Whether an outcome is a fault. A healthy removal meets these errors: Go tries a directory as a file, and a tree
/// before its content.
fn is_fault(op: &Operation) -> bool {
    let healthy = [Errno::EISDIR, Errno::ENOENT, Errno::ENOTEMPTY, Errno::EINVAL];
    op.outcome != Outcome::OK && !healthy.iter().any(|errno| op.outcome.is(*errno))
}
