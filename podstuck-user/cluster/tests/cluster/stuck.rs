//! The objects that are made stuck, each by its own mechanism.

use std::fs;

use serde_json::{Value, json};

use super::{
    Workstation,
    objects::{claim, finalizer, object},
};

pub(super) fn pod(name: &str, node: &str, claim: Option<&str>, metadata: &Value) -> Value {
    let volumes: Vec<Value> = claim
        .iter()
        .map(|claim| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let spec = json!({"nodeName": node, "terminationGracePeriodSeconds": 0, "volumes": volumes,
        "containers": [{"name": "a", "image": "example.com/none"}]});
    object("v1", "Pod", "shop", name, &json!({"metadata": metadata, "spec": spec}))
}

/// A pod on the node whose kubelet is a stand-in.
pub(super) fn on_n2(namespace: &str, name: &str) -> Value {
    let mut pod = pod(name, "n2", None, &json!({}));
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    pod
}

fn attachment(name: &str, volume: &str, node: &str) -> Value {
    let spec = json!({"attacher": "disk.example.com", "nodeName": node, "source": {"persistentVolumeName": volume}});
    let more = json!({"metadata": {"finalizers": [ATTACHER]}, "spec": spec});
    object("storage.k8s.io/v1", "VolumeAttachment", "", name, &more)
}

/// The finalizer of an attacher, which does not run here.
const ATTACHER: &str = "external-attacher/disk-example-com";

/// A volume of a CSI driver, for this claim if that has a name.
pub(super) fn volume(name: &str, claim: &str, metadata: &Value) -> Value {
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "disk.example.com", "volumeHandle": name}});
    if claim.is_empty() {
        // So that no other claim gets it.
        spec["storageClassName"] = json!("unclaimed");
    } else {
        spec["claimRef"] = json!({"namespace": "edge", "name": claim});
    }
    object("v1", "PersistentVolume", "", name, &json!({"metadata": metadata, "spec": spec}))
}

/// A claim for one volume.
fn claim_of(name: &str, volume: &str) -> Value {
    let mut claim = claim("edge", name, &json!({}));
    claim["spec"]["volumeName"] = json!(volume);
    claim
}

/// A pod with a claim on a node, in the namespace of claims that are bound.
fn with_claim(name: &str, node: &str, claim: &str) -> Value {
    let mut pod = pod(name, node, Some(claim), &json!({}));
    pod["metadata"]["namespace"] = json!("edge");
    pod
}

pub(super) fn lease(namespace: &str, name: &str, holder: &str) -> Value {
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"});
    object("coordination.k8s.io/v1", "Lease", namespace, name, &json!({"spec": spec}))
}

pub(super) fn namespaces() -> Vec<Value> {
    let of = |name: &str| {
        object("v1", "Namespace", "", name, &json!({"metadata": {"labels": {"guarded": name}}}))
    };
    ["shop", "full", "locked", "operators", "guard", "edge", "dark", "nightly", "sealed"]
        .map(of)
        .to_vec()
}

/// A pod as the Job controller creates it.
pub(super) fn tracked() -> Value {
    let mut pod =
        pod("tracked", "n1", None, &json!({"finalizers": ["batch.kubernetes.io/job-tracking"]}));
    pod["metadata"]["namespace"] = json!("nightly");
    pod
}

/// A pod whose Node object is deleted: the first of all, since it counts as not collected after two minutes.
pub(super) fn strand(at: &Workstation) {
    let mut pod = pod("stranded", "n4", None, &json!({}));
    pod["metadata"]["namespace"] = json!("edge");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    at.apply(vec![object("v1", "Node", "", "n4", &json!({})), pod]);
    at.delete(&["pod", "stranded", "--namespace=edge"]);
    at.delete(&["node", "n4"]);
}

