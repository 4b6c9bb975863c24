//! The fields of API objects that are used (`k8s.io/api/core/v1`, `storage/v1`). Pods' are in
//! `identity::pod_record`.

use jiff::Timestamp;
use serde::Deserialize;

use podstuck_model::{
    claim::{Attachment, Deletion},
    node_record::Ready,
};

#[derive(Deserialize)]
pub(super) struct RawNode {
    status: NodeStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    last_transition_time: Option<Timestamp>,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    #[serde(rename = "kubeletVersion")]
    kubelet_version: Option<String>,
}

impl RawNode {
    /// The boot of the machine that it is about.
    pub(super) fn boot_id(&self) -> &str {
        &self.status.node_info.boot_id
    }

    /// kubelet's version, if it reports one.
    pub(super) fn kubelet(&self) -> Option<String> {
        self.status.node_info.kubelet_version.clone()
    }

    /// Its condition `Ready`.
    pub(super) fn ready(self) -> Option<Ready> {
        let ready = self.status.conditions.into_iter().find(|one| one.r#type == "Ready")?;
        let Condition { status, last_transition_time: since, reason, .. } = ready;
        Some(Ready { status, since, reason })
    }
}

#[derive(Deserialize)]
pub(super) struct RawCsiNode {
    #[serde(default)]
    spec: CsiNodeSpec,
}

#[derive(Default, Deserialize)]
struct CsiNodeSpec {
    drivers: Option<Vec<Driver>>,
}

#[derive(Deserialize)]
struct Driver {
    name: String,
}

impl RawCsiNode {
    /// The drivers that kubelet has registered.
    pub(super) fn names(self) -> Vec<String> {
        self.spec.drivers.into_iter().flatten().map(|driver| driver.name).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    finalizers: Vec<String>,
}

impl Metadata {
    fn deletion(self) -> Option<Deletion> {
        self.deletion_timestamp.map(|at| Deletion { at, finalizers: self.finalizers })
    }
}

/// A PersistentVolumeClaim.
#[derive(Deserialize)]
pub(super) struct RawClaim {
    metadata: Metadata,
    #[serde(default)]
    spec: ClaimSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    volume_name: Option<String>,
}

impl RawClaim {
    /// Whether it is to go, and the name of what it is bound to.
    pub(super) fn deletion_and_volume(self) -> (Option<Deletion>, Option<String>) {
        (self.metadata.deletion(), self.spec.volume_name)
    }
}

/// A PersistentVolume.
#[derive(Deserialize)]
pub(super) struct RawVolume {
    metadata: Metadata,
    #[serde(default)]
    spec: VolumeSpec,
}

#[derive(Default, Deserialize)]
struct VolumeSpec {
    csi: Option<CsiVolume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsiVolume {
    driver: String,
    volume_handle: String,
}

impl RawVolume {
    /// Whether it is to go, and its driver and what that one calls it.
    pub(super) fn deletion_and_csi(self) -> (Option<Deletion>, Option<(String, String)>) {
        let csi = self.spec.csi.map(|csi| (csi.driver, csi.volume_handle));
        (self.metadata.deletion(), csi)
    }
}

#[derive(Deserialize)]
pub(super) struct RawCsiDriver {
    #[serde(default)]
    spec: CsiDriverSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsiDriverSpec {
    attach_required: Option<bool>,
}

impl RawCsiDriver {
    /// Whether its volumes have to be attached.
    pub(super) fn attaches(self) -> bool {
        self.spec.attach_required.unwrap_or(true)
    }
}

#[derive(Deserialize)]
pub(super) struct RawAttachment {
    metadata: Metadata,
    #[serde(default)]
    status: AttachmentStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentStatus {
    #[serde(default)]
    attached: bool,
    detach_error: Option<VolumeError>,
}

#[derive(Deserialize)]
struct VolumeError {
    #[serde(default)]
    message: String,
}

impl RawAttachment {
    /// How far it is attached.
    pub(super) fn attachment(self) -> Attachment {
        Attachment::There {
            attached: self.status.attached,
            deletion: self.metadata.deletion_timestamp,
            detach_error: self.status.detach_error.map(|error| error.message),
        }
    }
}
