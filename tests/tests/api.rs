//! Who a pod is and what its record says, from a server that answers as an API server does, with the
//! credentials of a kubelet that runs; and everything without it.
//!
//! kubelet is a process of that name that waits; what it was told stands in its command line.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::mount::MsFlags;
use podstuck_testing::api_server::{Answer, ApiServer};
use podstuck_tests::{Recorded, diagnose, of_type, podstuck, requires, root_and_btf, run};
use serde_json::{Value, json};

/// Beginning of the pods' UIDs.
const UID: &str = "8e0f1c63-6d2f-4e58-8b55-2d6e3f708b";
/// This node, by what its kubelet was told.
const NODE: &str = "node-of-a-test";

/// A pod with an empty directory, of which nothing tells the name but what a test adds.
struct Node {
    kubelet: Option<Child>,
    directory: tempfile::TempDir,
    uid: String,
    name: String,
}

impl Node {
    fn new(number: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (uid, name) = (format!("{UID}{number:02}"), format!("cart-{number}"));
        let node = Self { kubelet: None, directory, uid, name };
        fs::create_dir_all(node.pod()).unwrap();
        node
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("var/lib/kubelet")
    }

    fn pod(&self) -> PathBuf {
        self.root().join("pods").join(&self.uid)
    }

    /// Starts a kubelet with these words in its command line.
    fn kubelet(&mut self, words: &[&str]) {
        let program = self.directory.path().join("kubelet");
        // Not a copy: one that another thread is about to run is busy.
        symlink("/bin/sh", &program).unwrap();
        let of_node = [format!("--hostname-override={NODE}"), flag("root-dir", &self.root())];
        let mut command = Command::new(&program);
        command.args(["-c", "read wait", "kubelet"]).args(of_node).args(words);
        let kubelet = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        self.kubelet = Some(kubelet);
    }

    /// The same with a root directory of its own, in which the host's programs are to be seen.
    fn kubelet_in(&mut self, root: &Path, words: &[&str]) {
        for directory in ["usr", "proc", "dev"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for link in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        symlink("/bin/sh", root.join("kubelet")).unwrap();
        let script = "mount --rbind /usr \"$1/usr\" && r=$1 && shift && exec chroot \"$r\" /kubelet -c 'read w' \
             kubelet \"$@\"";
        let of_node = [format!("--hostname-override={NODE}"), flag("root-dir", &self.root())];
        let mut command = Command::new("unshare");
        // Its mounts end with it.
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(root).args(of_node).args(words);
        let kubelet = command.stdin(Stdio::piped()).spawn().unwrap();
        let comm = format!("/proc/{}/comm", kubelet.id());
        self.kubelet = Some(kubelet);
        let end = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&comm).unwrap() != "kubelet\n" {
            assert!(Instant::now() < end, "it does not become a kubelet");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A record of the pod.
    fn record(&self, more: &Value) -> Value {
        let mut metadata = json!({"uid": self.uid, "namespace": "shop", "name": self.name});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": NODE}})
    }

    /// An API server that has these pods of this node, and knows one of them by its name.
    fn server(&self, pods: &[Value]) -> ApiServer {
        self.server_with(pods, Vec::new())
    }

    /// The same with other objects, by their paths.
    fn server_with(&self, pods: &[Value], more: Vec<(String, Answer)>) -> ApiServer {
        let list = json!({"items": pods}).to_string();
        let by_name: Vec<(String, Answer)> = pods
            .iter()
            .map(|pod| {
                let name = pod["metadata"]["name"].as_str().unwrap();
                (format!("/api/v1/namespaces/shop/pods/{name}"), Answer::Text(200, pod.to_string()))
            })
            .chain(more)
            .collect();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let node = json!({"status": {"nodeInfo": {"bootID": boot.trim()}, "conditions": []}});
        ApiServer::start(move |path| {
            if path.starts_with(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}&")) {
                return Answer::Text(200, list.clone());
            }
            if path == format!("/api/v1/nodes/{NODE}") {
                return Answer::Text(200, node.to_string());
            }
            match by_name.iter().find(|(name, _)| name == path) {
                Some((_, answer)) => answer.clone(),
                None => Answer::Text(404, r#"{"kind":"Status","message":"no"}"#.into()),
            }
        })
    }

    /// Asks about the pod by its name; the lines, the exit status, and the recording's text.
    fn diagnose(&self, timeout: &str, more: &[&str]) -> (Vec<Value>, Option<i32>) {
        let (root, pod) = (self.root(), format!("shop/{}", self.name));
        let recorded = Recorded::new();
        let recording = recorded.options();
        let mut asked =
            vec!["--pod", &pod, "--kubelet-root", root.to_str().unwrap(), "--timeout", timeout];
        asked.extend(recording.iter().map(String::as_str));
        asked.extend(more);
        let (lines, status) = diagnose(&asked).finish();
        recorded.assert_replayed(&lines, status.code());
        (lines, status.code())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut kubelet) = self.kubelet.take() {
            kubelet.kill().unwrap();
            kubelet.wait().unwrap();
        }
    }
}

fn start(lines: &[Value]) -> &Value {
    of_type(lines, "start")[0]
}

fn answer(lines: &[Value]) -> &Value {
    of_type(lines, "diagnosis").last().copied().unwrap()
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[test]
fn a_pod_without_any_trace_of_its_name_is_found_and_its_finalizer_told() {
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
    let root = tempfile::tempdir().unwrap();
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
    assert!(target.contains("does not tell the namespace"), "{target}");
    assert!(start["api"].as_str().unwrap().contains("it does not answer"), "{start:#}");
    assert_eq!(status, Some(5), "still there, and no cause");
}

#[test]
fn a_pod_that_nobody_has_is_said_to_be_nobodys() {
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

/// Its directory is here, and nobody waits for it.
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
fn a_pod_of_another_node_is_told_to_be_there() {
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

/// What the node authorizer says of an attachment that does not exist; a claim that it does not allow to be
/// read is a loss and no error.
#[test]
fn storage_that_is_detached_under_a_mount_is_told() {
    requires!(root_and_btf());
    let mut node = Node::new(10);
    let point = node.pod().join("volumes/kubernetes.io~csi/pv-1/mount");
    fs::create_dir_all(&point).unwrap();
    let mounted = Mounted::tmpfs(&point);
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

/// A mount that ends with it.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(point: &'a Path) -> Self {
        let none = None::<&str>;
        nix::mount::mount(Some("podstuck"), point, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        Self(point)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        nix::mount::umount(self.0).unwrap();
    }
}

/// By the node's own program.
fn sha256_of(text: &str) -> String {
    let mut sum =
        Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let printed = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    printed.split(' ').next().unwrap().to_owned()
}

/// Tokens that are still mounted, and directories of logs that kubelet was told to use.
#[test]
fn names_come_from_tokens_and_from_where_kubelet_was_told_to_log() {
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
