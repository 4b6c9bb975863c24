//! A pod with a deletion in progress, in one line.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{diagnosis::PodStage, finding::Finding, identity::Pod};

/// How much is known of which pods of the node are being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionsKnown {
    /// All of them: by the API server, or because the node has no pods.
    All,
    /// Those that a kubelet's log names. A busy or faulty kubelet may not have received a deletion, and its log may have been
    /// rotated since.
    Some,
    /// None: no kubelet acts on the node.
    None,
}

/// The facts of that line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Deleted {
    /// The pod.
    pub pod: Pod,
    /// When the deletion was requested, by the pod's record, or when kubelet learned of it, by its log.
    pub since: Option<Timestamp>,
    /// The stage of its deletion; `None` if the node could not be scanned.
    pub stage: Option<PodStage>,
    /// The most likely cause.
    pub cause: Option<Finding>,
    /// Whether watching longer would add nothing.
    pub is_known: bool,
    /// Whether another pod of this node has the same name, such as the predecessor of a recreated pod.
    pub is_ambiguous: bool,
}
