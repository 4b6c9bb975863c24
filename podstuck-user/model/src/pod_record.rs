//! A pod as the API server has it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{claim::Claim, identity::Pod};

/// What of a pod's record matters for its deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Who it is.
    pub pod: Pod,
    /// When it may be killed at the latest (`deletionTimestamp`: the request's time and the grace
    /// period); `None` while nobody has deleted it.
    pub deletion: Option<Timestamp>,
    /// Seconds of grace that it was given.
    pub grace_s: u64,
    /// Who must agree before the record goes.
    pub finalizers: Vec<String>,
    /// Where it runs; `None` before it was scheduled.
    pub node: Option<String>,
    /// Whether kubelet made it from a file, and makes it again as long as the file is there.
    pub is_mirror: bool,
    /// Whether every container has ended, by kubelet's last report.
    pub all_terminated: bool,
    /// When the API server said so; `None` where somebody handed it over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<Timestamp>,
    /// Its volumes that are PersistentVolumeClaims.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub claims: Vec<Claim>,
    /// Its volumes that a container mounts with mountPropagation Bidirectional; `None` where it is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bidirectional: Option<Vec<String>>,
}
