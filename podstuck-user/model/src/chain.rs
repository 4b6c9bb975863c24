//! Who waits for whom, from the deletion of a pod to what holds it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// A link of the chain. The next one is what this one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// Who must act: a component, a process, or an object.
    pub who: String,
    /// What it must do.
    pub must: String,
    /// What it waits for; `None` where that is not visible.
    pub waits_for: Option<String>,
    /// Since when this is so; `None` where that is not known.
    pub since: Option<Timestamp>,
    /// The fact that says so.
    pub fact: String,
    /// Where the fact was read.
    pub source: String,
}
