//! Tracks repeated ENOTEMPTY. It is nearly always a consequence: Go's `RemoveAll` begins with it, and after a real error
//! every directory above fails with it. It is a cause only if it repeats on the same path without any other error.

use std::path::{Path, PathBuf};

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    causes::{not_empty, shared::clean_up::is_clean_up},
    event::{Event, What},
    model::{
        call::Call,
        errno::Errno,
        identity::TargetKind,
        mounts::Mounts,
        object::{Entries, User},
        operation::Operation,
        time::Monotonic,
    },
    query::{Contents, NoAnswer, Query, Question, ReadDirectory},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
};

/// Directories and targets followed at a time.
pub(super) const DIRECTORIES: usize = 1024;
/// The first failure may be a normal step of a removal; a second one on the same directory shows that the first attempt
/// failed.
const ATTEMPTS_NEEDED: u64 = 2;

/// A directory that is not empty.
pub(crate) struct Full {
    /// The last call that failed.
    pub(crate) op: Operation,
    /// Attempts, by time.
    pub(crate) attempts: Attempts,
    /// Failed calls.
    pub(crate) count: u64,
    /// The first failure.
    pub(crate) first: Monotonic,
}

/// The data that the finding is based on.
pub(crate) struct Seen<'a> {
    /// The caller's mounts.
    pub(crate) mounts: Option<&'a Mounts>,
    /// The entries of the directory.
    pub(crate) entries: &'a Result<Entries, NoAnswer>,
    /// Processes that use files below it.
    pub(crate) users: &'a [User],
}

type Key = (u64, PathBuf);

/// All directories that are not empty.
#[derive(Default)]
pub(crate) struct NotEmpty {
    /// Directories that failed in one attempt, as every directory does that is removed with its contents.
    pub(super) once: Bounded<Key, Full, DIRECTORIES>,
    /// Directories that failed in several attempts; kept apart, so that a large removal does not evict them.
    pub(super) again: Bounded<Key, Full, DIRECTORIES>,
    /// Targets with another error: that is the cause, and ENOTEMPTY its consequence.
    explained: Bounded<u64, (), DIRECTORIES>,
}

impl NotEmpty {
    fn observe(&mut self, op: &Operation) -> Option<Query> {
        if op.target.kind != TargetKind::PodVolume || !is_clean_up(op) {
            return None;
        }
        match op.outcome.errno() {
            // A driver may find its object gone or not mounted.
            None | Some(Errno::ENOENT | Errno::EISDIR | Errno::EINVAL) => return None,
            Some(Errno::ENOTEMPTY) if op.call.removes_directory() => {}
            Some(_) => {
                self.explained.insert(op.target_id, ());
                return None;
            }
        }
        let again = self.note(op);
        // Every directory above the one that stays fails, too.
        let deepest = !self.all().any(|((target, path), _)| {
            *target == op.target_id && path != &op.path && path.starts_with(&op.path)
        });
        let (pid, namespace, directory) = (op.actor.pid, op.mnt_ns, op.path.clone());
        let wants = ReadDirectory { pid, namespace, directory }.into();
        let query =
            Query { tracker: self.id(), target_id: op.target_id, path: op.path.clone(), wants };
        (again && deepest && !self.explained.contains(&op.target_id)).then_some(query)
    }

    /// Records a failure. Returns whether it begins a further attempt.
    fn note(&mut self, op: &Operation) -> bool {
        let key = (op.target_id, op.path.clone());
        let begin =
            || Full { op: op.clone(), attempts: Attempts::default(), count: 0, first: op.end };
        let full = match self.again.contains(&key) {
            true => self.again.or_insert_with(key.clone(), begin),
            false => self.once.or_insert_with(key.clone(), begin),
        };
        full.op = op.clone();
        full.count += 1 + u64::from(op.suppressed);
        let new = full.attempts.note(op.end);
        let again = full.attempts.count() >= ATTEMPTS_NEEDED;
        if again && let Some(full) = self.once.remove(&key) {
            self.again.insert(key, full);
        }
        again && new
    }

    fn all(&self) -> impl Iterator<Item = (&Key, &Full)> {
        self.once.iter().chain(self.again.iter())
    }

    fn forget_target(&mut self, target_id: u64) {
        self.explained.remove(&target_id);
        self.once.retain(|(target, _), _| *target != target_id);
        self.again.retain(|(target, _), _| *target != target_id);
    }
}

impl Tracker for NotEmpty {
    fn id(&self) -> TrackerId {
        TrackerId::NotEmpty
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Logged(op) => {
                if ends_target(op) {
                    self.forget_target(op.target_id);
                }
                if !context.is_explained(self.id(), &Subject::of(op)) {
                    steps.ask(self.observe(op));
                }
            }
            What::Answer { query, answer } => {
                let key = (query.target_id, query.path.clone());
                if let Some((_, Contents { mounts, entries, users })) =
                    ReadDirectory::answered(query, answer)
                    && !self.explained.contains(&query.target_id)
                    && let Some(full) = self.again.get(&key).or_else(|| self.once.get(&key))
                {
                    let seen = Seen { mounts: mounts.as_ref(), entries, users };
                    steps.found(not_empty::verdict::draft(context, full, &seen));
                }
            }
            _ => {}
        }
    }

    /// True if a directory of the target has failed in more than one attempt.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.again.iter().any(|((target, _), _)| *target == subject.target_id)
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        if path.is_none() {
            self.forget_target(target_id);
        }
    }

    /// Failed calls on the directory that failed most often.
    fn count(&self, target_id: u64) -> Option<u64> {
        let of_target = self.all().filter(|((target, _), _)| *target == target_id);
        of_target.map(|(_, full)| full.count).max()
    }

    /// Directories that failed once are evicted regularly, and not counted.
    fn dropped(&self) -> u64 {
        self.again.dropped() + self.explained.dropped()
    }
}

/// Whether an operation is the end of its target, after which the same path means a new one.
fn ends_target(op: &Operation) -> bool {
    op.outcome.errno().is_none()
        && matches!(op.call, Call::UnlinkatDir | Call::Rmdir)
        && op.path == op.target.root
}
