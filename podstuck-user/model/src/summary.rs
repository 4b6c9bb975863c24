//! What a run was (`start`) and what it saw, lost and cost (`summary`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The first line of every run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// Of the tool.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// `fentry`, `kprobe`, `tracepoint`, or some of them with `+` between; see `probes_attached` for which call has which.
    pub backend: String,
    /// Names of the probes that fire.
    pub probes_attached: Vec<String>,
    /// Those that do not, each with the reason.
    pub probes_missing: Vec<String>,
    /// Ways to delete that no probe sees on this kernel, each with the reason.
    pub not_covered: Vec<String>,
    /// What the run is restricted to; `null` for the whole node.
    pub target: Option<String>,
    /// Directories that were searched for pods.
    pub roots_searched: Vec<String>,
    /// Which API server was asked, by which credentials and for what, or why it gave no answer; `None`
    /// where none was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api: Option<String>,
}

/// What may be missing from the counts and reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Completeness {
    /// Ring records that did not fit, or could not be decoded. Counts are not affected.
    pub events_lost: u64,
    /// Ring records held back by rate limits, without samples of directories. Counts are not
    /// affected.
    pub events_limited: u64,
    /// Calls whose entry was not seen: not counted.
    pub unmatched_exits: u64,
    /// Calls that were entered and whose return was not seen: not counted, since their outcome is unknown. They
    /// are known by the thread's next call, or because it has ended. Where `probes_skipped` is measured, most
    /// of them are in it, too.
    pub outcome_unknown: u64,
    /// Calls not followed or not counted because a table was full.
    pub map_full: u64,
    /// Calls not counted, because the kernel ran no program at their return: by its own count. `None` on
    /// kernels that do not count that.
    pub probes_skipped: Option<u64>,
    /// Deletions by io_uring: noticed, and not counted by their outcome.
    pub io_uring_deletions: u64,
    /// Times that the probes' tables could not be read in full (once a second they are). What was left in
    /// them is in the next counts; at the end of the run it is missing.
    pub drains_failed: u64,
    /// The longest time that a look at the node's state was overdue, in seconds, when it did not come
    /// back within a minute: what shows in no call was not noticed meanwhile. Otherwise 0. Counts are not
    /// affected.
    pub looks_late_s: u64,
    /// Objects that were followed and had to be forgotten, and questions about objects that were not
    /// asked, because there were too many: verdicts about them may be missing. Counts are not affected.
    pub objects_dropped: u64,
    /// Calls counted without a target: path too long or unreadable.
    pub unresolved: u64,
    /// Calls on paths that read like a target's and lie in no directory in which a kubelet or a runtime of this
    /// node is known to keep any: counted without a target.
    pub look_alikes: u64,
    /// One of them: its path and who made it. It is escaped already.
    pub look_alike: Option<String>,
    /// Where calls of the node's own processes have failed on what reads like a pod's directory, in no known kubelet's root
    /// directory: no cause was looked for there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<NotLookedAt>,
    /// Calls of the node's own processes on a pod's volumes that have not returned, and of which no cause is known yet:
    /// each in a sentence that is escaped already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_returned: Vec<String>,
    /// Probes that could not be attached or do not fire.
    pub probes_missing: Vec<String>,
    /// What a part of the tool could not do any more, or still waits for, each in a sentence: a helper that
    /// hangs, a thread that has ended, a disk that takes nothing. It is escaped already.
    pub degraded: Vec<String>,
}

impl Completeness {
    /// Whether it is known of something that it may be wrong, and no cause was looked for or found yet.
    pub fn is_open(&self) -> bool {
        !self.not_looked_at.is_empty() || !self.not_returned.is_empty()
    }

    /// Whether a count, an event or a look is missing. Rate limits are not a loss: every suppressed event
    /// is in the counts.
    pub fn lost_data(&self) -> bool {
        let missed = [
            self.events_lost,
            self.unmatched_exits,
            self.map_full,
            self.outcome_unknown,
            self.probes_skipped.unwrap_or(0),
            self.io_uring_deletions,
            self.drains_failed,
            self.looks_late_s,
            self.objects_dropped,
        ];
        let told = [&self.probes_missing, &self.degraded];
        missed.iter().any(|n| *n > 0) || told.iter().any(|list| !list.is_empty())
    }
}

/// A directory that may be a kubelet's root directory, and in which no cause was looked for. Its texts are escaped already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotLookedAt {
    /// The directory.
    pub root: String,
    /// Whose call failed there last, as in `kubelet (pid 7)`.
    pub process: String,
    /// That call and its outcome, as in `umount2 EBUSY`.
    pub call: String,
    /// Its path.
    pub path: String,
    /// How many have failed, as far as they were told one by one.
    pub failed: u64,
    /// Why the directory is not taken for a kubelet's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// What the tool itself cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SelfCost {
    /// CPU time of user space, in seconds.
    pub cpu_s: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Time of the probes in nanoseconds per call, entry and exit together; `None` unless asked for
    /// with `-v`.
    pub bpf_ns_per_call: Option<f64>,
}

/// Exact counts inside the target: call, then outcome.
pub type ByOutcome = BTreeMap<&'static str, BTreeMap<String, u64>>;

/// The last line of every run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// How long the run watched, in seconds.
    pub window_s: f64,
    /// All calls counted.
    pub calls: u64,
    /// The same by call and outcome.
    pub by_outcome: ByOutcome,
    /// What may be missing.
    pub completeness: Completeness,
    /// What it cost.
    #[serde(rename = "self")]
    pub cost: SelfCost,
}
