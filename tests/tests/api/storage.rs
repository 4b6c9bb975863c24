//! What the API server says of the storage behind a volume.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use podstuck_testing::api_server::Answer;
use podstuck_tests::{Mounted, requires, root_and_btf};
use serde_json::{Value, json};

use super::{
    answer,
    node::{NODE, Node, flag},
    start,
};

/// What the node authorizer says of an attachment that does not exist; a claim that it does not allow to be
/// read is a loss and no error.
#[test]
fn storage_that_is_detached_under_a_mount_is_reported() {
    requires!(root_and_btf());
    let mut node = Node::new(10);
    let point = node.pod().join("volumes/kubernetes.io~csi/pv-1/mount");
    fs::create_dir_all(&point).unwrap();
    let mounted = Mounted::memory(&point, "");
    let mut pod = node.record(&json!({"deletionTimestamp": "2026-01-01T10:00:00Z",
        "finalizers": ["example.org/x"]}));
    let claim = |name: &str, claim: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
    pod["spec"]["volumes"] = json!([claim("data", "cart"), claim("other", "refused")]);
    let object = |path: &str, status, object: Value| {
        (path.to_owned(), Answer::Text(status, object.to_string()))
    };
    let gone = sha256_of(&format!("handle-1d.example{NODE}"));
    let server = node.server_with(
        &[pod],
        vec![
            object(
                "/api/v1/namespaces/shop/persistentvolumeclaims/cart",
                200,
                json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z",
                    "finalizers": ["kubernetes.io/pvc-protection"]}, "spec": {"volumeName": "pv-1"}}),
            ),
            object(
                "/api/v1/namespaces/shop/persistentvolumeclaims/refused",
                403,
                json!({"kind": "Status", "message": "not you"}),
            ),
            object(
                "/api/v1/persistentvolumes/pv-1",
                200,
                json!({"metadata": {}, "spec": {"csi": {"driver": "d.example", "volumeHandle": "handle-1"}}}),
            ),
            object("/apis/storage.k8s.io/v1/csidrivers/d.example", 200, json!({"spec": {}})),
            object(
                &format!("/apis/storage.k8s.io/v1/volumeattachments/csi-{gone}"),
                403,
                json!({"kind": "Status",
                    "message": format!("no relationship found between node '{NODE}' and this object")}),
            ),
        ],
    );
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let (lines, status) = node.diagnose("5s", &[]);
    drop(mounted);
    let asked = start(&lines)["api"].as_str().unwrap();
    let lost = "; not known: PersistentVolumeClaim shop/refused: it says 403 not you";
    assert!(asked.ends_with(lost), "{asked}");
    let answer = answer(&lines);
    let notes: Vec<&str> =
        answer["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    let [note] = notes.as_slice() else { panic!("{answer:#}") };
    assert!(note.starts_with("the storage of claim shop/cart is still mounted here"), "{note}");
    assert_eq!((&answer["causes"][0]["id"], status), (&"pod-finalizer".into(), Some(1)));
}

/// By the node's own program.
fn sha256_of(text: &str) -> String {
    let mut sum =
        Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let printed = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    printed.split(' ').next().unwrap().to_owned()
}
