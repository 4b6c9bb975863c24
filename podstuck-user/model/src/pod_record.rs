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
    /// Its containers as kubelet has reported them; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub containers: Option<Vec<ContainerRecord>>,
    /// Why the pod as a whole has failed, by kubelet (`status.reason`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Its claims of resources that were to be made from a template, and that `status.resourceClaimStatuses` does not
    /// name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unmade_claims: Vec<String>,
}

impl PodRecord {
    /// Whether kubelet has reported no container of it as begun; `None` where it is not known.
    pub fn never_started(&self) -> Option<bool> {
        let containers = self.containers.as_ref()?;
        Some(containers.iter().all(|it| it.id.is_none() && it.state == ContainerState::Waiting))
    }
}

/// A container of a pod's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its name in the pod.
    pub name: String,
    /// Whether it is an init container that runs beside the others (`restartPolicy: Always`).
    pub is_sidecar: bool,
    /// What kubelet has reported last.
    pub state: ContainerState,
    /// Why it waits, or has ended, in a word.
    pub reason: Option<String>,
    /// Its runtime and id, as in `containerd://0a1b`; `None` before it was made.
    pub id: Option<String>,
    /// Whether it has a preStop hook.
    pub has_pre_stop: bool,
}

/// What a container does, by kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerState {
    /// It has not begun, or begins again.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Terminated,
}
