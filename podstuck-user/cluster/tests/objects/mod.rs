//! API objects for tests.

use serde_json::{Value, json};

/// An object; the metadata in `more` is added to its name and namespace.
pub(crate) fn object(
    version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    more: &Value,
) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "metadata" => {
                let metadata = object["metadata"].as_object_mut().unwrap();
                metadata.extend(value.as_object().unwrap().clone());
            }
            _ => object[key] = value.clone(),
        }
    }
    object
}

/// The metadata of an object with this finalizer.
pub(crate) fn finalizer(name: &str) -> Value {
    json!({"metadata": {"finalizers": [name]}})
}

/// A claim that no provisioner serves.
pub(crate) fn claim(namespace: &str, name: &str, more: &Value) -> Value {
    let mut claim = object("v1", "PersistentVolumeClaim", namespace, name, more);
    claim["spec"] = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}}});
    claim
}
