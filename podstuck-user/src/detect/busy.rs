//! EBUSY again and again: on the removal of a directory it means a mount point in the caller's own
//! mount namespace (`vfs_rmdir` and `vfs_unlink`, fs/namei.c); on an unmount it means that somebody
//! uses the mount.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::{
    Case, Draft, Family, Needs, backoff::Attempts, busy_verdict, is_clean_up, umounts::Umounts,
};
use crate::{
    model::{call::Call, operation::Operation, time::Monotonic},
    state::mounts::Mounts,
};

/// Objects followed at a time.
const OBJECTS: usize = 1024;

/// An object that is busy.
#[derive(Clone, Debug)]
pub(super) struct BusyObject {
    /// The last call that failed.
    pub(super) op: Operation,
    /// Calls, those not reported one by one included.
    pub(super) count: u64,
    /// First failure.
    pub(super) first: Monotonic,
    /// Attempts by their time.
    pub(super) attempts: Attempts,
}

/// All objects that are busy.
#[derive(Default)]
pub(super) struct Busy {
    objects: HashMap<(u64, PathBuf), BusyObject>,
    /// Unmounts seen.
    pub(super) umounts: Umounts,
}

impl Busy {
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Case> {
        if !op.outcome.is(Errno::EBUSY) || !is_clean_up(op) {
            return None;
        }
        let key = (op.target_id, op.path.clone());
        if self.objects.len() >= OBJECTS && !self.objects.contains_key(&key) {
            return None;
        }
        let object = self.objects.entry(key).or_insert_with(|| BusyObject {
            op: op.clone(),
            count: 0,
            first: op.end,
            attempts: Attempts::default(),
        });
        object.op = op.clone();
        object.count += 1 + u64::from(op.suppressed);
        let new_attempt = object.attempts.note(op.end);
        // A burst is told at its beginning and now and then.
        if !new_attempt && !object.count.is_multiple_of(16) {
            return None;
        }
        Some(Case {
            family: Family::Busy,
            target_id: op.target_id,
            path: op.path.clone(),
            needs: Needs::Mounts { pid: op.actor.pid, namespace: op.mnt_ns },
        })
    }

    pub(super) fn conclude(&self, case: &Case, mounts: Option<&Mounts>) -> Option<Draft> {
        let object = self.objects.get(&(case.target_id, case.path.clone()))?;
        let tried = self.umounts.on(&case.path);
        if object.op.call == Call::Umount2 {
            busy_verdict::umount(object, mounts)
        } else {
            busy_verdict::removal(object, &tried, mounts)
        }
    }

    /// Calls on the busiest object of a target, which its finding is about.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        let objects = self.objects.iter().filter(|((target, _), _)| *target == target_id);
        objects.map(|(_, object)| object.count).max()
    }

    /// Forgets an object, or all of a target.
    pub(super) fn forget(&mut self, target_id: u64, path: Option<&Path>) {
        self.objects.retain(|(target, object), _| {
            *target != target_id || path.is_some_and(|path| path != object)
        });
    }
}
