//! A pod's object at the API server, as `kubectl get pod NAME -o json` prints it. podstuck requests it (`state/api`);
//! since the API server may be what is broken, the user can also pass a file.

use std::{io, path::Path};

use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};
use thiserror::Error;

use super::uid::is_pod_uid;
use podstuck_confine::given_file;
use podstuck_model::{
    claim::Claim,
    identity::Pod,
    path::safe_path,
    pod_record::{ContainerRecord, ContainerState, PodRecord},
};

/// Most bytes that are read. etcd limits an object to 1.5 MiB.
const MAX_BYTES: u64 = 8 << 20;
/// Annotation of a mirror pod, which kubelet creates for a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
    /// The text is no pod.
    #[error("{0} is not a pod as `kubectl get pod NAME -o json` prints it: {1}")]
    Shape(String, String),
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// Fails when it cannot be read, or is no pod.
pub fn read(path: &Path) -> Result<PodRecord, RecordError> {
    use io::Read as _;
    let name = safe_path(path).into_owned();
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text)
    } else {
        given_file::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
    };
    read.map_err(|error| RecordError::Read(name.clone(), error))?;
    parse(&text).map_err(|why| RecordError::Shape(name, why))
}

/// A pod, as the API server writes it.
#[derive(Deserialize)]
pub(crate) struct RawPod {
    /// Missing in an item of a list.
    kind: Option<String>,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// A list of pods.
#[derive(Deserialize)]
pub(crate) struct RawPods {
    items: Vec<RawPod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    name: String,
    #[serde(default)]
    namespace: String,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<u64>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    volumes: Vec<Volume>,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    #[serde(default)]
    resource_claims: Vec<ResourceClaim>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    name: String,
    #[serde(default)]
    volume_mounts: Vec<VolumeMount>,
    restart_policy: Option<String>,
    lifecycle: Option<Lifecycle>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    pre_stop: Option<IgnoredAny>,
    post_start: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceClaim {
    name: String,
    resource_claim_template_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeMount {
    name: String,
    mount_propagation: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
    /// A claim that is created with the pod.
    ephemeral: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

impl Volume {
    /// The volume's claim, for a pod of this name: an ephemeral one is named after both
    /// (component-helpers/storage/ephemeral, `VolumeClaimName`).
    fn claim(self, pod: &str) -> Option<Claim> {
        let made = self.ephemeral.map(|_| format!("{pod}-{}", self.name));
        let claim = self.persistent_volume_claim.map(|source| source.claim_name).or(made)?;
        let (volume_name, read, deletion) = (self.name, None, None);
        Some(Claim { volume_name, claim, read, deletion, bound: None, attachment: None })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    init_container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    resource_claim_statuses: Vec<ClaimStatus>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct ClaimStatus {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "containerID")]
    container_id: String,
    #[serde(default)]
    state: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Status {
    /// A container with the status that kubelet has reported.
    fn container(&self, container: &Container) -> ContainerRecord {
        let all = self.init_container_statuses.iter().chain(&self.container_statuses);
        let status = all.into_iter().find(|status| status.name == container.name);
        let state = |name: &str| status.and_then(|status| status.state.get(name));
        let (state, about) = match (state("running"), state("terminated")) {
            (Some(_), _) => (ContainerState::Running, None),
            (_, Some(about)) => (ContainerState::Terminated, Some(about)),
            _ => (ContainerState::Waiting, state("waiting")),
        };
        let reason = about.and_then(|about| about.get("reason")?.as_str().map(str::to_owned));
        let id = status.map(|status| status.container_id.clone()).filter(|id| !id.is_empty());
        let hooks = container.lifecycle.as_ref();
        let has_pre_stop = hooks.is_some_and(|it| it.pre_stop.is_some());
        let has_post_start = hooks.is_some_and(|it| it.post_start.is_some());
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let name = container.name.clone();
        ContainerRecord { name, is_sidecar, state, reason, id, has_pre_stop, has_post_start }
    }
}

/// Parses one pod, as the API server or `kubectl get pod -o json` writes it.
///
/// # Errors
/// Returns why the text is no object of one pod.
pub fn parse(text: &str) -> Result<PodRecord, String> {
    let raw: RawPod = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match raw.kind.as_deref() {
        Some("Pod") => raw.record(None),
        Some(other) => Err(format!("it is a {other:?}; one Pod is expected")),
        None => Err("it has no kind".into()),
    }
}

impl RawPods {
    /// The records of the list, without invalid ones.
    pub(crate) fn records(self, read: Timestamp) -> Vec<PodRecord> {
        self.items.into_iter().filter_map(|raw| raw.record(Some(read)).ok()).collect()
    }
}

impl RawPod {
    /// The record of the pod; `read` is when the API server returned it.
    ///
    /// # Errors
    /// Fails when its UID is invalid.
    pub(crate) fn record(self, read: Option<Timestamp>) -> Result<PodRecord, String> {
        let Metadata { uid, name, namespace, .. } = self.metadata;
        // A mirror pod's own UID means nothing on the node; kubelet uses this one (config.hash).
        let hash = self.metadata.annotations.get("kubernetes.io/config.hash");
        let uid = hash.cloned().unwrap_or(uid);
        if !is_pod_uid(uid.as_bytes()) {
            return Err(format!("its uid {uid:?} is not a UID"));
        }
        let volumes = self.spec.volumes.into_iter();
        let claims = volumes.filter_map(|volume| volume.claim(&name)).collect();
        let of_spec = self.spec.init_containers.iter().chain(&self.spec.containers);
        let of_status = of_spec.map(|container| self.status.container(container)).collect();
        let is_made = |claim: &ResourceClaim| {
            let mut made = self.status.resource_claim_statuses.iter();
            claim.resource_claim_template_name.is_none() || made.any(|it| it.name == claim.name)
        };
        let unmade = self.spec.resource_claims.iter().filter(|claim| !is_made(claim));
        let unmade_claims = unmade.map(|claim| claim.name.clone()).collect();
        let containers = self.spec.containers.into_iter().chain(self.spec.init_containers);
        let mounts = containers.flat_map(|container| container.volume_mounts);
        let both = mounts.filter(|it| it.mount_propagation.as_deref() == Some("Bidirectional"));
        let bidirectional = both.map(|mount| mount.name).collect();
        let statuses = &self.status.container_statuses;
        Ok(PodRecord {
            pod: Pod { uid, namespace: Some(namespace), name: Some(name) },
            deletion: self.metadata.deletion_timestamp,
            grace_s: self.metadata.deletion_grace_period_seconds.unwrap_or(0),
            finalizers: self.metadata.finalizers,
            node: self.spec.node_name,
            is_mirror: self.metadata.annotations.contains_key(MIRROR),
            all_terminated: !statuses.is_empty()
                && statuses.iter().all(|status| status.state.contains_key("terminated")),
            read,
            claims,
            bidirectional: Some(bidirectional),
            containers: Some(of_status),
            reason: self.status.reason.filter(|reason| !reason.is_empty()),
            unmade_claims,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"cart-0",
        "namespace":"shop","uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d",
        "deletionTimestamp":"2026-11-21T10:00:00Z","deletionGracePeriodSeconds":30,
        "finalizers":["batch.kubernetes.io/job-tracking"]},
        "spec":{"nodeName":"node-7","containers":[{"name":"app","volumeMounts":[
            {"name":"tmp","mountPath":"/tmp","mountPropagation":"Bidirectional"},
            {"name":"data","mountPath":"/data"}]}],"volumes":[
            {"name":"data","persistentVolumeClaim":{"claimName":"cart"}},
            {"name":"scratch","ephemeral":{"volumeClaimTemplate":{"spec":{}}}},
            {"name":"tmp","emptyDir":{}}]},
        "status":{"containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":137}}}]}}"#;

    #[test]
    fn fuzz_pod_record() {
        podstuck_fuzz::fuzz("pod_record", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = parse(&text);
            let list = serde_json::from_str::<RawPods>(&text);
            let _ = list.map(|list| list.records(Timestamp::UNIX_EPOCH));
        });
    }

