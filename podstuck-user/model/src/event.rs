//! Everything that the engine ever learns. A recording is these, in order.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_common::count::CallTotals;
use serde::{Deserialize, Serialize};

use crate::{
    call::{Call, Outcome},
    container::ContainerName,
    degraded::Degraded,
    holder::{About, Snapshot},
    identity::{Component, Pod, Target},
    node::NodeSample,
    node_record::NodeRecord,
    operation::Operation,
    pod_record::PodRecord,
    query::{Answer, Query, Question as _},
    raw_path,
    said::{Heard, Said},
    series::Span,
    stuck::StuckThread,
    summary::{Completeness, SelfCost, Start},
    time::{Clock, Monotonic},
};

/// What a run is, known before its first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Turns the time of events into the calendar's.
    pub clock: Clock,
    /// What is said first.
    pub start: Start,
    /// Inode number of the tool's own mount namespace, in which whoever reads a finding types; 0 when
    /// it could not be read.
    pub own_mnt_ns: u32,
    /// How long to wait before something is called a fault.
    pub thresholds: Thresholds,
    /// One question, one answer (`diagnose`), and not findings as they form.
    pub one_answer: bool,
    /// The pod that the run is restricted to.
    pub pod: Option<Pod>,
    /// The container that the run is restricted to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<ContainerName>,
    /// The directory that the run is restricted to.
    #[serde(with = "raw_path::option")]
    pub directory: Option<PathBuf>,
}

impl Run {
    /// Whether it is about one pod, container or directory, and not about the whole node.
    pub fn has_target(&self) -> bool {
        self.start.target.is_some()
    }

    /// Whether calls are seen.
    pub fn is_traced(&self) -> bool {
        self.thresholds.not_attempted < Thresholds::UNTRACED
    }
}

/// How long to wait before something is called a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// A call that has not returned.
    pub hung: Duration,
    /// A mount that nobody tries to unmount.
    pub not_attempted: Duration,
}

impl Thresholds {
    /// In place of [`Self::not_attempted`] where no calls are seen: longer than any run.
    pub const UNTRACED: Duration = Duration::from_secs(u32::MAX as u64);
}

impl Default for Thresholds {
    /// Two seconds, and two of kubelet's longest back-offs (`maxDurationBeforeRetry` of
    /// pkg/util/goroutinemap/exponentialbackoff: 2 min 2 s).
    fn default() -> Self {
        Self { hung: Duration::from_secs(2), not_attempted: Duration::from_secs(244) }
    }
}

/// One thing learnt, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// By the kernel's clock. Events of one source are in order; those of several may overlap by as
    /// long as a look takes.
    pub at: Monotonic,
    /// What.
    pub what: What,
}

/// What was learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The target behind an id, which events before and after name by the id.
    Named {
        /// Hash that names the target.
        target_id: u64,
        /// The target.
        target: Arc<Target>,
    },
    /// A call that was reported one by one.
    Operation(Box<Operation>),
    /// A call that a component's log tells of, from before the run or during it. It failed at that time;
    /// what holds now is to be looked at.
    Told(Box<Operation>),
    /// What a component's log says about a pod.
    Said(Box<Said>),
    /// From when on a component's log was read.
    Heard(Box<Heard>),
    /// The exact counts since the last drain, once a second: what a clock's tick is to the engine.
    Counts(Vec<Count>),
    /// How the node looks.
    Sample(Arc<NodeSample>),
    /// A thread that is stuck, or no longer is.
    Stuck(Box<StuckThread>),
    /// A phase of an unmount that no probe sees the end of.
    Phase {
        /// Which.
        span: Span,
        /// Hash that names the target.
        target_id: u64,
        /// The part that the caller plays.
        component: Component,
        /// How long it took.
        took: Duration,
    },
    /// An answer to a query.
    Answer {
        /// The query.
        query: Box<Query>,
        /// The answer.
        answer: Box<Answer>,
    },
    /// The pod's record, as the API server has it.
    Record {
        /// The record.
        record: Box<PodRecord>,
        /// The name of this node.
        node: String,
    },
    /// This node, as the API server has it.
    Node(Box<NodeRecord>),
    /// What may be missing up to now.
    Completeness(Completeness),
    /// What parts of the tool cannot do now. It comes when that changes.
    Degraded(Vec<Degraded>),
    /// The observation is over: what follows was on its way.
    WindowEnded,
    /// Everything is known, and what it cost.
    End(SelfCost),
}

impl What {
    /// What a search for holders has found, and what was asked.
    pub fn holders(&self) -> Option<(&Query, &Snapshot)> {
        match self {
            Self::Answer { query, answer } => {
                let (_, taken) = About::answered(query, answer)?;
                Some((query, taken.as_ref().ok()?))
            }
            _ => None,
        }
    }
}

/// Calls of one kind and latency since the last drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Hash that names the target; 0 for none.
    #[serde(rename = "t")]
    pub target_id: u64,
    /// The process that called.
    #[serde(rename = "p")]
    pub pid: u32,
    /// When it was started, in ticks since boot: with its id, this names it. `None` when unknown.
    #[serde(rename = "s", skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// What was called.
    #[serde(rename = "c")]
    pub call: Call,
    /// How it ended.
    #[serde(rename = "o")]
    pub outcome: Outcome,
    /// The part that the caller plays for this target.
    #[serde(rename = "w")]
    pub component: Component,
    /// Latency bucket (see [`podstuck_common::bucket`]).
    #[serde(rename = "b")]
    pub bucket: u16,
    /// How often.
    #[serde(rename = "n")]
    pub calls: u64,
    /// Summed duration in nanoseconds.
    #[serde(rename = "d")]
    pub total_ns: u64,
    /// The shortest in nanoseconds; 0 where it is not known.
    #[serde(rename = "l")]
    pub min_ns: u64,
    /// The longest; 0 in the same way.
    #[serde(rename = "m")]
    pub max_ns: u64,
}

impl Count {
    /// What the probes have counted.
    pub fn totals(&self) -> CallTotals {
        let Self { calls, total_ns, min_ns, max_ns, .. } = *self;
        CallTotals { calls, total_ns, min_ns, max_ns }
    }
}
