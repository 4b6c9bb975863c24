//! A pod as the API server has it: what `kubectl get pod NAME -o json` prints. The tool does not
//! ask for it, since the API may be what is broken; whoever has it may hand it over.

use std::{fs, io, path::Path};

use jiff::Timestamp;
use serde::Deserialize;
use thiserror::Error;

use super::uid::is_pod_uid;
use crate::model::{identity::Pod, path::safe_path, pod_record::PodRecord};

/// Far more than any pod has: the API server's own limit for one object is 1.5 MiB (etcd).
const MAX_BYTES: u64 = 8 << 20;
/// kubelet writes it into the record of a pod that it made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub(crate) enum RecordError {
    /// The file.
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
    /// The text.
    #[error("{0} is no pod as `kubectl get pod NAME -o json` prints it: {1}")]
    Shape(String, String),
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// Fails when it cannot be read, or is no pod.
pub(crate) fn read(path: &Path) -> Result<PodRecord, RecordError> {
    use io::Read as _;
    let name = safe_path(path).into_owned();
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
    };
    read.map_err(|error| RecordError::Read(name.clone(), error))?;
    parse(&text).map_err(|why| RecordError::Shape(name, why))
}

#[derive(Deserialize)]
struct Raw {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
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
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    #[serde(default)]
    state: std::collections::BTreeMap<String, serde_json::Value>,
}

fn parse(text: &str) -> Result<PodRecord, String> {
    let raw: Raw = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if raw.kind != "Pod" {
        return Err(format!("it is a {:?}; one pod is wanted", raw.kind));
    }
    let Metadata { uid, name, namespace, .. } = raw.metadata;
    // A mirror pod's own UID means nothing on the node; kubelet uses this one (config.hash).
    let hash = raw.metadata.annotations.get("kubernetes.io/config.hash");
    let uid = hash.cloned().unwrap_or(uid);
    if !is_pod_uid(uid.as_bytes()) {
        return Err(format!("its uid {uid:?} is none"));
    }
    let statuses = &raw.status.container_statuses;
    Ok(PodRecord {
        pod: Pod { uid, namespace: Some(namespace), name: Some(name) },
        deletion: raw.metadata.deletion_timestamp,
        grace_s: raw.metadata.deletion_grace_period_seconds.unwrap_or(0),
        finalizers: raw.metadata.finalizers,
        node: raw.spec.node_name,
        is_mirror: raw.metadata.annotations.contains_key(MIRROR),
        all_terminated: !statuses.is_empty()
            && statuses.iter().all(|status| status.state.contains_key("terminated")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"cart-0",
        "namespace":"shop","uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d",
        "deletionTimestamp":"2026-11-21T10:00:00Z","deletionGracePeriodSeconds":30,
        "finalizers":["batch.kubernetes.io/job-tracking"]},
        "spec":{"nodeName":"node-7","containers":[]},
        "status":{"containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":137}}}]}}"#;

    #[test]
    fn what_matters_is_read() {
        let record = parse(POD).unwrap();
        assert_eq!(record.pod.name.as_deref(), Some("cart-0"));
        assert_eq!(record.deletion.unwrap().to_string(), "2026-11-21T10:00:00Z");
        assert_eq!((record.grace_s, record.node.as_deref()), (30, Some("node-7")));
        assert_eq!(record.finalizers, ["batch.kubernetes.io/job-tracking"]);
        assert!(record.all_terminated && !record.is_mirror);
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
    fn what_is_no_pod_is_said_to_be_none() {
        for (text, word) in [
            ("", "EOF"),
            ("{}", "kind"),
            (r#"{"kind":"List","metadata":{"uid":"","name":""}}"#, "List"),
            (r#"{"kind":"Pod","metadata":{"uid":"../..","name":"x"}}"#, "uid"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
