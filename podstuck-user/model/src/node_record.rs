//! This node's objects in the API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::Pod;

/// One read of this node's objects from the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name in the API.
    pub node: String,
    /// When it was read.
    pub read: Timestamp,
    /// Its condition `Ready`, if it has one.
    pub ready: Option<Ready>,
    /// kubelet's version, as it reports it: `v1.36.2`, `v1.27.3-gke.100`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet: Option<String>,
    /// The drivers that its CSINode lists; `None` if it could not be read.
    pub drivers: Option<Vec<String>>,
    /// The pods in question that have traces on this node and no object in the API.
    pub missing: Vec<Pod>,
}

impl NodeRecord {
    /// kubelet's minor version of Kubernetes 1, if known.
    pub fn kubelet_minor(&self) -> Option<u32> {
        self.kubelet.as_ref()?.strip_prefix("v1.")?.split('.').next()?.parse().ok()
    }

    /// Whether the API has no object for this pod.
    pub fn lacks(&self, pod: Option<&Pod>) -> bool {
        pod.is_some_and(|pod| self.missing.iter().any(|missing| missing.uid == pod.uid))
    }
}

/// The node's condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The reason, in one word.
    pub reason: String,
}
