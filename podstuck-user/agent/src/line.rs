//! The part of `podstuck watch --output json` that the agent uses: schema `podstuck/v1`.

use podstuck_model::{
    evidence::Certainty,
    finding::{FindingState, Severity},
};
use serde::Deserialize;

/// One line.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The probes are attached and count.
    Start {},
    /// A finding is new, has changed, or is over.
    Finding(Box<Finding>),
    /// All other lines.
    #[serde(other)]
    Other,
}

/// A finding.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Finding {
    /// Id of the cause.
    pub(crate) id: String,
    /// New, changed or cleared.
    pub(crate) state: FindingState,
    /// Severity.
    pub(crate) severity: Severity,
    /// Certainty.
    pub(crate) certainty: Certainty,
    /// The stage that the pod's deletion has reached.
    pub(crate) stage: String,
    /// Whether it blocks the pod's deletion; `None` if unknown.
    pub(crate) blocks_deletion: Option<bool>,
    /// The affected pod.
    pub(crate) pod: Option<Pod>,
    /// The holder, in a few words.
    pub(crate) held_by: Option<String>,
    /// Explanation of the cause.
    pub(crate) explanation: String,
    /// The facts that support it.
    #[serde(default)]
    pub(crate) evidence: Vec<Evidence>,
    /// Steps that release the pod.
    #[serde(default)]
    pub(crate) remedies: Vec<Remedy>,
}

/// A pod; its names may be unknown.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    /// Its UID.
    pub(crate) uid: String,
    /// Its namespace.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: Option<String>,
}

/// A fact that supports a finding.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Evidence {
    /// The fact.
    pub(crate) fact: String,
}

/// A command, or advice.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Remedy {
    /// What the command does.
    pub(crate) does: Option<String>,
    /// The command.
    pub(crate) command: Option<String>,
    /// Advice, if there is no command.
    pub(crate) advice: Option<String>,
}
