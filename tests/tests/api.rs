//! A pod's identity and record, from a server that answers as an API server does, with the
//! credentials of a kubelet that runs; and everything without it.
//!
//! kubelet is a process of that name that waits; its options stand in its command line.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "api/grades.rs"]
mod grades;
#[path = "api/node.rs"]
mod node;
#[path = "api/storage.rs"]
mod storage;
#[path = "api/trust.rs"]
mod trust;

use std::{fs, io::Write, net::TcpListener, process::Command};

use node::{Node, UID, flag};
use podstuck_testing::roots_directory;
use podstuck_tests::{diagnose, of_type, podstuck, requires, root_and_btf, run, watch};
use serde_json::{Value, json};

fn start(lines: &[Value]) -> &Value {
    of_type(lines, "start")[0]
}

fn answer(lines: &[Value]) -> &Value {
    of_type(lines, "diagnosis").last().copied().unwrap()
}

#[test]
fn a_pod_without_any_trace_of_its_name_is_found_and_its_finalizer_reported() {
    requires!(root_and_btf());
    let mut node = Node::new(1);
    let deleted =
        json!({"deletionTimestamp": "2026-01-01T10:00:00Z", "finalizers": ["example.org/x"]});
    let server = node.server(&[node.record(&deleted)]);
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let (lines, status) = node.diagnose("60s", &[]);
    let target = start(&lines)["target"].as_str().unwrap();
    assert_eq!(target, format!("pod shop/{} ({}, by the API server)", node.name, node.uid));
    let asked = start(&lines)["api"].as_str().unwrap();
    assert!(asked.contains("1 pod of node") && asked.contains("kubelet.conf"), "{asked}");
    let cause = &answer(&lines)["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&"pod-finalizer".into(), &"firm".into()));
    assert!(cause["evidence"].to_string().contains("the API server, at 20"), "{cause:#}");
    assert_eq!(status, Some(1));
}

/// As in a container: paths and links mean what they mean to kubelet, and nothing here.
#[test]
fn credentials_are_read_as_kubelet_sees_them() {
    requires!(root_and_btf());
    let mut node = Node::new(9);
    let server = node.server(&[node.record(&json!({}))]);
    let root = roots_directory().unwrap();
    let seen = server.kubeconfig_below(root.path());
    assert!(!seen.exists(), "this machine has one of its own");
    node.kubelet_in(root.path(), &[&flag("kubeconfig", &seen)]);
    let (lines, status) = node.diagnose("30s", &[]);
    assert_eq!(status, Some(0), "it is not to go");
    let start = start(&lines);
    assert!(start["target"].as_str().unwrap().contains("by the API server"), "{start:#}");
    assert!(start["api"].as_str().unwrap().contains("/etc/kubernetes/kubelet.conf"), "{start:#}");
    assert_eq!(answer(&lines)["causes"][0]["id"], "pod-not-deleted");
}

#[test]
fn never_is_never_and_a_kubeconfig_that_is_named_is_used() {
    requires!(root_and_btf());
    let mut node = Node::new(2);
    let server = node.server(&[node.record(&json!({}))]);
    let file = server.kubeconfig();
    node.kubelet(&[&flag("kubeconfig", &file)]);
    let (root, pod) = (node.root(), format!("shop/{}", node.name));
    let asked = ["diagnose", "--kubelet-root", root.to_str().unwrap(), "--pod", &pod];
    let output = run(&[asked.as_slice(), &["--api", "never"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("kubectl -n shop get pod") && !said.contains("API server https"),
        "{said}"
    );
    assert!(server.requests().is_empty());
    let (lines, _) = node.diagnose("30s", &["--api", file.to_str().unwrap()]);
    let cause = &answer(&lines)["causes"][0];
    assert_eq!(cause["id"], "pod-not-deleted", "{cause:#}");
}

#[test]
fn secrets_are_in_no_line_no_log_and_no_recording() {
    requires!(root_and_btf());
    let mut node = Node::new(3);
    let server = node.server(&[node.record(&json!({}))]);
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let file = node.directory.path().join("recording");
    let output = Command::new(podstuck())
        .args(["-vv", "diagnose", "--output", "json", "--timeout", "3s", "--pod-uid", &node.uid])
        .arg("--kubelet-root")
        .arg(node.root())
        .arg("--record")
        .arg(&file)
        .output()
        .unwrap();
    let recorded = zstd::decode_all(fs::File::open(&file).unwrap()).unwrap();
    let all =
        [output.stdout, output.stderr, recorded].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(all[0].contains(&node.name) && all[2].contains(&node.name), "it was asked: {all:#?}");
    assert!(all[1].contains("API server https://"), "{}", all[1]);
    for secret in server.secrets() {
        assert!(all.iter().all(|text| !text.contains(&secret)), "{all:#?}");
    }
}

/// The one that hangs is asked first; what the pod's own directory says is enough.
#[test]
fn a_dead_server_is_said_to_be_dead_and_all_else_works() {
    requires!(root_and_btf());
    let mut node = Node::new(4);
    let server = node.server(&[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = server.kubeconfig_for(&silent.local_addr().unwrap().to_string());
    node.kubelet(&[&flag("kubeconfig", &silent)]);
    let hosts = format!("# Kubernetes-managed hosts file.\n10.0.0.5\t{}\n", node.name);
    fs::write(node.pod().join("etc-hosts"), hosts).unwrap();
    let (lines, status) = node.diagnose("3s", &[]);
    let start = start(&lines);
    let target = start["target"].as_str().unwrap();
    assert!(target.contains("does not show the namespace"), "{target}");
    assert!(start["api"].as_str().unwrap().contains("it does not answer"), "{start:#}");
    assert_eq!(status, Some(5), "still there, and no cause");
}

#[test]
fn a_pod_that_the_api_server_does_not_have_is_reported_as_such() {
    requires!(root_and_btf());
    let mut node = Node::new(5);
    let server = node.server(&[]);
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let root = node.root();
    let asked = ["diagnose", "--kubelet-root", root.to_str().unwrap(), "--pod", "shop/gone"];
    let output = run(&asked);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the API server has no pod of that name"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

/// Its directory is here, and no component waits for it.
#[test]
fn what_is_left_of_a_pod_that_the_api_server_does_not_have_is_an_orphan() {
    requires!(root_and_btf());
    let mut node = Node::new(8);
    let mut other = node.record(&json!({}));
    other["metadata"]["uid"] = (UID.to_owned() + "88").into();
    other["metadata"]["name"] = "another".into();
    let server = node.server(&[other]);
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    let root = node.root();
    let asked =
        ["--pod-uid", &node.uid, "--kubelet-root", root.to_str().unwrap(), "--timeout", "60s"];
    let (lines, status) = diagnose(&asked).finish();
    let cause = &answer(&lines)["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&"orphaned-pod-dir".into(), &"firm".into()));
    assert_eq!(cause["blocks_deletion"], false, "{cause:#}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_pod_of_another_node_is_reported_to_be_there() {
    requires!(root_and_btf());
    let mut node = Node::new(6);
    let mut away = node.record(&json!({"deletionTimestamp": "2026-01-01T10:00:00Z",
        "uid": UID.to_owned() + "66", "name": "elsewhere"}));
    away["spec"]["nodeName"] = "another".into();
    let (server, list) = (node.server(&[away]), node.root());
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let list = list.to_str().unwrap();
    let output =
        run(&["diagnose", "--output", "json", "--kubelet-root", list, "--pod", "shop/elsewhere"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("pod-not-on-this-node") && text.contains("another"), "{text}");
}

/// Tokens that are still mounted, and kubelet's own directories of logs.
#[test]
fn names_come_from_tokens_and_from_kubelets_directory_of_logs() {
    requires!(root_and_btf());
    let mut node = Node::new(7);
    let token = node.pod().join("volumes/kubernetes.io~projected/kube-api-access-x/token");
    fs::create_dir_all(token.parent().unwrap()).unwrap();
    let claims = json!({"kubernetes.io":
        {"namespace": "shop", "pod": {"name": node.name, "uid": node.uid}}});
    let claims = base64_url(claims.to_string().as_bytes());
    fs::write(token, format!("e30.{claims}.signature")).unwrap();
    let (lines, _) = node.diagnose("2s", &["--api", "never"]);
    let target = start(&lines)["target"].as_str().unwrap();
    assert!(target.contains("by the service account's token"), "{target}");

    let logs = node.directory.path().join("elsewhere/logs");
    fs::create_dir_all(logs.join(format!("shop_{}_{}", node.name, node.uid))).unwrap();
    let config = node.directory.path().join("config.yaml");
    let mut file = fs::File::create(&config).unwrap();
    writeln!(file, "kind: KubeletConfiguration\npodLogsDir: {}", logs.display()).unwrap();
    node.kubelet(&[&flag("config", &config)]);
    let (lines, _) = node.diagnose("2s", &["--api", "never"]);
    let target = start(&lines)["target"].as_str().unwrap();
    assert!(target.contains("by its directory of logs"), "{target}");
    let doctor =
        run(&["doctor", "--output", "json", "--kubelet-root", node.root().to_str().unwrap()]);
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.contains("was started without --kubeconfig"), "{doctor}");
}

fn base64_url(bytes: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// It is deleted after the watch has begun, and after its record was read at the start.
#[test]
fn a_finalizer_that_comes_later_is_reported_by_a_watch() {
    requires!(root_and_btf());
    let mut node = Node::new(31);
    let deleted =
        json!({"deletionTimestamp": "2026-01-01T10:00:00Z", "finalizers": ["example.org/x"]});
    let server = node.server(&[node.record(&deleted)]);
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let root = node.root();
    let mut watch = watch(&["--kubelet-root", root.to_str().unwrap()]);
    let at_start = server.requests().len();
    std::thread::sleep(std::time::Duration::from_secs(4));
    fs::remove_dir(node.pod()).unwrap();
    let found = watch.wait_for("the finalizer", |line| {
        line["type"] == "finding" && line["id"] == "pod-finalizer"
    });
    assert_eq!((&found["certainty"], &found["pod"]["uid"]), (&json!("firm"), &json!(node.uid)));
    let all = server.requests();
    assert!(at_start > 0 && all.len() <= at_start + 4, "{all:#?}");
    watch.stop();
}
