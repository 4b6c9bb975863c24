//! A node with one pod, a kubelet with the address of its API server, and that server.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_testing::{
    api_server::{Answer, ApiServer},
    roots_directory, service,
};
use podstuck_tests::{Recorded, diagnose};
use serde_json::{Value, json};

/// Beginning of the pods' UIDs.
pub(crate) const UID: &str = "8e0f1c63-6d2f-4e58-8b55-2d6e3f708b";
/// This node's name, by its kubelet's options.
pub(crate) const NODE: &str = "node-of-a-test";

/// A pod with an empty directory, of which nothing tells the name but what a test adds.
pub(crate) struct Node {
    pub(crate) kubelets: Vec<Child>,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) uid: String,
    pub(crate) name: String,
}

impl Node {
    pub(crate) fn new(number: u8) -> Self {
        let directory = roots_directory().unwrap();
        let (uid, name) = (format!("{UID}{number:02}"), format!("cart-{number}"));
        let node = Self { kubelets: Vec::new(), directory, uid, name };
        fs::create_dir_all(node.pod()).unwrap();
        node
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("var/lib/kubelet")
    }

    pub(crate) fn pod(&self) -> PathBuf {
        self.root().join("pods").join(&self.uid)
    }

    /// Starts a kubelet with these words in its command line.
    pub(crate) fn kubelet(&mut self, words: &[&str]) {
        let program = self.directory.path().join("kubelet");
        // Not a copy: one that another thread is about to run is busy.
        symlink("/bin/sh", &program).unwrap();
        self.kubelet_by(service(&program), words);
    }

    /// The same, by a command that becomes one.
    pub(crate) fn kubelet_by(&mut self, mut command: Command, words: &[&str]) {
        let of_node = [format!("--hostname-override={NODE}"), flag("root-dir", &self.root())];
        command.args(["-c", "read wait", "kubelet"]).args(of_node).args(words);
        self.begin(command.stdin(Stdio::piped()).stderr(Stdio::null()));
    }

    /// Waits until it is one.
    fn begin(&mut self, command: &mut Command) {
        let kubelet = command.spawn().unwrap();
        let comm = format!("/proc/{}/comm", kubelet.id());
        self.kubelets.push(kubelet);
        let end = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&comm).unwrap() != "kubelet\n" {
            assert!(Instant::now() < end, "it does not become a kubelet");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The same with a root directory of its own, in which the host's programs are to be seen.
    pub(crate) fn kubelet_in(&mut self, root: &Path, words: &[&str]) {
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
        let mut command = service("unshare");
        // Its mounts end with it.
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(root).args(of_node).args(words);
        self.begin(command.stdin(Stdio::piped()).stderr(Stdio::null()));
    }

    /// A record of the pod.
    pub(crate) fn record(&self, more: &Value) -> Value {
        let mut metadata = json!({"uid": self.uid, "namespace": "shop", "name": self.name});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": NODE}})
    }

    /// An API server that has these pods of this node, and knows one of them by its name.
    pub(crate) fn server(&self, pods: &[Value]) -> ApiServer {
        self.server_with(pods, Vec::new())
    }

    /// The same with other objects, by their paths.
    pub(crate) fn server_with(&self, pods: &[Value], more: Vec<(String, Answer)>) -> ApiServer {
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
    pub(crate) fn diagnose(&self, timeout: &str, more: &[&str]) -> (Vec<Value>, Option<i32>) {
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
        for mut kubelet in self.kubelets.drain(..) {
            kubelet.kill().unwrap();
            kubelet.wait().unwrap();
        }
    }
}

pub(crate) fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
