//! A pod's object in the API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{claim::Claim, identity::Pod};

/// The fields of a pod's object that matter for its deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Who it is.
    pub pod: Pod,
    /// `deletionTimestamp`: the time of the request plus the grace period; `None` if no deletion was requested.
    pub deletion: Option<Timestamp>,
    /// Grace period in seconds.
    pub grace_s: u64,
    /// Finalizers that must be removed first.
    pub finalizers: Vec<String>,
    /// Its node; `None` before it is scheduled.
    pub node: Option<String>,
    /// Whether it is a mirror pod: kubelet recreates it while the static pod's manifest exists.
    pub is_mirror: bool,
    /// Whether every container has terminated, by kubelet's last status.
    pub all_terminated: bool,
    /// When it was read from the API server; `None` if it came from a file (`--pod-json`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<Timestamp>,
    /// Its volumes that are PersistentVolumeClaims.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub claims: Vec<Claim>,
    /// Its volumes that a container mounts with mountPropagation Bidirectional; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bidirectional: Option<Vec<String>>,
    /// Its container statuses; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub containers: Option<Vec<ContainerRecord>>,
    /// `status.reason`: why the pod as a whole has failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Its resource claims from templates that `status.resourceClaimStatuses` does not name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unmade_claims: Vec<String>,
}

impl PodRecord {
    /// Whether kubelet has reported no container as started; `None` if unknown.
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
    /// Whether it is a sidecar: an init container with `restartPolicy: Always`.
    pub is_sidecar: bool,
    /// The last reported state.
    pub state: ContainerState,
    /// The reason for which it waits or has terminated, in one word.
    pub reason: Option<String>,
    /// Its runtime and id, such as `containerd://0a1b`; `None` before it is created.
    pub id: Option<String>,
    /// Whether it has a preStop hook.
    pub has_pre_stop: bool,
    /// Whether it has a postStart hook.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub has_post_start: bool,
}

impl ContainerRecord {
    /// Whether Docker has it, and its ID; `None` before it is created, or for what is no ID.
    pub fn docker_and_id(&self) -> Option<(bool, &str)> {
        let (runtime, id) = self.id.as_deref()?.split_once("://")?;
        let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
        is_id.then_some((runtime == "docker", id))
    }

    /// Whether kubelet has not reported it as started, and no failure of its start either: the reasons are those that
    /// kubelet gives before it has tried.
    pub fn is_being_started(&self) -> bool {
        let usual = [None, Some("ContainerCreating"), Some("PodInitializing")];
        self.state == ContainerState::Waiting && usual.contains(&self.reason.as_deref())
    }
}

/// The state of a container, by kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerState {
    /// It has not started, or restarts.
    Waiting,
    /// It is running.
    Running,
    /// It has terminated.
    Terminated,
}
