//! Events that come by the hundred a second, written short: a target or a caller that was written before
//! is not written again, and counts are grouped by both.
//!
//! Writer and reader remember the same, because they see the same events in the same order.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_engine::bounded::Bounded;
use serde::{Deserialize, Serialize};

use crate::{
    event::Count,
    model::{
        call::{Call, Outcome},
        identity::{Actor, Component, Target},
        operation::Operation,
        raw_path,
        time::Monotonic,
    },
};

/// Targets and callers that are remembered.
const REMEMBERED: usize = 4096;

/// What was written before.
#[derive(Debug)]
pub(super) struct Known {
    targets: Bounded<u64, Arc<Target>>,
    callers: Bounded<u32, Arc<Actor>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { targets: Bounded::new(REMEMBERED), callers: Bounded::new(REMEMBERED) }
    }
}

/// An [`Operation`]. A target is left out where its id was written with the same, a caller where its
/// process was.
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
    /// Without what is known.
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

    /// With what is known; `None` where it is not.
    pub(super) fn restore(self, known: &mut Known) -> Option<Operation> {
        Some(Operation {
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
        })
    }
}

fn unless_known<K, V>(known: &mut Bounded<K, Arc<V>>, key: K, value: &Arc<V>) -> Option<Arc<V>>
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

fn or_known<K, V>(known: &mut Bounded<K, Arc<V>>, key: K, value: Option<Arc<V>>) -> Option<Arc<V>>
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

/// [`Count`]s of one process on one target: call, errno, bucket, calls and nanoseconds of each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SlimCounts {
    #[serde(rename = "t")]
    target_id: u64,
    #[serde(rename = "p")]
    pid: u32,
    #[serde(rename = "w")]
    component: Component,
    #[serde(rename = "r")]
    rows: Vec<(u8, u16, u16, u64, u64)>,
}

/// Groups counts, which are in the order of their targets and processes.
pub(super) fn group(counts: &[Count]) -> Vec<SlimCounts> {
    let same = |a: &Count, b: &Count| {
        (a.target_id, a.pid, a.component) == (b.target_id, b.pid, b.component)
    };
    let groups = counts.chunk_by(same).filter_map(|group| {
        let Count { target_id, pid, component, .. } = *group.first()?;
        let row = |c: &Count| (c.call as u8, c.outcome.0, c.bucket, c.calls, c.total_ns);
        Some(SlimCounts { target_id, pid, component, rows: group.iter().map(row).collect() })
    });
    groups.collect()
}

/// The counts again; `None` for a call that there is not.
pub(super) fn ungroup(groups: Vec<SlimCounts>) -> Option<Vec<Count>> {
    let counts = groups.into_iter().flat_map(|group| {
        let SlimCounts { target_id, pid, component, rows } = group;
        rows.into_iter().map(move |(call, errno, bucket, calls, total_ns)| {
            let (call, outcome) = (Call::from_code(call)?, Outcome(errno));
            Some(Count { target_id, pid, call, outcome, component, bucket, calls, total_ns })
        })
    });
    counts.collect()
}
