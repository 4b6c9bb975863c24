//! What `podstuck watch --output json` prints, as far as the agent uses it: schema `podstuck/v1`.

use podstuck_model::{
    evidence::Certainty,
    finding::{FindingState, Severity},
};
use serde::Deserialize;

/// One line.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The probes count from now on.
    Start {},
    /// A finding is new, has changed, or is over.
    Finding(Box<Finding>),
    /// The rest is for people.
    #[serde(other)]
    Other,
}

/// A finding.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Finding {
    /// The cause.
    pub(crate) id: String,
    /// What has become of it.
    pub(crate) state: FindingState,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// How sure it is.
    pub(crate) certainty: Certainty,
    /// How far the pod's deletion has come.
    pub(crate) stage: String,
    /// Whether the pod waits for it; `None` where that is not known.
    pub(crate) blocks_deletion: Option<bool>,
    /// Whose it is.
    pub(crate) pod: Option<Pod>,
    /// What holds it, in a few words.
    pub(crate) held_by: Option<String>,
    /// What it means.
    pub(crate) explanation: String,
    /// What shows it.
    #[serde(default)]
    pub(crate) evidence: Vec<Evidence>,
    /// What releases the pod.
    #[serde(default)]
    pub(crate) remedies: Vec<Remedy>,
}

/// A pod, as far as its names are known.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    /// Its UID.
    pub(crate) uid: String,
    /// Its namespace.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: Option<String>,
}

/// A fact and where it comes from.
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
    /// In place of both.
    pub(crate) advice: Option<String>,
}
