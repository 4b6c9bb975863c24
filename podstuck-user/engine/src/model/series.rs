//! Exact counts by series and latency bucket.

use std::collections::BTreeMap;

use podstuck_common::{bucket, record::CallTotals};
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    identity::Component,
};

/// What is measured: a call, or a phase of an unmount that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// A call, from entry to return.
    Call(Call),
    /// From the return of `umount2`, as probes see it, to the end of the file system's shutdown.
    AfterExit,
    /// From the execution of an unmounting program to its `umount2`.
    BeforeCall,
}

impl Span {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call(call) => call.name(),
            Self::AfterExit => "umount2/after-exit",
            Self::BeforeCall => "umount/before-call",
        }
    }
}

/// What one exported histogram is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// What was measured.
    pub span: Span,
    /// How it ended.
    pub outcome: Outcome,
    /// UID of the pod it was about; empty for none.
    pub pod: String,
    /// Volume, or kind of target without one; empty for none.
    pub volume: String,
    /// The part that the caller plays.
    pub component: Component,
}

/// One histogram: calls by latency bucket, and their summed duration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Calls in each bucket that has any (see [`podstuck_common::bucket`]).
    pub buckets: BTreeMap<u16, u64>,
    /// Calls in all buckets.
    pub calls: u64,
    /// Summed duration in nanoseconds, exact.
    pub total_ns: u64,
}

impl Series {
    /// Adds calls of one bucket.
    pub fn add(&mut self, bucket: u16, count: CallTotals) {
        *self.buckets.entry(bucket).or_default() += count.calls;
        self.calls += count.calls;
        self.total_ns += count.total_ns;
    }

    /// Adds all calls of another series.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, calls) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += calls;
        }
        self.calls += other.calls;
        self.total_ns += other.total_ns;
    }

    /// (nanoseconds that stand for the bucket, calls), ascending.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|(b, n)| (bucket::representative(*b), *n))
    }

    /// Exact mean duration in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total_ns as f64 / self.calls as f64 }
    }
}

/// All series of a run.
pub type SeriesTable = BTreeMap<SeriesKey, Series>;
