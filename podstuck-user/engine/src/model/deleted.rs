//! A pod with a deletion under way, in one line.

use jiff::Timestamp;

use super::{diagnosis::PodStage, finding::Finding, identity::Pod};

/// What is known of it.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The pod.
    pub pod: Pod,
    /// When somebody asked for it, by its record.
    pub since: Option<Timestamp>,
    /// How far it has come; `None` where nobody could look.
    pub stage: Option<PodStage>,
    /// What holds it, the most likely cause.
    pub cause: Option<Finding>,
}
