//! The parameters of a run (`start`) and its totals, losses and cost (`summary`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{path::safe, words::plural};

/// The first line of every run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// Version of podstuck.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// `fentry`, `kprobe`, `tracepoint`, or some of them with `+` between; see `probes_attached` for which call has which.
    pub backend: String,
    /// Names of the probes that work.
    pub probes_attached: Vec<String>,
    /// Probes that do not, each with the reason.
    pub probes_missing: Vec<String>,
    /// Ways of deletion that no probe sees on this kernel, each with the reason.
    pub not_covered: Vec<String>,
    /// The target of the run; `null` for the whole node.
    pub target: Option<String>,
    /// Directories searched for pods.
    pub roots_searched: Vec<String>,
    /// The API server that was asked, the credentials and the request, or why it did not answer; `None` if none was
    /// asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api: Option<String>,
}

/// Data that may be missing from counts and reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Completeness {
    /// Ring records that did not fit or could not be decoded. Counts are not affected.
    pub events_lost: u64,
    /// Ring records suppressed by rate limits, without samples of directories. Counts are not affected.
    pub events_limited: u64,
    /// Calls whose entry was not seen: not counted.
    pub unmatched_exits: u64,
    /// Calls whose return was not seen, detected by the thread's next call or its end: not counted, since their
    /// outcome is unknown. Where `probes_skipped` is measured, most of them are in it, too.
    pub outcome_unknown: u64,
    /// Calls not followed or not counted because a table was full.
    pub map_full: u64,
    /// Calls not counted because the kernel did not run the probe at their return, by the kernel's own count. `None`
    /// on kernels without that count.
    pub probes_skipped: Option<u64>,
    /// Deletions by io_uring: detected, but not counted by outcome.
    pub io_uring_deletions: u64,
    /// Failed reads of the probes' tables, which are read once a second. The next read includes the remaining data;
    /// at the end of the run it is lost.
    pub drains_failed: u64,
    /// The longest delay of a scan of the node, in seconds, if it took more than a minute; otherwise 0. Faults that
    /// no call shows were not detected meanwhile. Counts are not affected.
    pub looks_late_s: u64,
    /// Objects that were dropped and questions that were not asked, because there were too many: verdicts about them
    /// may be missing. Counts are not affected.
    pub objects_dropped: u64,
    /// Calls counted without a target: path too long or unreadable.
    pub unresolved: u64,
    /// Calls on paths with the form of a target outside of all known directories of kubelets and runtimes: counted
    /// without a target.
    pub look_alikes: u64,
    /// One of them: its path and caller, already escaped.
    pub look_alike: Option<String>,
    /// Directories with the form of a pod's directory, outside of all known kubelet roots, on which calls of the
    /// node's own processes failed: no cause was searched for there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<NotLookedAt>,
    /// Calls of the node's own processes on a pod's volumes that have not returned and have no known cause: each a
    /// sentence, already escaped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_returned: Vec<String>,
    /// Probes that could not be attached or do not fire.
    pub probes_missing: Vec<String>,
    /// Parts of podstuck that have failed or still wait, each in a sentence, already escaped: a hung helper process,
    /// an ended thread, a full disk.
    pub degraded: Vec<String>,
}

impl Completeness {
    /// Adds the numbers of another run.
    pub fn add_losses(&mut self, other: &Self) {
        let numbers = [
            (&mut self.events_lost, other.events_lost),
            (&mut self.events_limited, other.events_limited),
            (&mut self.unmatched_exits, other.unmatched_exits),
            (&mut self.outcome_unknown, other.outcome_unknown),
            (&mut self.map_full, other.map_full),
            (&mut self.io_uring_deletions, other.io_uring_deletions),
            (&mut self.drains_failed, other.drains_failed),
            (&mut self.unresolved, other.unresolved),
            (&mut self.look_alikes, other.look_alikes),
        ];
        for (own, it) in numbers {
            *own = own.saturating_add(it);
        }
        if let Some(skipped) = other.probes_skipped {
            *self.probes_skipped.get_or_insert(0) += skipped;
        }
    }

