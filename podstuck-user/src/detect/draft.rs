//! A finding before it has a history.

use std::{path::PathBuf, sync::Arc};

use crate::model::{
    call::{Call, Outcome},
    finding::{Evidence, Remedy, Severity},
    identity::{Actor, Target},
    operation::Operation,
    time::Monotonic,
};

/// Kinds of cases; one finding for each target and family at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// EBUSY.
    Busy,
    /// EPERM.
    Permission,
    /// A removal inside a foreign mount.
    Crossing,
    /// Many deletions.
    Mass,
    /// Devices that are kept after their unmount.
    Pinned,
    /// Calls that do not return.
    Hung,
    /// Mounted, and nobody unmounts.
    Untried,
    /// Processes and cgroups that do not go.
    Survivor,
    /// File systems that are full or read-only.
    Space,
    /// Directories that do not become empty.
    Leftover,
    /// What the pod's record in the API says.
    Record,
}

/// What a detector concludes.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Which detector.
    pub family: Family,
    /// Name of the cause.
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// 0 to 1.
    pub confidence: f64,
    /// Whether the pod waits for it.
    pub blocks_deletion: Option<bool>,
    /// Hash that names the target.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// Who called; `None` when the fault is that nobody does.
    pub actor: Option<Arc<Actor>>,
    /// What was called.
    pub call: Option<Call>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The object.
    pub path: PathBuf,
    /// How often.
    pub count: u64,
    /// First time.
    pub first: Monotonic,
    /// Last time.
    pub last: Monotonic,
    /// Facts.
    pub evidence: Vec<Evidence>,
    /// Meaning.
    pub explanation: String,
    /// Ways out.
    pub remedies: Vec<Remedy>,
    /// What it is not.
    pub ruled_out: Vec<String>,
}

impl Draft {
    /// A draft about an operation, to be filled.
    pub(super) fn about(family: Family, id: &'static str, op: &Operation) -> Self {
        Self {
            actor: Some(op.actor.clone()),
            call: Some(op.call),
            outcome: Some(op.outcome),
            ..Self::about_state(
                family,
                id,
                op.target_id,
                op.target.clone(),
                op.path.clone(),
                op.end,
            )
        }
    }

    /// A draft about a state that nobody changes, seen at `at`, to be filled.
    pub(super) fn about_state(
        family: Family,
        id: &'static str,
        target_id: u64,
        target: Arc<Target>,
        path: PathBuf,
        at: Monotonic,
    ) -> Self {
        Self {
            family,
            id,
            severity: Severity::Warning,
            confidence: 0.5,
            blocks_deletion: None,
            target_id,
            target,
            actor: None,
            call: None,
            outcome: None,
            path,
            count: 1,
            first: at,
            last: at,
            evidence: Vec::new(),
            explanation: String::new(),
            remedies: Vec::new(),
            ruled_out: Vec::new(),
        }
    }

    /// Adds a fact.
    pub(super) fn fact(&mut self, fact: impl Into<String>, source: impl Into<String>) {
        self.evidence.push(Evidence::new(fact, source));
    }

    /// Adds a way out.
    pub(super) fn remedy(&mut self, command: impl Into<String>, risk: impl Into<String>) {
        self.remedies.push(Remedy { command: command.into(), risk: risk.into() });
    }
}

/// Where a record came from, for evidence.
pub(super) const PROBE: &str = "syscall probe";

/// `once`, `7 times`.
pub(super) fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}