/// Creates the stuck objects, each with its own mechanism.
pub(super) fn make(at: &Workstation) {
    let mut silent = pod("silent", "n1", None, &json!({}));
    silent["spec"]["terminationGracePeriodSeconds"] = json!(1);
    let mut leaving = with_claim("leaving", "n2", "disk");
    leaving["spec"]["terminationGracePeriodSeconds"] = json!(1);
    let daemons = json!({"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "example.com/none"}]}}});
    at.apply(vec![
        object("v1", "Node", "", "n1", &json!({})),
        object("v1", "Node", "", "n2", &json!({})),
        lease("kube-node-lease", "n1", "n1"),
        lease("kube-node-lease", "n2", "n2"),
        on_n2("edge", "missed"),
        on_n2("sealed", "held"),
        pod("kept", "n1", None, &json!({"finalizers": ["example.com/kept"]})),
        claim("shop", "data", &json!({})),
        pod("user", "n1", Some("data"), &json!({})),
        object("v1", "ConfigMap", "full", "left", &finalizer("example.com/left")),
        silent,
        object("v1", "ConfigMap", "shop", "dead", &finalizer("widgets.example.com/dead")),
        lease("operators", "0123abcd.widgets.example.com", "widget-manager-6d9f8b7c5-x2x7z_5b1e"),
        object("apps/v1", "DaemonSet", "shop", "owner", &json!({"spec": daemons})),
        volume("pv-1", "", &json!({})),
        attachment("refused", "pv-1", "n9"),
        attachment("lost", "pv-2", "n9"),
        volume("pv-3", "", &json!({"finalizers": [ATTACHER]})),
        attachment("still", "pv-3", "n9"),
        volume("pv-4", "bound", &json!({})),
        claim_of("bound", "pv-4"),
        with_claim("bound-user", "n1", "bound"),
        volume("pv-5", "disk", &json!({})),
        claim_of("disk", "pv-5"),
        leaving,
        with_claim("coming", "n1", "disk"),
        attachment("used", "pv-5", "n2"),
        claim("edge", "late", &json!({})),
        with_claim("late-user", "n1", "late"),
        claim("locked", "data", &finalizer("example.com/locked")),
        tracked(),
        object("apps/v1", "DaemonSet", "operators", "agent", &json!({"spec": daemons})),
    ]);
    let uid = at.kubectl(&[
        "get",
        "ds",
        "owner",
        "--namespace=shop",
        "--output=jsonpath={.metadata.uid}",
    ]);
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "owner", "uid": uid, "controller": true,
        "blockOwnerDeletion": true});
    at.apply(vec![pod(
        "owned",
        "n1",
        None,
        &json!({"finalizers": ["example.com/owned"], "ownerReferences": [owner]}),
    )]);
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    let error = json!({"time": "2026-01-01T00:00:00Z", "message": "disk is busy"});
    set_status(
        at,
        &format!("{attachments}/refused"),
        &json!({"attached": true, "detachError": error}),
    );
    set_status(at, &format!("{attachments}/used"), &json!({"attached": true}));
    let is_bound = |name: &str| {
        at.kubectl(&["get", "pv", name, "--output=jsonpath={.status.phase}"]) == "Bound"
    };
    at.plane.wait_for("the volumes to be bound", || is_bound("pv-4") && is_bound("pv-5")).unwrap();
}

/// Writes the status of an object, as its controller does.
pub(super) fn set_status(at: &Workstation, path: &str, status: &Value) {
    at.plane
        .wait_for("a status that is written", || {
            let mut object: Value =
                serde_json::from_str(&at.kubectl(&["get", "--raw", path])).unwrap();
            for (field, value) in status.as_object().unwrap() {
                object["status"][field] = value.clone();
            }
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), object.to_string()).unwrap();
            let (path, file) = (format!("{path}/status"), file.path().to_str().unwrap());
            // A controller may write the same object, so that the replacement conflicts.
            at.plane.kubectl(&["replace", "--raw", &path, "--filename", file]).is_ok()
        })
        .unwrap();
}

pub(super) fn delete(at: &Workstation) {
    at.delete(&["pod", "kept", "silent", "--namespace=shop"]);
    at.delete(&["pod", "missed", "--namespace=edge"]);
    at.delete(&["pod", "tracked", "--namespace=nightly"]);
    at.delete(&["pod", "held", "--namespace=sealed"]);
    at.delete(&["pvc", "data", "--namespace=shop"]);
    at.delete(&["pvc", "data", "--namespace=locked"]);
    at.delete(&["configmap", "dead", "--namespace=shop"]);
    at.delete(&["ds", "owner", "--namespace=shop", "--cascade=foreground"]);
    at.delete(&["volumeattachment", "refused", "lost", "still"]);
    at.delete(&["pv", "pv-3", "pv-4"]);
    at.delete(&["pvc", "bound", "late", "--namespace=edge"]);
    at.delete(&["pod", "leaving", "--namespace=edge"]);
    at.delete(&["namespace", "full"]);
}