    #[test]
    fn a_record_is_read() {
        let record = parse(POD).unwrap();
        assert_eq!(record.pod.name.as_deref(), Some("cart-0"));
        assert_eq!(record.deletion.unwrap().to_string(), "2026-11-21T10:00:00Z");
        assert_eq!((record.grace_s, record.node.as_deref()), (30, Some("node-7")));
        assert_eq!(record.finalizers, ["batch.kubernetes.io/job-tracking"]);
        assert!(record.all_terminated && !record.is_mirror);
        let claims: Vec<_> =
            record.claims.iter().map(|it| (it.volume_name.as_str(), it.claim.as_str())).collect();
        assert_eq!(claims, [("data", "cart"), ("scratch", "cart-0-scratch")]);
        assert_eq!(record.bidirectional, Some(vec!["tmp".into()]));
    }

    /// As in kubernetes issues 139772 and 125880.
    #[test]
    fn claims_and_containers_that_were_never_created_are_known() {
        let text = r#"{"kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d"},
            "spec":{"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"t"},{"name":"nic",
                "resourceClaimTemplateName":"t"},{"name":"own","resourceClaimName":"c"}],
            "initContainers":[{"name":"mesh","restartPolicy":"Always"}],
            "containers":[{"name":"app","lifecycle":{"preStop":{"exec":{"command":["true"]}}}}]},
            "status":{"reason":"TaintToleration","resourceClaimStatuses":[{"name":"nic","resourceClaimName":"x"}],
            "initContainerStatuses":[{"name":"mesh","containerID":"containerd://1","state":{"running":{}}}],
            "containerStatuses":[{"name":"app","containerID":"","state":{"waiting":{"reason":"PodInitializing"}}}]}}"#;
        let record = parse(text).unwrap();
        assert_eq!(
            (record.reason.as_deref(), record.never_started()),
            (Some("TaintToleration"), Some(false))
        );
        assert_eq!(record.unmade_claims, ["gpu"]);
        let [mesh, app] = &record.containers.as_ref().unwrap()[..] else { panic!() };
        assert_eq!(
            (mesh.state, mesh.is_sidecar, mesh.id.as_deref()),
            (ContainerState::Running, true, Some("containerd://1"))
        );
        assert_eq!(
            (app.state, app.has_pre_stop, app.reason.as_deref()),
            (ContainerState::Waiting, true, Some("PodInitializing"))
        );
        let waits = PodRecord { containers: Some(vec![app.clone()]), ..record };
        assert_eq!(waits.never_started(), Some(true));
        assert_eq!(parse(POD).unwrap().never_started(), Some(false));
    }

    #[test]
    fn a_list_is_read_without_invalid_pods() {
        let item = POD.replace(r#""apiVersion":"v1","kind":"Pod","#, "");
        let list =
            format!(r#"{{"kind":"PodList","items":[{item},{}]}}"#, item.replace("3f2a", "../"));
        let records =
            serde_json::from_str::<RawPods>(&list).unwrap().records(Timestamp::UNIX_EPOCH);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].read, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(PodRecord { read: None, ..records[0].clone() }, parse(POD).unwrap());
    }

    #[test]
    fn a_mirror_pod_goes_by_the_uid_that_its_node_knows() {
        let hash = "0123456789abcdef0123456789abcdef";
        let annotations = format!(
            r#""annotations":{{"kubernetes.io/config.hash":"{hash}","{MIRROR}":"x"}},"name""#
        );
        let record = parse(&POD.replacen(r#""name""#, &annotations, 1)).unwrap();
        assert!(record.is_mirror);
        assert_eq!(record.pod.uid, hash);
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, word) in [
            ("", "EOF"),
            ("{}", "metadata"),
            (r#"{"metadata":{"uid":"","name":""}}"#, "kind"),
            (r#"{"kind":"List","metadata":{"uid":"","name":""}}"#, "List"),
            (r#"{"kind":"Pod","metadata":{"uid":"../..","name":"x"}}"#, "uid"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
