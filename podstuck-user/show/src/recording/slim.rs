//! A compact form of operations, which come by the hundred a second. A target or a caller that was written before is
//! not repeated. An operation that differs from an earlier one only in its times is written as the number of that
//! one, the difference of its end to that of the previous operation, and its duration.
//!
//! Writer and reader hold the same state, because they see the same events in the same order.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_engine::bounded::Bounded;
use serde::{Deserialize, Serialize};

use super::numbered::Numbered;
use podstuck_model::{
    call::{Call, Outcome},
    identity::{Actor, Target},
    operation::Operation,
    raw_path,
    time::Monotonic,
};

/// Limit of targets and callers remembered.
const REMEMBERED: usize = 4096;

/// The values written before.
#[derive(Debug)]
pub(super) struct Known {
    targets: Bounded<u64, Arc<Target>, REMEMBERED>,
    callers: Bounded<u32, Arc<Actor>, REMEMBERED>,
    operations: Numbered<Operation>,
    /// End of the previous operation.
    end: Monotonic,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            targets: Bounded::default(),
            callers: Bounded::default(),
            operations: Numbered::new(REMEMBERED),
            end: Monotonic(0),
        }
    }
}

/// A repeated operation: its number, nanoseconds from the end of the previous operation to its own, its duration in
/// nanoseconds, and the number suppressed before it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Again(u32, i64, u64, u32);

impl Again {
    /// `None` for an operation that equals no earlier one. Call it for each operation.
    pub(super) fn new(op: &Operation, known: &mut Known) -> Option<Self> {
        let number = known.operations.number(timeless(op.clone()));
        let gap = op.end.0.wrapping_sub(known.end.0).cast_signed();
        known.end = op.end;
        let ns = u64::try_from(op.duration.as_nanos()).unwrap_or(u64::MAX);
        Some(Self(number?, gap, ns, op.suppressed))
    }

    /// The operation; `None` when its number is unknown.
    pub(super) fn restore(self, known: &mut Known) -> Option<Operation> {
        let Self(number, gap, ns, suppressed) = self;
        known.end = Monotonic(known.end.0.wrapping_add_signed(gap));
        let like = known.operations.get(number)?.clone();
        Some(Operation { end: known.end, duration: Duration::from_nanos(ns), suppressed, ..like })
    }
}

/// The operation without the fields that differ between repetitions.
fn timeless(op: Operation) -> Operation {
    Operation { end: Monotonic(0), duration: Duration::ZERO, suppressed: 0, ..op }
}

/// An [`Operation`]. A target is left out when its id was written with the same value, a caller when its process was.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SlimOperation {
    end: Monotonic,
    ns: u64,
    call: Call,
    outcome: Outcome,
    reason: u32,
    flaws: u16,
    flags: u32,
    #[serde(with = "raw_path")]
    path: PathBuf,
    target_id: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    target: Option<Arc<Target>>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    actor: Option<Arc<Actor>>,
    tid: u32,
    mnt_ns: u32,
    directory: (u32, u64),
    mount_id: u32,
    depth: u8,
    mount_depth: u8,
    suppressed: u32,
}

impl SlimOperation {
    /// Encodes an operation, without known values.
    pub(super) fn new(op: &Operation, known: &mut Known) -> Self {
        let Operation { end, duration, call, outcome, reason, flaws, flags, .. } = *op;
        let Operation { target_id, tid, mnt_ns, directory, mount_id, .. } = *op;
        let Operation { depth, mount_depth, suppressed, .. } = *op;
        Self {
            end,
            ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
            call,
            outcome,
            reason,
            flaws,
            flags,
            path: op.path.clone(),
            target_id,
            target: unless_known(&mut known.targets, target_id, &op.target),
            pid: op.actor.pid,
            actor: unless_known(&mut known.callers, op.actor.pid, &op.actor),
            tid,
            mnt_ns,
            directory,
            mount_id,
            depth,
            mount_depth,
            suppressed,
        }
    }

    /// Decodes an operation; `None` when a value left out is unknown.
    pub(super) fn restore(self, known: &mut Known) -> Option<Operation> {
        let op = Operation {
            end: self.end,
            duration: Duration::from_nanos(self.ns),
            call: self.call,
            outcome: self.outcome,
            reason: self.reason,
            flaws: self.flaws,
            flags: self.flags,
            path: self.path,
            target_id: self.target_id,
            target: or_known(&mut known.targets, self.target_id, self.target)?,
            actor: or_known(&mut known.callers, self.pid, self.actor)?,
            tid: self.tid,
            mnt_ns: self.mnt_ns,
            directory: self.directory,
            mount_id: self.mount_id,
            depth: self.depth,
            mount_depth: self.mount_depth,
            suppressed: self.suppressed,
            // A logged operation is written as a whole event.
            logged_in: None,
        };
        known.operations.push(timeless(op.clone()));
        known.end = op.end;
        Some(op)
    }
}

fn unless_known<K, V>(
    known: &mut Bounded<K, Arc<V>, REMEMBERED>,
    key: K,
    value: &Arc<V>,
) -> Option<Arc<V>>
where
    K: std::hash::Hash + Eq + Clone,
    V: PartialEq,
{
    let same = |before: &Arc<V>| Arc::ptr_eq(before, value) || before == value;
    if known.get_mut(&key).is_some_and(|before| same(before)) {
        return None;
    }
    known.insert(key, value.clone());
    Some(value.clone())
}

fn or_known<K, V>(
    known: &mut Bounded<K, Arc<V>, REMEMBERED>,
    key: K,
    value: Option<Arc<V>>,
) -> Option<Arc<V>>
where
    K: std::hash::Hash + Eq + Clone,
{
    match value {
        Some(value) => {
            known.insert(key, value.clone());
            Some(value)
        }
        None => known.get_mut(&key).cloned(),
    }
}
