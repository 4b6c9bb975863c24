//! EBUSY again and again: on the removal of a directory it means a mount point in the caller's own
//! mount namespace (`vfs_rmdir` and `vfs_unlink`, fs/namei.c); on an unmount it means that somebody
//! uses the mount.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::{
    Case, Draft, Family, Needs,
    backoff::Attempts,
    busy_umount::{self, Held},
    busy_verdict, is_clean_up,
    umounts::Umounts,
};
use crate::{
    model::{call::Call, operation::Operation, path::JsonPath, time::Monotonic},
    state::{
        holders::{About, Snapshot},
        look::LookError,
        mounts::Mounts,
    },
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
    /// Who was seen to hold it when an unmount failed.
    pub(super) held: Option<Held>,
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
            held: None,
        });
        object.op = op.clone();
        object.count += 1 + u64::from(op.suppressed);
        let new_attempt = object.attempts.note(op.end);
        // A burst is told at its beginning and now and then.
        if !new_attempt && !object.count.is_multiple_of(16) {
            return None;
        }
        let (pid, namespace) = (op.actor.pid, op.mnt_ns);
        let needs = if op.call == Call::Umount2 {
            Needs::Holders(About::Mount { pid, namespace, path: JsonPath(op.path.clone()) })
        } else {
            Needs::Mounts { pid, namespace }
        };
        let (target_id, path) = (op.target_id, op.path.clone());
        Some(Case { family: Family::Busy, target_id, path, needs })
    }

    /// Decides about a removal by the mounts of its caller.
    pub(super) fn conclude(&self, case: &Case, mounts: Option<&Mounts>) -> Option<Draft> {
        let object = self.objects.get(&(case.target_id, case.path.clone()))?;
        if object.op.call == Call::Umount2 {
            return None;
        }
        // Its unmount failed before, and it is known why.
        if object.held.as_ref().is_some_and(Held::explains) {
            return busy_umount::verdict(object, None);
        }
        busy_verdict::removal(object, &self.umounts.on(&case.path), mounts)
    }

    /// Decides about an unmount by who holds on to the mount.
    pub(super) fn held(
        &mut self,
        case: &Case,
        taken: Result<Snapshot, LookError>,
    ) -> Option<Draft> {
        let object = self.objects.get_mut(&(case.target_id, case.path.clone()))?;
        let error = match taken {
            Ok(taken) => {
                Held::renew(&mut object.held, taken);
                None
            }
            Err(error) => Some(error),
        };
        busy_umount::verdict(object, error.as_ref())
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
