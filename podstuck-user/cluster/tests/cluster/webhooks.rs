//! Webhooks that deny or that no server answers.

use std::fs;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    Workstation, acts, is,
    kubelets::heartbeat,
    objects::object,
    stand_in::{Kubelet, denying_webhook},
    stuck::set_status,
};

/// The webhook that would refuse the command is reported first, with the command that lets it pass.
pub(super) fn a_dead_webhook_is_released_before_the_finalizer(at: &Workstation) {
    let ask = ["pvc/data", "-n", "locked"];
    let causes = |document: &Value| {
        let all = document["items"][0]["causes"].as_array().unwrap().clone();
        all.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let last = |document: &Value, nth: usize| {
        let remedies = document["items"][0]["causes"][nth]["remedies"].as_array().unwrap().clone();
        remedies.iter().rev().find_map(acts).unwrap().to_owned()
    };
    let document = at.json(&ask);
    assert_eq!(causes(&document), ["webhook-unavailable", "object-finalizer"], "{document:#}");
    assert_eq!(document["items"][0]["causes"][0]["certainty"], "firm", "{document:#}");
    let refused = at.run(&last(&document, 1)).unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    at.run(&last(&document, 0)).unwrap();
    // The API server takes a moment to apply the change.
    at.plane.wait_for("the webhook to be passed", || at.run(&last(&document, 1)).is_ok()).unwrap();
    at.wait_until_gone(&["pvc", "data", "--namespace=locked"]);
}

/// A validating webhook for requests about a type in a namespace.
fn webhook(name: &str, client: &Value, namespace: &str, operations: &[&str], of: &str) -> Value {
    let hook = json!({"name": format!("{name}.example.com"), "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 2, "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"guarded": namespace}},
        "rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": [of]}]});
    object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "",
        name,
        &json!({"webhooks": [hook]}),
    )
}

pub(super) fn dead_webhook() -> Value {
    let client = json!({"service": {"namespace": "guard", "name": "webhook", "path": "/"}});
    webhook("guard", &client, "locked", &["UPDATE"], "persistentvolumeclaims")
}

/// Webhooks that deny the request of the Job controller in one namespace, and kubelet's last request in another.
pub(super) fn denying_webhooks() -> [Value; 2] {
    let server = denying_webhook();
    let url = format!("https://127.0.0.1:{}/", server.port());
    let client = json!({"url": url, "caBundle": ByteString(server.authority().into_bytes())});
    [
        webhook("owners", &client, "nightly", &["CREATE", "UPDATE"], "pods"),
        webhook("seals", &client, "sealed", &["DELETE"], "pods"),
    ]
}

