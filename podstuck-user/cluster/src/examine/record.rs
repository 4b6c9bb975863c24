//! The part of a stuck pod's API object that is passed to the node: the fields that matter for its deletion.
//! Environment, commands, labels and other annotations are left out.

use serde_json::{Map, Value, json};

/// kubelet writes these annotations into the mirror pod of a static pod. The second is the UID that the pod has on
/// the node.
const STATIC: [&str; 2] = ["kubernetes.io/config.mirror", "kubernetes.io/config.hash"];

/// The listed fields that exist in the object.
fn kept(from: &Value, names: &[&str]) -> Map<String, Value> {
    let each = names.iter().filter_map(|name| Some(((*name).to_owned(), from.get(name)?.clone())));
    each.collect()
}

/// Applies `of` to each item of a list; `None` if there is no list.
fn each(from: &Value, list: &str, of: impl Fn(&Value) -> Map<String, Value>) -> Option<Value> {
    let items = from.get(list)?.as_array()?;
    Some(items.iter().map(|item| Value::Object(of(item))).collect())
}

/// Inserts a value if there is one.
fn put(to: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        to.insert(name.to_owned(), value);
    }
}

/// The part of a pod that `podstuck diagnose --pod-json` reads.
pub fn of(pod: &Value) -> Value {
    let none = Value::Null;
    let part = |name| pod.get(name).unwrap_or(&none);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(part("metadata")),
        "spec": spec(part("spec")),
        "status": status(part("status")),
    })
}

fn metadata(from: &Value) -> Map<String, Value> {
    let mut to = kept(
        from,
        &[
            "uid",
            "name",
            "namespace",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "finalizers",
        ],
    );
    let annotations = from.get("annotations").map(|it| kept(it, &STATIC));
    put(&mut to, "annotations", annotations.map(Value::Object));
    to
}

fn spec(from: &Value) -> Map<String, Value> {
    let mut to = kept(from, &["nodeName"]);
    put(&mut to, "volumes", each(from, "volumes", volume));
    for list in ["containers", "initContainers"] {
        put(&mut to, list, each(from, list, container));
    }
    let claim = |it: &Value| kept(it, &["name", "resourceClaimTemplateName"]);
    put(&mut to, "resourceClaims", each(from, "resourceClaims", claim));
    to
}

fn volume(from: &Value) -> Map<String, Value> {
    let mut to = kept(from, &["name"]);
    let claim = from.get("persistentVolumeClaim").map(|it| kept(it, &["claimName"]));
    put(&mut to, "persistentVolumeClaim", claim.map(Value::Object));
    put(&mut to, "ephemeral", from.get("ephemeral").map(|_| json!({})));
    to
}

fn container(from: &Value) -> Map<String, Value> {
    let mut to = kept(from, &["name", "restartPolicy"]);
    let mount = |it: &Value| kept(it, &["name", "mountPropagation"]);
    put(&mut to, "volumeMounts", each(from, "volumeMounts", mount));
    let has_hook = from.pointer("/lifecycle/preStop").is_some();
    put(&mut to, "lifecycle", has_hook.then(|| json!({"preStop": {}})));
    to
}

fn status(from: &Value) -> Map<String, Value> {
    let mut to = kept(from, &["reason"]);
    for list in ["containerStatuses", "initContainerStatuses"] {
        put(&mut to, list, each(from, list, of_container));
    }
    put(
        &mut to,
        "resourceClaimStatuses",
        each(from, "resourceClaimStatuses", |it| kept(it, &["name"])),
    );
    to
}

fn of_container(from: &Value) -> Map<String, Value> {
    let mut to = kept(from, &["name", "containerID"]);
    let state = from.get("state").and_then(Value::as_object).map(|states| {
        let each =
            states.iter().map(|(name, it)| (name.clone(), Value::Object(kept(it, &["reason"]))));
        each.collect()
    });
    put(&mut to, "state", state.map(Value::Object));
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_the_record() {
        let pod = json!({
            "metadata": {"name": "cart-0", "uid": "1", "labels": {"secret": "l"}, "annotations": {"secret": "a", (STATIC[0]): "m"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "a", "env": [{"name": "secret", "value": "v"}],
                "command": ["secret"], "lifecycle": {"preStop": {"exec": {"command": ["secret"]}}},
                "volumeMounts": [{"name": "v", "mountPath": "/secret", "mountPropagation": "Bidirectional"}]}]},
            "status": {"containerStatuses": [{"name": "a", "state": {"terminated": {"reason": "Error", "message": "secret"}}}]},
        });
        let kept = of(&pod);
        assert!(!kept.to_string().contains("secret"), "{kept}");
        assert_eq!(kept["metadata"]["annotations"], json!({(STATIC[0]): "m"}));
        assert_eq!(kept.pointer("/spec/containers/0/lifecycle/preStop"), Some(&json!({})));
        assert_eq!(
            kept.pointer("/spec/containers/0/volumeMounts/0/mountPropagation"),
            Some(&json!("Bidirectional"))
        );
        assert_eq!(
            kept.pointer("/status/containerStatuses/0/state/terminated/reason"),
            Some(&json!("Error"))
        );
    }
}
