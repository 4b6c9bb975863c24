//! ENOTEMPTY that stays. It is a consequence nearly always: Go's `RemoveAll` begins with it, and
//! after a real error every directory above fails with it. What is left is a directory that nobody
//! could empty, on the same path again and again and with no other error.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::{
    Case, Draft, Family, Needs, backoff::Attempts, is_clean_up, leftover_verdict, umounts::Umounts,
};
use crate::{
    model::{call::Call, identity::TargetKind, operation::Operation, time::Monotonic},
    state::{
        look::{Answer, LookError},
        mounts::Mounts,
        users::User,
    },
};

/// Directories and targets followed at a time.
const DIRECTORIES: usize = 1024;
/// The first failure may be the way in which a removal begins; a second one on the same directory
/// says that the first attempt has failed.
const ATTEMPTS_NEEDED: u64 = 2;

/// A directory that is not empty.
pub(super) struct Full {
    /// The last call that failed.
    pub(super) op: Operation,
    /// Attempts by their time.
    pub(super) attempts: Attempts,
    /// Calls.
    pub(super) count: u64,
    /// The first failure.
    pub(super) first: Monotonic,
}

/// What a case is decided by.
pub(super) struct Seen<'a> {
    /// The caller's mounts.
    pub(super) mounts: Option<&'a Mounts>,
    /// A look at the directory.
    pub(super) entries: &'a Result<Answer, LookError>,
    /// Who uses something below it.
    pub(super) users: &'a [User],
}

/// All directories that are not empty.
#[derive(Default)]
pub(super) struct Leftover {
    directories: HashMap<(u64, PathBuf), Full>,
    /// Targets on which another error was seen: that is the cause, and this its consequence.
    explained: HashSet<u64>,
}

impl Leftover {
    /// Takes note of a call. `housekept` says that kubelet only tidies up after the pod: then it
    /// removes nothing but directories, and a file in the way is no fault of the volume.
    pub(super) fn observe(&mut self, op: &Operation, housekept: bool) -> Option<Case> {
        if op.target.kind != TargetKind::PodVolume || !is_clean_up(op) || housekept {
            return None;
        }
        match op.outcome.errno() {
            // A driver may find what it looks for gone or not mounted.
            None | Some(Errno::ENOENT | Errno::EISDIR | Errno::EINVAL) => return None,
            Some(Errno::ENOTEMPTY) if op.call.removes_directory() => {}
            Some(_) => {
                if self.explained.len() >= DIRECTORIES {
                    self.explained.clear();
                }
                self.explained.insert(op.target_id);
                return None;
            }
        }
        let key = (op.target_id, op.path.clone());
        if self.directories.len() >= DIRECTORIES && !self.directories.contains_key(&key) {
            self.make_room();
        }
        let full = self.directories.entry(key).or_insert_with(|| Full {
            op: op.clone(),
            attempts: Attempts::default(),
            count: 0,
            first: op.end,
        });
        full.op = op.clone();
        full.count += 1 + u64::from(op.suppressed);
        let new = full.attempts.note(op.end);
        let again = full.attempts.count() >= ATTEMPTS_NEEDED && new;
        // Every directory above one that stays fails, too.
        let deepest = !self.directories.iter().any(|((target, path), _)| {
            *target == op.target_id && path != &op.path && path.starts_with(&op.path)
        });
        (again && deepest && !self.explained.contains(&op.target_id)).then(|| Case {
            family: Family::Leftover,
            target_id: op.target_id,
            path: op.path.clone(),
            needs: Needs::Directory {
                pid: op.actor.pid,
                namespace: op.mnt_ns,
                directory: op.path.clone(),
            },
        })
    }

    /// Forgets one that failed once only, as every directory does that is removed with its contents,
    /// and of those the one that did so longest ago.
    fn make_room(&mut self) {
        let directories = self.directories.iter();
        let least = directories
            .min_by_key(|(_, full)| (full.attempts.count() >= ATTEMPTS_NEEDED, full.op.end));
        if let Some(least) = least.map(|(key, _)| key.clone()) {
            self.directories.remove(&least);
        }
    }

    pub(super) fn conclude(
        &self,
        case: &Case,
        seen: &Seen<'_>,
        umounts: &Umounts,
        now: Monotonic,
    ) -> Option<Draft> {
        let full = self.directories.get(&(case.target_id, case.path.clone()))?;
        if self.explained.contains(&case.target_id) {
            return None;
        }
        leftover_verdict::draft(full, seen, umounts, now)
    }

    /// Whether a directory of a target has failed more than once.
    pub(super) fn explains(&self, target_id: u64) -> bool {
        let of_target = self.directories.iter().filter(|((target, _), _)| *target == target_id);
        of_target.into_iter().any(|(_, full)| full.attempts.count() >= ATTEMPTS_NEEDED)
    }

    /// Calls on the directory that failed most often.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        let of_target = self.directories.iter().filter(|((target, _), _)| *target == target_id);
        of_target.map(|(_, full)| full.count).max()
    }

    /// Forgets a directory, or all of a target.
    pub(super) fn forget(&mut self, target_id: u64, path: Option<&Path>) {
        if path.is_none() {
            self.explained.remove(&target_id);
        }
        self.directories.retain(|(target, directory), _| {
            *target != target_id || path.is_some_and(|path| path != directory)
        });
    }
}

/// Whether an operation is the end of its target, after which the same path means a new one.
pub(super) fn ends_target(op: &Operation) -> bool {
    op.outcome.errno().is_none()
        && matches!(op.call, Call::UnlinkatDir | Call::Rmdir)
        && op.path == op.target.root
}

#[cfg(test)]
#[path = "leftover_tests.rs"]
mod tests;
