//! This node as the API server has it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::Pod;

/// What the API server said about this node, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// What it is called there.
    pub node: String,
    /// When that was read.
    pub read: Timestamp,
    /// Its condition `Ready`, if it has one.
    pub ready: Option<Ready>,
    /// The drivers that its CSINode lists; `None` when that could not be read.
    pub drivers: Option<Vec<String>>,
    /// The pods in question that have a trace on this node and that the API server does not have.
    pub missing: Vec<Pod>,
}

impl NodeRecord {
    /// Whether the API server does not have this pod.
    pub fn lacks(&self, pod: Option<&Pod>) -> bool {
        pod.is_some_and(|pod| self.missing.iter().any(|missing| missing.uid == pod.uid))
    }
}

/// Whether kubelet is heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// In one word.
    pub reason: String,
}
