//! Errors that say something about the file system, and not about the object: read-only, full,
//! broken, gone. The mount table and the device say which.

use std::{collections::HashMap, path::Path};

use nix::errno::Errno;

use super::{Case, Draft, Family, Needs, backoff::Attempts, errno_verdict, is_clean_up};
use crate::{
    model::{call::Call, operation::Operation, time::Monotonic},
    state::file_system::FileSystem,
};

/// Pods and other targets followed at a time.
const FOLLOWED: usize = 1024;
/// One attempt that fails proves little: it may have been a moment's.
const ATTEMPTS: u64 = 2;

/// The errors, each with what explains it elsewhere left out: EBUSY, EPERM, ENOTEMPTY, ENOTCONN.
const TELLING: [Errno; 12] = [
    Errno::EROFS,
    Errno::EIO,
    Errno::EUCLEAN,
    Errno::ENODEV,
    Errno::ENXIO,
    Errno::ESHUTDOWN,
    Errno::ESTALE,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EACCES,
    Errno::ENAMETOOLONG,
    Errno::EOVERFLOW,
];

/// A target with a call that failed.
pub(super) struct Failing {
    /// The last one.
    pub(super) op: Operation,
    /// Calls, those not reported one by one included.
    pub(super) count: u64,
    /// First failure.
    pub(super) first: Monotonic,
    /// By their time.
    pub(super) attempts: Attempts,
}

/// All of them. One for a pod: a file system that fails does so everywhere in it.
#[derive(Default)]
pub(super) struct Errnos {
    failing: HashMap<String, Failing>,
}

impl Errnos {
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Case> {
        let errno = op.outcome.errno().filter(|errno| TELLING.contains(errno))?;
        if !is_clean_up(op) {
            return None;
        }
        let key = key(op);
        let known = self.failing.get(&key);
        if known.is_none() && self.failing.len() >= FOLLOWED {
            return None;
        }
        // A pod has one finding, about what says most: read-only wins over everything, because the
        // kernel checks it first.
        if known.is_some_and(|known| rank(known.op.outcome.errno()) < rank(Some(errno))) {
            return None;
        }
        if known.is_some_and(|known| !known.op.outcome.is(errno)) {
            self.failing.remove(&key);
        }
        let failing = self.failing.entry(key).or_insert_with(|| Failing {
            op: op.clone(),
            count: 0,
            first: op.end,
            attempts: Attempts::default(),
        });
        failing.count += 1 + u64::from(op.suppressed);
        let new = failing.attempts.note(op.end);
        if new || failing.op.target_id == op.target_id {
            let (target_id, target) = (failing.op.target_id, failing.op.target.clone());
            failing.op = Operation { target_id, target, ..op.clone() };
        }
        (new && failing.attempts.count() >= ATTEMPTS).then(|| Case {
            family: Family::Space,
            target_id: failing.op.target_id,
            path: op.path.clone(),
            needs: Needs::FileSystem {
                pid: op.actor.pid,
                namespace: op.mnt_ns,
                // What is removed may be a mount point itself; what is unmounted is.
                path: match op.call {
                    Call::Umount2 => op.path.clone(),
                    _ => op.path.parent().unwrap_or(&op.path).to_owned(),
                },
            },
        })
    }

    pub(super) fn conclude(&self, case: &Case, found: Option<&FileSystem>) -> Option<Draft> {
        let failing = self.failing.values().find(|known| known.op.target_id == case.target_id)?;
        errno_verdict::draft(failing, found)
    }

    /// Calls that failed.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        let mut all = self.failing.values();
        all.find(|known| known.op.target_id == target_id).map(|known| known.count)
    }

    /// Forgets an object, or all of a target.
    pub(super) fn forget(&mut self, target_id: u64, path: Option<&Path>) {
        self.failing.retain(|_, known| {
            known.op.target_id != target_id || path.is_some_and(|path| path != known.op.path)
        });
    }
}

fn key(op: &Operation) -> String {
    let uid = op.target.pod.as_ref().map(|pod| pod.uid.clone());
    uid.unwrap_or_else(|| format!("{:x}", op.target_id))
}

fn rank(errno: Option<Errno>) -> usize {
    let position = errno.and_then(|errno| TELLING.iter().position(|known| *known == errno));
    position.unwrap_or(TELLING.len())
}

#[cfg(test)]
#[path = "errno_tests.rs"]
mod tests;
