//! Tracks EPERM on removals. `may_delete` in fs/namei.c returns it for an immutable or append-only object, an
//! append-only directory, a sticky directory, an active swap file and an unmapped owner; for an immutable directory the
//! permission check returns it. The inode shows which.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    causes::{permission::verdict, shared::clean_up::is_clean_up},
    event::{Event, What},
    model::{call::Call, errno::Errno, operation::Operation, time::Monotonic},
    query::{NoAnswer, ObjectAttributes, Query, Question, ReadAttributes},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Fact, times},
};

/// Targets followed at a time.
const TARGETS: usize = 1024;
/// How long an answer is waited for. It normally takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A target with a refused removal.
pub(crate) struct Refused {
    /// The last refused call for which a query was sent.
    pub(crate) op: Operation,
    /// When the query was sent.
    asked: Monotonic,
    /// Whether it is unanswered.
    waits: bool,
    /// Calls, by time.
    attempts: Attempts,
    /// The object whose refusal an answer has explained.
    explained: Option<PathBuf>,
    /// Refused calls, including those that were not reported one by one.
    count: u64,
    /// The first refused call.
    first: Monotonic,
}

/// All targets with a refused removal.
#[derive(Default)]
pub(crate) struct Refusals {
    targets: Bounded<u64, Refused, TARGETS>,
}

impl Refusals {
    fn observe(&mut self, op: &Operation) -> Option<Query> {
        if !op.outcome.is(Errno::EPERM) || op.call == Call::Umount2 || !is_clean_up(op) {
            return None;
        }
        let begin = || Refused {
            op: op.clone(),
            asked: op.end,
            waits: false,
            attempts: Attempts::default(),
            explained: None,
            count: 0,
            first: op.end,
        };
        let refused = self.targets.or_insert_with(op.target_id, begin);
        refused.count += 1 + u64::from(op.suppressed);
        // One object at a time, and one per attempt: with thousands of refusals, the answer about the last object always
        // comes after the next refusal.
        let new = refused.attempts.note(op.end) || refused.explained.is_none();
        let in_time = op.end.since(refused.asked) < PATIENCE;
        if in_time && (refused.waits || !new) {
            return None;
        }
        (refused.op, refused.asked, refused.waits) = (op.clone(), op.end, true);
        let directory = op.path.parent()?.to_owned();
        let name = op.path.file_name()?.to_owned();
        let (pid, expected) = (op.actor.pid, op.directory);
        let wants = ReadAttributes { pid, directory, name, expected }.into();
        Some(Query { tracker: self.id(), target_id: op.target_id, path: op.path.clone(), wants })
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        answer: &Result<ObjectAttributes, NoAnswer>,
    ) -> Option<Draft> {
        let refused = self.targets.get_mut(&query.target_id)?;
        if refused.op.path != query.path {
            return None;
        }
        refused.waits = false;
        let mut draft = match answer {
            Ok(seen) => verdict::draft(context, refused, seen),
            Err(error) => verdict::unseen(refused, error),
        };
        let explained = !draft.cause.is_admission();
        if !explained && refused.explained.as_ref() == Some(&query.path) {
            // Repaired between the call and the answer: the earlier finding still holds for the call.
            return None;
        }
        refused.explained = explained.then(|| query.path.clone());
        let fact = format!("{} failed with EPERM {}", refused.op.call.name(), times(refused.count));
        let since = Some(refused.first);
        draft.evidence.insert(0, Fact { fact, source: refused.op.source(), since });
        draft.count = refused.count;
        draft.first = refused.first;
        Some(draft)
    }
}

impl Tracker for Refusals {
    fn id(&self) -> TrackerId {
        TrackerId::Refused
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Logged(op) => steps.ask(self.observe(op)),
            What::Answer { query, answer } => {
                if let Some((_, answer)) = ReadAttributes::answered(query, answer) {
                    steps.found(self.conclude(context, query, answer));
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        let refused = self.targets.get(&subject.target_id);
        refused.is_some_and(|refused| refused.explained.is_some())
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        let same = |refused: &Refused| path.is_none_or(|path| path == refused.op.path);
        if self.targets.get(&target_id).is_some_and(same) {
            self.targets.remove(&target_id);
        }
    }

    fn count(&self, target_id: u64) -> Option<u64> {
        self.targets.get(&target_id).map(|refused| refused.count)
    }

    fn dropped(&self) -> u64 {
        self.targets.dropped()
    }
}