    /// Whether a possible fault was seen for which no cause was searched or found.
    pub fn is_open(&self) -> bool {
        !self.not_looked_at.is_empty() || !self.not_returned.is_empty()
    }

    /// Whether a count, an event or a scan is missing. Rate limits are not a loss: the counts include every
    /// suppressed event.
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
        let reported = [&self.probes_missing, &self.degraded];
        missed.iter().any(|n| *n > 0) || reported.iter().any(|list| !list.is_empty())
    }

    /// Each loss with its meaning. Empty if and only if no data was lost.
    pub fn losses(&self) -> Vec<String> {
        let counted = [
            (
                self.events_lost,
                "event",
                "events",
                "did not fit the ring: details are missing, the counts are not affected",
            ),
            (
                self.unmatched_exits,
                "call",
                "calls",
                "returned without an entry seen (most were under way when tracing began): not counted",
            ),
            (self.map_full, "call", "calls", "met a full table: not followed or not counted"),
            (
                self.probes_skipped.unwrap_or(0),
                "call",
                "calls",
                "not seen: the kernel ran no probes on that CPU at that moment",
            ),
            (
                self.outcome_unknown,
                "call",
                "calls",
                "entered and not seen to return: outcome unknown, not counted",
            ),
            (
                self.io_uring_deletions,
                "deletion",
                "deletions",
                "by io_uring noticed but not counted: io_uring makes no system call for each",
            ),
            (
                self.drains_failed,
                "time",
                "times",
                "the probes' tables could not be read in full: counts came later, the last ones may be missing",
            ),
            (
                self.objects_dropped,
                "object",
                "objects",
                "forgotten because too many were followed: findings about them may be missing, the counts \
                 are not affected",
            ),
        ];
        let mut out: Vec<String> = counted
            .into_iter()
            .filter(|(n, ..)| *n > 0)
            .map(|(n, one, many, meaning)| format!("{} {meaning}", plural(n, one, many)))
            .collect();
        if self.looks_late_s > 0 {
            let seconds = plural(self.looks_late_s, "second", "seconds");
            out.push(format!(
                "the node's state was not scanned for {seconds}: mounts that no process unmounts and processes \
                 that do not end were not noticed in that time; the counts are not affected"
            ));
        }
        out.extend(self.probes_missing.iter().map(|probe| {
            format!("probe missing, so its events were not seen: {}", safe(probe.as_bytes()))
        }));
        out.extend(self.degraded.iter().map(|what| safe(what.as_bytes()).into_owned()));
        out
    }
}

/// A directory that may be a kubelet root and that was not searched for causes. Its texts are already escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotLookedAt {
    /// The directory.
    pub root: String,
    /// The process whose call failed there last, such as `kubelet (pid 7)`.
    pub process: String,
    /// That call and its outcome, such as `umount2 EBUSY`.
    pub call: String,
    /// Its path.
    pub path: String,
    /// Number of failed calls that were reported individually.
    pub failed: u64,
    /// Why the directory is not taken for a kubelet root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// The cost of podstuck itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SelfCost {
    /// User-space CPU time in seconds.
    pub cpu_s: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Nanoseconds of the probes per call, entry and exit together; `None` unless requested with `-v`.
    pub bpf_ns_per_call: Option<f64>,
}

/// Exact counts for the target: by call, then by outcome.
pub type ByOutcome = BTreeMap<&'static str, BTreeMap<String, u64>>;

/// The last line of every run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// Duration of the observation in seconds.
    pub window_s: f64,
    /// Number of all calls.
    pub calls: u64,
    /// The same by call and outcome.
    pub by_outcome: ByOutcome,
    /// Data that may be missing.
    pub completeness: Completeness,
    /// The cost of podstuck itself.
    #[serde(rename = "self")]
    pub cost: SelfCost,
}