/// A webhook denies the request by which the Job controller removes its finalizer. Only a dry run shows that, and it
/// changes nothing.
pub(super) fn a_denied_removal_is_proven_by_a_dry_run(at: &Workstation) {
    const USER: &str = "system:serviceaccount:kube-system:job-controller";
    // `kubectl patch` reads the object first, which the controller does not do.
    let role = ["role", "reader", "--namespace=nightly", "--verb=get", "--resource=pods"];
    at.kubectl(&[&["create"], &role[..]].concat());
    let user = format!("--user={USER}");
    let bound = ["rolebinding", "reader", "--namespace=nightly", "--role=reader", &user];
    at.kubectl(&[&["create"], &bound[..]].concat());
    let remove = |dry: &[&str]| {
        let patch = r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#;
        let words = ["patch", "pod", "tracked", "--namespace=nightly", "-p", patch, "--as", USER];
        at.plane.kubectl(&[&words, dry].concat())
    };
    let ask = |more: &[&str]| at.json(&[&["nightly/tracked"], more].concat());
    let version = || {
        at.kubectl(&[
            "get",
            "pod",
            "tracked",
            "--namespace=nightly",
            "--output=jsonpath={.metadata.resourceVersion}",
        ])
    };
    let before = version();
    let refused = remove(&[]).unwrap_err().to_string();
    assert!(refused.contains("denied the request: no owner label"), "{refused}");
    let document = ask(&[]);
    is(&document, &[("pod-finalizer", "firm")]);
    let dry = "kubectl podstuck pod/tracked --namespace nightly --via-dry-run";
    assert!(document.to_string().contains(dry), "{document:#}");
    // Without the account, kube-controller-manager uses another user name.
    is(
        &ask(&["--via-dry-run"]),
        &[("finalizer-removal-refused", "likely"), ("pod-finalizer", "firm")],
    );
    at.kubectl(&["create", "serviceaccount", "job-controller", "--namespace=kube-system"]);
    let document = ask(&["--via-dry-run"]);
    is(&document, &[("finalizer-removal-refused", "firm"), ("pod-finalizer", "firm")]);
    println!("$ {dry}\n{}", at.run(dry).unwrap_err());
    let exempt = document["items"][0]["causes"][0]["remedies"].as_array().unwrap();
    at.run(exempt.iter().find_map(acts).unwrap()).unwrap();
    // The API server takes a moment to apply the change.
    at.plane
        .wait_for("the webhook to be passed", || remove(&["--dry-run=server"]).is_ok())
        .unwrap();
    let document = ask(&["--via-dry-run"]);
    is(&document, &[("pod-finalizer", "firm")]);
    assert!(document.to_string().contains("in a dry run, the API server admits"), "{document:#}");
    assert_eq!(version(), before, "a dry run changed the pod");
    remove(&[]).unwrap();
    at.wait_until_gone(&["pod", "tracked", "--namespace=nightly"]);
}

/// A webhook denies that kubelet deletes the record of a pod that has ended. A dry run shows that, and changes nothing.
pub(super) fn a_denied_deletion_by_kubelet_is_shown_by_a_dry_run(
    at: &Workstation,
    kubelet: &Kubelet,
) {
    let path = "/api/v1/namespaces/sealed/pods/held";
    let state = json!({"terminated": {"exitCode": 0, "containerID": "containerd://1"}});
    let ended = json!([{"name": "a", "image": "x", "imageID": "x", "ready": false, "restartCount": 0, "state": state}]);
    set_status(at, path, &json!({"containerStatuses": ended}));
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().to_str().unwrap();
    let version = || {
        let pod: Value = serde_json::from_str(&at.kubectl(&["get", "--raw", path])).unwrap();
        pod["metadata"]["resourceVersion"].clone()
    };
    let before = version();
    fs::write(file.path(), r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#)
        .unwrap();
    // As kubelet does.
    let delete = || {
        let node = ["--as=system:node:n2", "--as-group=system:nodes"];
        at.plane.kubectl(&[&["delete", "--raw", path, "--filename", name], &node[..]].concat())
    };
    let refused = delete().unwrap_err().to_string();
    assert!(refused.contains("denied the request: no owner label"), "{refused}");
    let ask = ["sealed/held", "--no-examine"];
    let with_dry_run = [&ask[..], &["--via-dry-run"]].concat();
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&ask);
    assert_eq!(status, 5, "{text}");
    assert!(text.contains("kubectl podstuck sealed/held --via-dry-run"), "{text}");
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&with_dry_run);
    println!("$ kubectl podstuck {}\n{text}", with_dry_run.join(" "));
    assert_eq!(status, 1, "{text}");
    let document = at.json(&with_dry_run);
    let causes = document["items"][0]["causes"].as_array().unwrap();
    let first = (&causes[0]["id"], &causes[0]["certainty"]);
    assert_eq!(first, (&json!("status-update-refused"), &json!("likely")), "{document:#}");
    assert_eq!((causes.len(), &document["not_read"]), (1, &json!([])), "{document:#}");
    assert_eq!(version(), before, "a dry run changed the pod");
    let remedies = causes[0]["remedies"].as_array().unwrap();
    at.run(remedies.iter().find_map(acts).unwrap()).unwrap();
    // The API server takes a moment to apply the change.
    at.plane.wait_for("the webhook to be passed", || delete().is_ok()).unwrap();
    at.wait_until_gone(&["pod", "held", "--namespace=sealed"]);
}
