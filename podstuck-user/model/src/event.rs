//! All inputs of the engine. A recording is a sequence of them.

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

/// The parameters of a run, known before its first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Converts the events' monotonic time to calendar time.
    pub clock: Clock,
    /// The first line of output.
    pub start: Start,
    /// Inode number of podstuck's own mount namespace, in which the reader of a finding runs commands; 0 if it could
    /// not be read.
    pub own_mnt_ns: u32,
    /// Durations after which a state counts as a fault.
    pub thresholds: Thresholds,
    /// One answer at the end (`diagnose`) instead of findings as they arise.
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
    /// Whether the run is about one pod, container or directory.
    pub fn has_target(&self) -> bool {
        self.start.target.is_some()
    }

    /// Whether probes observe calls.
    pub fn is_traced(&self) -> bool {
        self.thresholds.not_attempted < Thresholds::UNTRACED
    }
}

/// Durations after which a state counts as a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// For a call that has not returned.
    pub hung: Duration,
    /// For a mount that no process tries to unmount.
    pub not_attempted: Duration,
}

impl Thresholds {
    /// Replaces [`Self::not_attempted`] in a run without probes: longer than any run.
    pub const UNTRACED: Duration = Duration::from_secs(u32::MAX as u64);
}

impl Default for Thresholds {
    /// Two seconds, and two of kubelet's longest back-offs (`maxDurationBeforeRetry` of
    /// pkg/util/goroutinemap/exponentialbackoff: 2 min 2 s).
    fn default() -> Self {
        Self { hung: Duration::from_secs(2), not_attempted: Duration::from_secs(244) }
    }
}

/// An input of the engine with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Kernel time. Events of one source are in order; those of several sources may overlap by the duration of a
    /// scan.
    pub at: Monotonic,
    /// The input.
    pub what: What,
}

/// The inputs of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The target of an id; earlier and later events use the id alone.
    Named {
        /// Hash that names the target.
        target_id: u64,
        /// The target.
        target: Arc<Target>,
    },
    /// A call that was reported individually.
    Operation(Box<Operation>),
    /// A failed call from a component's log, before or during the run. Only a check shows whether the fault still
    /// exists.
    #[serde(rename = "told")]
    Logged(Box<Operation>),
    /// A component's log message about a pod.
    Said(Box<Said>),
    /// The period that a component's log covers.
    Heard(Box<Heard>),
    /// The exact counts since the last drain, once a second. It also serves as the engine's clock tick.
    Counts(Vec<Count>),
    /// A scan of the node.
    Sample(Arc<NodeSample>),
    /// A thread that is stuck, or no longer is.
    Stuck(Box<StuckThread>),
    /// A phase of an unmount whose end no probe sees.
    Phase {
        /// The phase.
        span: Span,
        /// Hash that names the target.
        target_id: u64,
        /// The caller's component.
        component: Component,
        /// Its duration.
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
    /// Events that may have been lost so far.
    Completeness(Completeness),
    /// The degraded parts of podstuck. Sent on change.
    Degraded(Vec<Degraded>),
    /// The observation has ended; later events were in flight.
    WindowEnded,
    /// The end of the run, with its cost.
    End(SelfCost),
}

impl What {
    /// The query and the result of a search for holders.
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

/// Calls with the same key and latency bucket since the last drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Hash that names the target; 0 for none.
    #[serde(rename = "t")]
    pub target_id: u64,
    /// The process that called.
    #[serde(rename = "p")]
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process. `None` if unknown.
    #[serde(rename = "s", skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// The call.
    #[serde(rename = "c")]
    pub call: Call,
    /// Its outcome.
    #[serde(rename = "o")]
    pub outcome: Outcome,
    /// The caller's component, for this target.
    #[serde(rename = "w")]
    pub component: Component,
    /// Latency bucket (see [`podstuck_common::bucket`]).
    #[serde(rename = "b")]
    pub bucket: u16,
    /// Number of calls.
    #[serde(rename = "n")]
    pub calls: u64,
    /// Sum of the durations in nanoseconds.
    #[serde(rename = "d")]
    pub total_ns: u64,
    /// The shortest duration in nanoseconds; 0 if unknown.
    #[serde(rename = "l")]
    pub min_ns: u64,
    /// The longest duration in nanoseconds; 0 if unknown.
    #[serde(rename = "m")]
    pub max_ns: u64,
}

impl Count {
    /// The counters of the probes.
    pub fn totals(&self) -> CallTotals {
        let Self { calls, total_ns, min_ns, max_ns, .. } = *self;
        CallTotals { calls, total_ns, min_ns, max_ns }
    }
}
