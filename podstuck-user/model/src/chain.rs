//! The chain of waits, from the deletion of a pod to the process or object that blocks it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// A link of the chain. It waits for the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The component, process or object that must act.
    pub who: String,
    /// The action that is due.
    pub must: String,
    /// What it waits for; `None` where that is not visible.
    pub waits_for: Option<String>,
    /// Since when; `None` if unknown.
    pub since: Option<Timestamp>,
    /// The evidence, as a sentence.
    pub fact: String,
    /// The source of the evidence.
    pub source: String,
}
