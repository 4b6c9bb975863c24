//! A node that is off.

use serde_json::{Value, json};

use super::{Workstation, acts, objects::object, stuck::lease};

/// The taint that a cloud provider's controller sets when the machine is off.
const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A workload whose pods are on the node n3, which is off.
fn on_n3(kind: &str, name: &str, more: &Value) -> Value {
    let labels = json!({"app": name});
    let containers = json!([{"name": "a", "image": "example.com/one"}]);
    let pod = json!({"nodeName": "n3", "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
        "containers": containers});
    let mut spec = json!({"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object("apps/v1", kind, "dark", name, &json!({"spec": spec}))
}

/// A node that is off, whose pods a Deployment and a StatefulSet replace.
pub(super) fn make_dark(at: &Workstation) {
    at.apply(vec![
        object(
            "v1",
            "Node",
            "",
            "n3",
            &json!({"spec": {"taints": [{"key": SHUT_DOWN, "effect": "NoSchedule"}]}}),
        ),
        lease("kube-node-lease", "n3", "n3"),
        on_n3("Deployment", "web", &json!({"strategy": {"type": "Recreate"}})),
        on_n3("StatefulSet", "db", &json!({"serviceName": "db"})),
    ]);
    at.plane.wait_for("the pods on n3", || at.pods("dark").len() == 2).unwrap();
}

pub(super) fn delete_dark(at: &Workstation) {
    at.delete(&["pod", "db-0", "--namespace=dark"]);
    at.kubectl(&["set", "image", "deployment/web", "a=example.com/two", "--namespace=dark"]);
    let is_deleted = || {
        let times = "--output=jsonpath={.items[*].metadata.deletionTimestamp}";
        at.kubectl(&["get", "pods", "--namespace=dark", times]).split(' ').count() == 2
    };
    at.plane.wait_for("the deletion of the old pod", is_deleted).unwrap();
}

/// A node that is off is named with what waits for its pods, which goes on after the printed command.
pub(super) fn what_waits_for_a_node_that_is_off_is_named(at: &Workstation) {
    for pod in at.pods("dark") {
        let name = format!("dark/{}", pod.trim_start_matches("pod/"));
        let document = at.json(&[&name]);
        let cause = &document["items"][0]["causes"][0];
        assert_eq!(
            (&cause["id"], &cause["certainty"]),
            (&json!("node-off"), &json!("firm")),
            "{document:#}"
        );
        let (text, _) = at.podstuck(&[&name]);
        println!("$ kubectl podstuck {name}\n{text}");
        let waits = if pod == "pod/db-0" {
            "StatefulSet dark/db creates no other pod db-0 before this one is gone"
        } else {
            "Deployment dark/web has the strategy Recreate: it creates no new pod before this one is gone"
        };
        assert!(text.contains(waits), "{text}");
        let uid = document["items"][0]["uid"].as_str().unwrap();
        let exists = |uid: &str| {
            at.kubectl(&[
                "get",
                "pods",
                "--namespace=dark",
                "--output=jsonpath={.items[*].metadata.uid}",
            ])
            .contains(uid)
        };
        assert!(exists(uid));
        // Since Kubernetes 1.26, the taint of the first command is enough.
        let remedies = cause["remedies"].as_array().unwrap();
        let forced = remedies.iter().filter_map(acts).find(|it| it.contains("gracePeriodSeconds"));
        at.run(forced.unwrap()).unwrap();
        at.plane.wait_for("the old pod to be gone", || !exists(uid)).unwrap();
    }
    at.plane.wait_for("the pods that waited", || at.pods("dark").len() == 2).unwrap();
}
