//! What `kubectl podstuck` hands over of a pod's record: the node reads the same from it as from the whole.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops at the first surprise")]

use std::{fs, path::Path};

use podstuck_cluster::examine::part_of_record;
use podstuck_node::identity::pod_record;
use serde_json::{Value, json};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../podstuck-user/corpus/pod_record");

/// With all that is read of one.
fn rich() -> Value {
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}});
    let container = json!({"name": "a", "image": "i", "env": [{"name": "X", "value": "y"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}},
        "volumeMounts": [{"name": "data", "mountPath": "/d", "mountPropagation": "Bidirectional"}]});
    let ended = json!({"name": "a", "containerID": "containerd://0a", "state": {"terminated": {"reason": "Error", "exitCode": 1}}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "cart-0", "namespace": "shop", "uid": "2f9c1f0a-0000-4000-8000-000000000001",
            "deletionTimestamp": "2026-11-28T10:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": ["example.com/x"],
            "annotations": {"kubernetes.io/config.mirror": "m", "other": "o"}},
        "spec": {"nodeName": "n1", "volumes": [claim, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}],
            "containers": [container], "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "net", "resourceClaimTemplateName": "t"}]},
        "status": {"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended],
            "initContainerStatuses": [{"name": "s", "state": {"running": {}}}],
            "resourceClaimStatuses": [{"name": "net", "resourceClaimName": "c"}]},
    })
}

fn same(whole: &Value, folder: &Path) -> bool {
    let read = |pod: &Value| {
        let file = folder.join("pod.json");
        fs::write(&file, pod.to_string()).unwrap();
        pod_record::read(&file).ok()
    };
    let Some(record) = read(whole) else { return false };
    assert_eq!(read(&part_of_record(whole)), Some(record), "{whole:#}");
    true
}

#[test]
fn the_node_reads_the_same_from_the_part_as_from_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    assert!(same(&rich(), folder.path()));
    let mut compared = 0;
    for entry in fs::read_dir(CORPUS).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let Ok(whole) = serde_json::from_str(&text) else { continue };
        compared += usize::from(same(&whole, folder.path()));
    }
    assert!(compared > 0);
}
