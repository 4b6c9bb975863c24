//! A pod with a deletion under way, in one line.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{diagnosis::PodStage, finding::Finding, identity::Pod};

/// What is known of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Deleted {
    /// The pod.
    pub pod: Pod,
    /// When somebody asked for it, by its record, or when kubelet heard so, by its log.
    pub since: Option<Timestamp>,
    /// How far it has come; `None` where nobody could look.
    pub stage: Option<PodStage>,
    /// What holds it, the most likely cause.
    pub cause: Option<Finding>,
    /// Whether to look for longer would add nothing.
    pub is_known: bool,
    /// Whether another pod of this node has the same name: one that was made anew leaves its predecessor.
    pub is_ambiguous: bool,
}
