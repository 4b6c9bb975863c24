//! Objects of the API, as far as they matter (`k8s.io/api/core/v1`, `storage/v1`). Pods' are in
//! `identity::pod_record`.

use jiff::Timestamp;
use serde::Deserialize;

use crate::model::node_record::Ready;

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
}

impl RawNode {
    /// The boot of the machine that it is about.
    pub(super) fn boot_id(&self) -> &str {
        &self.status.node_info.boot_id
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
