//! An API object, with the fields that the decision reads. One type has the fields of all kinds; the fields of other
//! kinds are empty. A field of an undocumented form makes the object unreadable, so that it is never misread.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Selector;
use crate::csi;

/// An API object.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    /// Its metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: Spec,
    /// The current state.
    pub status: Status,
    /// Webhooks of a webhook configuration.
    pub webhooks: Vec<Webhook>,
    /// Endpoints of an EndpointSlice; `null` if it has none.
    pub endpoints: Option<Vec<Endpoint>>,
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Creation time.
    pub creation_timestamp: Option<Timestamp>,
    /// Unique over the lifetime of the cluster.
    pub uid: String,
    /// Changes with each write.
    pub resource_version: String,
    /// Changes with each write of the desired state.
    pub generation: i64,
    /// The end of the grace period, if deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// The grace period.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Finalizers that must be removed first.
    pub finalizers: Vec<String>,
    /// Its owners.
    pub owner_references: Vec<Owner>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The fields that each client has written.
    pub managed_fields: Vec<ManagedFields>,
}

impl Meta {
    /// The time at which its deletion was requested.
    pub fn requested(&self) -> Option<Timestamp> {
        let grace = self.deletion_grace_period_seconds.unwrap_or_default().max(0);
        let end = self.deletion_timestamp?;
        // kubelet's final deletion sets a grace period of 0 and does not change the end.
        end.checked_sub(std::time::Duration::from_secs(grace.unsigned_abs())).ok().or(Some(end))
    }

    /// The last write of another part than the status.
    pub fn last_change(&self) -> Option<&ManagedFields> {
        let is_change = |it: &&ManagedFields| {
            let fields = it.fields_v1.as_object();
            fields.is_some_and(|fields| fields.keys().any(|field| field != "f:status"))
        };
        self.managed_fields.iter().filter(is_change).max_by_key(|it| it.time)
    }

    /// The last field manager that set this finalizer.
    pub fn setter(&self, finalizer: &str) -> Option<&ManagedFields> {
        let key = format!("v:\"{finalizer}\"");
        let has = |it: &&ManagedFields| {
            let fields = it.fields_v1.get("f:metadata").and_then(|it| it.get("f:finalizers"));
            fields.is_some_and(|fields| fields.get(&key).is_some())
        };
        self.managed_fields.iter().filter(has).max_by_key(|it| it.time)
    }
}

/// The owner of an object.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
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
    /// Whether it is the controller of this object.
    pub controller: bool,
    /// Whether its foreground deletion waits for this object.
    pub block_owner_deletion: bool,
}

/// The fields that one client has written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFields {
    /// The client's name for itself.
    pub manager: String,
    /// `Update` or `Apply`.
    pub operation: String,
    /// Time of the last change of these fields.
    pub time: Option<Timestamp>,
    /// The fields.
    pub fields_v1: Value,
}

/// The desired state, of all kinds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Pod, VolumeAttachment: the node.
    pub node_name: String,
    /// Pod: volumes.
    pub volumes: Vec<PodVolume>,
    /// Pod: containers.
    pub containers: Vec<Container>,
    /// Pod: the ResourceClaims that it needs.
    pub resource_claims: Vec<PodResourceClaim>,
    /// ResourceSlice: the driver of its devices.
    pub driver: String,
    /// Claim: the volume.
    pub volume_name: String,
    /// PersistentVolume: the claim.
    pub claim_ref: Option<ClaimRef>,
    /// PersistentVolume: the volume of a CSI driver.
    pub csi: Option<CsiVolume>,
    /// VolumeAttachment: the driver.
    pub attacher: String,
    /// VolumeAttachment: the volume.
    pub source: VolumeSource,
    /// Node, Machine: the machine's name at its provider.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// BareMetalHost: the object that uses it.
    pub consumer_ref: Option<ClaimRef>,
    /// Node: taints.
    pub taints: Vec<Taint>,
    /// Lease: the holder.
    pub holder_identity: Option<String>,
    /// Lease: validity after a renewal.
    pub lease_duration_seconds: Option<i64>,
    /// Lease: time of the last renewal.
    pub renew_time: Option<Timestamp>,
    /// Namespace: finalizers that must be removed first.
    pub finalizers: Vec<String>,
    /// Deployment, ReplicaSet, StatefulSet: desired number of pods.
    pub replicas: Option<i64>,
    /// Deployment: how it replaces its pods.
    pub strategy: Strategy,
    /// DaemonSet: its pods.
    pub template: Template,
    /// Job: `TerminatingOrFailed` or `Failed`.
    pub pod_replacement_policy: String,
    /// Claim: access modes.
    pub access_modes: Vec<String>,
    /// Service: `ClusterIP`, `ExternalName`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// APIService: the service; `None` for the API server itself.
    pub service: Option<ServiceRef>,
}

/// How a Deployment replaces its pods.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Strategy {
    /// `RollingUpdate` or `Recreate`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The pods that a controller creates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Template {
    /// Their metadata.
    pub metadata: TemplateMeta,
}

/// The metadata of pods that a controller creates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    pub name: String,
}

/// A volume of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Its name in the pod.
    pub name: String,
    /// The claim, by name.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// A claim that is created for the pod, with a name from both.
    pub ephemeral: Option<Value>,
}

/// A ResourceClaim of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Its name in the pod.
    pub name: String,
    /// The ResourceClaim, by name.
    pub resource_claim_name: Option<String>,
    /// The template from which the ResourceClaim is created for the pod.
    pub resource_claim_template_name: Option<String>,
}

