//! Pods as the tests make them, and what the node has of them.

use std::path::{Path, PathBuf};

use podstuck_test_node::{IMAGE, NAME, Node};
use serde_json::{Value, json};

/// A pod of one container that sleeps and does not listen to SIGTERM, with these volumes at
/// `/data/VOLUME`.
pub fn pod(name: &str, volumes: &Value) -> Value {
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap());
    let mounts: Vec<Value> =
        names.map(|name| json!({ "name": name, "mountPath": format!("/data/{name}") })).collect();
    let mut container = container("main", &["/bin/sleep", "2147483647"]);
    container["volumeMounts"] = mounts.into();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "made-by": "podstuck" } },
        "spec": {
            "nodeName": NAME,
            "hostNetwork": true,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [container],
            "volumes": volumes,
        },
    })
}

/// A container of the node's one image.
pub fn container(name: &str, command: &[&str]) -> Value {
    json!({ "name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command })
}

/// An emptyDir on the disk.
pub fn empty_dir(name: &str) -> Value {
    json!({ "name": name, "emptyDir": {} })
}

/// What the node has of a pod that runs.
pub struct OnNode {
    pub uid: String,
    /// Id of its one container.
    pub container: String,
}

impl OnNode {
    /// Asks the API.
    pub fn of(node: &Node, name: &str) -> Self {
        let record = node.kubectl(&["get", "pod", name, "-o", "json"]).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let id = text(&record["status"]["containerStatuses"][0]["containerID"]);
        let container = id.rsplit_once('/').unwrap().1.to_owned();
        Self { uid: text(&record["metadata"]["uid"]), container }
    }

    /// Its directory.
    pub fn directory(&self) -> PathBuf {
        Path::new("/var/lib/kubelet/pods").join(&self.uid)
    }

    /// An emptyDir of it.
    pub fn empty_dir(&self, name: &str) -> PathBuf {
        self.directory().join("volumes/kubernetes.io~empty-dir").join(name)
    }

    /// The root file system of its container, as the runtime mounts it.
    pub fn rootfs(&self, node: &Node) -> PathBuf {
        node.rootfs(&self.container).unwrap()
    }

    /// Its control group in the hierarchy of version 1 that can freeze it.
    pub fn freezer(&self) -> PathBuf {
        let group = format!("kubepods/besteffort/pod{}", self.uid);
        Path::new("/sys/fs/cgroup/freezer").join(NAME).join(group)
    }
}

/// Whether the API knows the pod.
pub fn is_there(node: &Node, name: &str) -> bool {
    let found = node.kubectl(&["get", "pod", name, "--ignore-not-found", "-o", "name"]).unwrap();
    !found.is_empty()
}

pub fn on_disk(name: &str) -> Value {
    pod(name, &json!([empty_dir("data")]))
}

pub fn in_memory(name: &str) -> Value {
    pod(name, &json!([{ "name": "data", "emptyDir": { "medium": "Memory" } }]))
}

/// Its container has a directory of the volume, which kubelet mounts for it.
pub fn with_subpath(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "part".into();
    pod
}

/// On the pods' network, not on the node's.
pub fn with_network(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["hostNetwork"] = false.into();
    pod
}

/// Its container's last words are a file in a volume whose mounts the node sees.
pub fn with_last_words(name: &str) -> Value {
    let mut pod = on_disk(name);
    let container = &mut pod["spec"]["containers"][0];
    container["terminationMessagePath"] = "/data/data/last-words".into();
    container["securityContext"] = json!({ "privileged": true });
    container["volumeMounts"][0]["mountPropagation"] = "Bidirectional".into();
    pod
}

/// A volume of a secret, which is made with it.
pub fn with_secret(name: &str) -> Value {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "stringData": { "key": "value" },
    });
    let volume = json!({ "name": "data", "secret": { "secretName": name } });
    json!({ "apiVersion": "v1", "kind": "List", "items": [secret, pod(name, &json!([volume]))] })
}

pub fn with_grace(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
    pod
}

pub fn with_finalizer(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["metadata"]["finalizers"] = json!(["podstuck.test/held"]);
    pod
}
