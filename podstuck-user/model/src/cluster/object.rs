//! An object of the API, with those fields that the decision reads. One type has the fields of all kinds: what a kind does
//! not have is empty. A field of a form that is not documented makes the object unreadable, and never another one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Selector;

/// One object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    /// Its metadata.
    pub metadata: Meta,
    /// What it is to be.
    pub spec: Spec,
    /// What it is.
    pub status: Status,
    /// Of a webhook configuration.
    pub webhooks: Vec<Webhook>,
    /// Of an EndpointSlice; `null` where it has none.
    pub endpoints: Option<Vec<Endpoint>>,
}

/// What all objects have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// When it was made.
    pub creation_timestamp: Option<Timestamp>,
    /// Names it for ever.
    pub uid: String,
    /// Changes with each write.
    pub resource_version: String,
    /// The end of its grace, if its deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// That grace.
    pub deletion_grace_period_seconds: Option<i64>,
    /// What must be removed before the object is.
    pub finalizers: Vec<String>,
    /// What it belongs to.
    pub owner_references: Vec<Owner>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Who wrote which field.
    pub managed_fields: Vec<ManagedFields>,
}

impl Meta {
    /// When its deletion was requested.
    pub fn requested(&self) -> Option<Timestamp> {
        let grace = self.deletion_grace_period_seconds.unwrap_or_default().max(0);
        let end = self.deletion_timestamp?;
        // The grace of a last deletion by kubelet is 0, and does not move the end.
        end.checked_sub(std::time::Duration::from_secs(grace.unsigned_abs())).ok().or(Some(end))
    }

    /// Who set this finalizer, by the field managers, the last of them.
    pub fn setter(&self, finalizer: &str) -> Option<&ManagedFields> {
        let key = format!("v:\"{finalizer}\"");
        let has = |it: &&ManagedFields| {
            let fields = it.fields_v1.get("f:metadata").and_then(|it| it.get("f:finalizers"));
            fields.is_some_and(|fields| fields.get(&key).is_some())
        };
        self.managed_fields.iter().filter(has).max_by_key(|it| it.time)
    }
}

/// An object that this one belongs to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Its group and version.
    pub api_version: String,
    /// Its type.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it makes and deletes this object.
    pub controller: bool,
    /// Whether its foreground deletion waits for this object.
    pub block_owner_deletion: bool,
}

/// What one client wrote.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFields {
    /// The client, as it calls itself.
    pub manager: String,
    /// `Update` or `Apply`.
    pub operation: String,
    /// When it last changed one of these fields.
    pub time: Option<Timestamp>,
    /// These fields.
    pub fields_v1: Value,
}

/// The wanted state, of all kinds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Pod, VolumeAttachment: its node.
    pub node_name: String,
    /// Pod: volumes.
    pub volumes: Vec<PodVolume>,
    /// Pod: containers.
    pub containers: Vec<Container>,
    /// Claim: its volume.
    pub volume_name: String,
    /// PersistentVolume: its claim.
    pub claim_ref: Option<ClaimRef>,
    /// VolumeAttachment: the driver.
    pub attacher: String,
    /// VolumeAttachment: the volume.
    pub source: VolumeSource,
    /// Node: taints.
    pub taints: Vec<Taint>,
    /// Lease: who has it.
    pub holder_identity: Option<String>,
    /// Lease: how long it is good for after it was renewed.
    pub lease_duration_seconds: Option<i64>,
    /// Lease: when it was renewed.
    pub renew_time: Option<Timestamp>,
    /// Namespace: what must be removed before it is.
    pub finalizers: Vec<String>,
    /// Deployment, StatefulSet: how many pods it is to have.
    pub replicas: Option<i64>,
    /// Service: `ClusterIP`, `ExternalName`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// APIService: who serves it; none for the API server itself.
    pub service: Option<ServiceRef>,
}

/// A container that a pod is to have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    pub name: String,
}

/// A volume that a pod names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Its name in the pod.
    pub name: String,
    /// The claim.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// A claim that is made for the pod, and named after both.
    pub ephemeral: Option<Value>,
}

/// A claim by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    /// Its name.
    pub claim_name: String,
}

/// A claim with its UID.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What is attached.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSource {
    /// Its PersistentVolume.
    pub persistent_volume_name: Option<String>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its effect.
    pub effect: String,
}

/// The present state, of all kinds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Pod, claim, PersistentVolume, namespace.
    pub phase: String,
    /// PersistentVolume: why it is in that phase.
    pub message: String,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Pod: its containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// VolumeAttachment: whether it is attached.
    pub attached: bool,
    /// VolumeAttachment: why it cannot be detached.
    pub detach_error: Option<VolumeError>,
    /// Deployment: pods that are ready for long enough.
    pub available_replicas: i64,
    /// StatefulSet, ReplicaSet: pods that are ready.
    pub ready_replicas: i64,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// When the status changed.
    pub last_transition_time: Option<Timestamp>,
    /// Node: when kubelet last reported it.
    pub last_heartbeat_time: Option<Timestamp>,
}

/// A container as kubelet reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Has one of `waiting`, `running` and `terminated`.
    pub state: BTreeMap<String, Value>,
}

/// An error of a driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeError {
    /// When.
    pub time: Option<Timestamp>,
    /// What.
    pub message: String,
}

/// One webhook of a configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Webhook {
    /// Its name.
    pub name: String,
    /// Who is called.
    pub client_config: WebhookClient,
    /// What it is called for.
    pub rules: Vec<Rule>,
    /// `Fail` or `Ignore`: what happens when it cannot be called.
    pub failure_policy: Option<String>,
    /// In which namespaces.
    pub namespace_selector: Selector,
    /// For which objects.
    pub object_selector: Selector,
    /// For which requests.
    pub match_conditions: Vec<Value>,
    /// `Exact`: only for the versions of its rules.
    pub match_policy: Option<String>,
}

/// How a webhook is called.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WebhookClient {
    /// Where it is outside the cluster.
    pub url: Option<String>,
    /// Its service.
    pub service: Option<ServiceRef>,
}

/// A service by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Requests that a webhook is called for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// `UPDATE`, `DELETE`, ..., or `*`.
    pub operations: Vec<String>,
    /// Groups, or `*`.
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    pub api_versions: Vec<String>,
    /// Types and their parts, such as `pods`, `pods/status`, `*`, `*/*`.
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
}

/// An address behind a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Whether it is ready.
    pub conditions: EndpointConditions,
}

/// What is known of an address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// `None` counts as ready.
    pub ready: Option<bool>,
}

impl Object {
    /// A condition by its type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Whether this pod names the claim, as the protection of claims counts it: it has a node.
    pub fn uses_claim(&self, claim: &str) -> bool {
        let names = |volume: &PodVolume| match (&volume.persistent_volume_claim, &volume.ephemeral)
        {
            (Some(source), _) => source.claim_name == claim,
            (None, Some(_)) => format!("{}-{}", self.metadata.name, volume.name) == claim,
            (None, None) => false,
        };
        !self.spec.node_name.is_empty() && self.spec.volumes.iter().any(names)
    }

    /// Its owner that makes and deletes it.
    pub fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }
}