/// The devices of a ResourceClaim.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Allocation {
    /// The devices.
    pub devices: AllocatedDevices,
}

/// Allocated devices.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct AllocatedDevices {
    /// One entry a device.
    pub results: Vec<AllocatedDevice>,
}

/// An allocated device.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct AllocatedDevice {
    /// Its driver.
    pub driver: String,
}

/// An object that may use a ResourceClaim, in the namespace of the claim.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// Its API group; empty for the core group.
    pub api_group: String,
    /// Its type, in plural.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A claim by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    /// Its name.
    pub claim_name: String,
}

/// A claim with its UID.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolume {
    /// The driver.
    pub driver: String,
    /// The driver's name for it.
    pub volume_handle: String,
}

impl CsiVolume {
    /// Its name in the status of nodes (`GetUniqueVolumeNameFromSpec`).
    pub fn unique_name(&self) -> String {
        csi::unique_name(&self.driver, &self.volume_handle)
    }
}

/// The source of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSource {
    /// Its PersistentVolume.
    pub persistent_volume_name: Option<String>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its effect.
    pub effect: String,
}

/// The current state, of all kinds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Pod, claim, PersistentVolume, namespace.
    pub phase: String,
    /// PersistentVolume: the reason for its phase.
    pub message: String,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// ResourceClaim: its devices, if it is allocated.
    pub allocation: Option<Allocation>,
    /// ResourceClaim: those that may use it.
    pub reserved_for: Vec<Consumer>,
    /// Pod: the names of the ResourceClaims that were created from templates.
    pub resource_claim_statuses: Vec<PodResourceClaim>,
    /// Pod: container statuses.
    pub container_statuses: Vec<ContainerStatus>,
    /// Node: the attachable volumes that kubelet has not unmounted.
    pub volumes_in_use: Vec<String>,
    /// BareMetalHost: whether its power was on when its operator last looked.
    pub powered_on: Option<bool>,
    /// BareMetalHost, Machine: time of the last change of the status.
    pub last_updated: Option<Timestamp>,
    /// Machine of OpenShift: the instance at its provider.
    pub provider_status: Option<ProviderStatus>,
    /// VolumeAttachment: whether it is attached.
    pub attached: bool,
    /// VolumeAttachment: why detaching failed.
    pub detach_error: Option<VolumeError>,
    /// Deployment: number of available pods.
    pub available_replicas: i64,
    /// StatefulSet, ReplicaSet: number of ready pods.
    pub ready_replicas: i64,
    /// DaemonSet: the generation that its controller has processed.
    pub observed_generation: i64,
    /// DaemonSet: number of nodes that have to run its pod.
    pub desired_number_scheduled: i64,
    /// DaemonSet: number of those nodes that have its pod.
    pub current_number_scheduled: i64,
    /// DaemonSet: number of other nodes that have its pod.
    pub number_misscheduled: i64,
}

/// A machine at its provider.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderStatus {
    /// The provider's word for the state of the instance, such as `running` or `terminated`.
    pub instance_state: Option<String>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, in one word.
    pub reason: String,
    /// The reason, in a sentence.
    pub message: String,
    /// Time of the last change of the status.
    pub last_transition_time: Option<Timestamp>,
    /// Node: time of kubelet's last report.
    pub last_heartbeat_time: Option<Timestamp>,
}

/// A container status.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// One of `waiting`, `running` and `terminated`.
    pub state: BTreeMap<String, Value>,
}

/// A driver's error.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct VolumeError {
    /// Time of the error.
    pub time: Option<Timestamp>,
    /// The error.
    pub message: String,
}

/// One webhook of a configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Webhook {
    /// Its name.
    pub name: String,
    /// How it is called.
    pub client_config: WebhookClient,
    /// The requests that it is called for.
    pub rules: Vec<Rule>,
    /// `Fail` or `Ignore`: the result if it cannot be called.
    pub failure_policy: Option<String>,
    /// Selects the namespaces.
    pub namespace_selector: Selector,
    /// Selects the objects.
    pub object_selector: Selector,
    /// Selects the requests.
    pub match_conditions: Vec<Value>,
    /// `Exact`: it is called only for the versions in its rules.
    pub match_policy: Option<String>,
}

/// The address of a webhook.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct WebhookClient {
    /// The URL, if it is outside the cluster.
    pub url: Option<String>,
    /// Its service.
    pub service: Option<ServiceRef>,
}

/// A service by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The requests that a webhook is called for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// `UPDATE`, `DELETE`, ..., or `*`.
    pub operations: Vec<String>,
    /// Groups, or `*`.
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    pub api_versions: Vec<String>,
    /// Types and subresources, such as `pods`, `pods/status`, `*`, `*/*`.
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
}

/// An address behind a service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Endpoint {
    /// Whether it is ready.
    pub conditions: EndpointConditions,
}

/// The conditions of an endpoint.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
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

    /// Whether this pod uses the claim, as the claim protection controller counts it: it names the claim and has a
    /// node.
    pub fn uses_claim(&self, claim: &str) -> bool {
        let names = |volume: &PodVolume| match (&volume.persistent_volume_claim, &volume.ephemeral)
        {
            (Some(source), _) => source.claim_name == claim,
            (None, Some(_)) => format!("{}-{}", self.metadata.name, volume.name) == claim,
            (None, None) => false,
        };
        !self.spec.node_name.is_empty() && self.spec.volumes.iter().any(names)
    }

    /// Its controller.
    pub fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }
}
