//! `kubectl podstuck` against a real API server with real controllers. Objects are made stuck by the mechanisms seen
//! in the field, queried as a user types it, and released by the printed command. There is no node: where a kubelet
//! is read, the API server forwards the request to a stand-in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output},
    thread,
    time::Duration,
};

mod objects;
mod stand_in;

use k8s_openapi::ByteString;
use objects::{claim, finalizer, object};
use podstuck_test_node::ControlPlane;
use podstuck_testing::Schema;
use podstuck_testing::skip;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use stand_in::Kubelet;

/// The arguments of `kubectl podstuck`; the cause that must come first with certainty `firm`; and the object that is
/// gone after the command was run.
struct Case {
    ask: &'static [&'static str],
    cause: &'static str,
    gone: &'static [&'static str],
}

const CASES: [Case; 11] = [
    Case {
        ask: &["shop/kept"],
        cause: "pod-finalizer",
        gone: &["pod", "kept", "--namespace=shop"],
    },
    Case {
        ask: &["pvc/data", "-n", "shop"],
        cause: "claim-in-use",
        gone: &["pvc", "data", "--namespace=shop"],
    },
    Case { ask: &["ns/full"], cause: "namespace-content-remains", gone: &["namespace", "full"] },
    Case {
        ask: &["pod/silent", "--namespace", "shop"],
        cause: "node-not-heard",
        gone: &["pod", "silent", "--namespace=shop"],
    },
    Case {
        ask: &["configmaps.core/dead", "-n", "shop"],
        cause: "finalizer-controller-gone",
        gone: &["configmap", "dead", "--namespace=shop"],
    },
    Case {
        ask: &["ds/owner", "-n", "shop"],
        cause: "foreground-dependents",
        gone: &["daemonset", "owner", "--namespace=shop"],
    },
    Case {
        ask: &["volumeattachment/refused"],
        cause: "volume-detach-fails",
        gone: &["volumeattachment", "refused"],
    },
    Case { ask: &["pv/pv-3"], cause: "volume-attached", gone: &["volumeattachment", "still"] },
    Case { ask: &["pv/pv-3"], cause: "object-finalizer", gone: &["pv", "pv-3"] },
    Case { ask: &["pv/pv-4"], cause: "volume-bound", gone: &["pv", "pv-4"] },
    Case {
        ask: &["volumeattachment/lost"],
        cause: "attached-volume-gone",
        gone: &["volumeattachment", "lost"],
    },
];

/// A user's machine: kubectl with the plugin in its `PATH`.
struct Workstation {
    plane: ControlPlane,
    schema: Schema,
}

impl Workstation {
    fn command(&self, program: &str) -> Command {
        let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-podstuck"));
        let path = env::var_os("PATH").unwrap_or_default();
        let all = env::split_paths(&path);
        let path = env::join_paths([plugin.parent().unwrap().to_owned()].into_iter().chain(all));
        let mut command = Command::new(program);
        command.env("PATH", path.unwrap()).env("KUBECONFIG", self.plane.kubeconfig());
        command
    }

    fn podstuck(&self, args: &[&str]) -> (String, i32) {
        let Output { status, stdout, stderr } =
            self.command("kubectl").arg("podstuck").args(args).output().unwrap();
        let text =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (text, status.code().unwrap())
    }

    /// The JSON answer, checked against the schema.
    fn json(&self, args: &[&str]) -> Value {
        let (text, _) = self.podstuck(&[args, &["-o", "json"]].concat());
        let document = serde_json::from_str(&text);
        let document = document.unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
        self.schema.check(&document);
        document
    }

    /// Runs a printed command in a shell.
    fn run(&self, command: &str) -> Result<String, String> {
        let Output { status, stdout, stderr } =
            self.command("sh").args(["-c", command]).output().unwrap();
        let text =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        if status.success() { Ok(text) } else { Err(text) }
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).unwrap()
    }

    fn delete(&self, args: &[&str]) {
        self.kubectl(&[&["delete", "--wait=false"], args].concat());
    }

    fn exists(&self, what: &[&str]) -> bool {
        !self.kubectl(&[&["get", "--ignore-not-found", "--output=name"], what].concat()).is_empty()
    }

    /// The names of a namespace's pods.
    fn pods(&self, namespace: &str) -> Vec<String> {
        let names = self.kubectl(&["get", "pods", "--namespace", namespace, "--output=name"]);
        names.lines().map(str::to_owned).collect()
    }

    fn wait_until_gone(&self, what: &[&str]) {
        self.plane.wait_for(&format!("{what:?} to be gone"), || !self.exists(what)).unwrap();
    }

    fn apply(&self, objects: Vec<Value>) {
        self.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects})).unwrap();
    }
}

fn pod(name: &str, node: &str, claim: Option<&str>, metadata: &Value) -> Value {
    let volumes: Vec<Value> = claim
        .iter()
        .map(|claim| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let spec = json!({"nodeName": node, "terminationGracePeriodSeconds": 0, "volumes": volumes,
        "containers": [{"name": "a", "image": "example.com/none"}]});
    object("v1", "Pod", "shop", name, &json!({"metadata": metadata, "spec": spec}))
}

/// A pod on the node whose kubelet is a stand-in.
fn on_n2(namespace: &str, name: &str) -> Value {
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
fn volume(name: &str, claim: &str, metadata: &Value) -> Value {
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

fn lease(namespace: &str, name: &str, holder: &str) -> Value {
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"});
    object("coordination.k8s.io/v1", "Lease", namespace, name, &json!({"spec": spec}))
}

fn namespaces() -> Vec<Value> {
    let of = |name: &str| {
        object("v1", "Namespace", "", name, &json!({"metadata": {"labels": {"guarded": name}}}))
    };
    ["shop", "full", "locked", "operators", "guard", "edge", "dark", "nightly", "sealed"]
        .map(of)
        .to_vec()
}

/// A pod as the Job controller creates it.
fn tracked() -> Value {
    let mut pod =
        pod("tracked", "n1", None, &json!({"finalizers": ["batch.kubernetes.io/job-tracking"]}));
    pod["metadata"]["namespace"] = json!("nightly");
    pod
}

/// A pod whose Node object is deleted: the first of all, since it counts as not collected after two minutes.
fn strand(at: &Workstation) {
    let mut pod = pod("stranded", "n4", None, &json!({}));
    pod["metadata"]["namespace"] = json!("edge");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    at.apply(vec![object("v1", "Node", "", "n4", &json!({})), pod]);
    at.delete(&["pod", "stranded", "--namespace=edge"]);
    at.delete(&["node", "n4"]);
}

/// Creates the stuck objects, each with its own mechanism.
fn make(at: &Workstation) {
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
fn set_status(at: &Workstation, path: &str, status: &Value) {
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

fn delete(at: &Workstation) {
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

/// Deletions that are not blocked are never reported, neither while they run nor afterwards.
fn healthy_deletions_are_silent(at: &Workstation) {
    at.apply(vec![object("v1", "Namespace", "", "healthy", &json!({}))]);
    let mut objects = Vec::new();
    for number in 0..20 {
        let mut pod = pod(&format!("p{number}"), "", None, &json!({}));
        pod["metadata"]["namespace"] = json!("healthy");
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        objects.push(pod);
        objects.push(claim("healthy", &format!("c{number}"), &json!({})));
    }
    at.apply(objects);
    at.delete(&["pod", "--all", "--namespace=healthy"]);
    at.delete(&["namespace", "healthy"]);
    let mut asked = 0;
    while at.exists(&["namespace", "healthy"]) {
        let (text, _) = at.podstuck(&["-A"]);
        // On a busy machine, others are overdue by now.
        assert!(text.contains("Only these types were read") && !text.contains("healthy"), "{text}");
        asked += 1;
    }
    println!("healthy deletions were asked about {asked} times");
}

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
fn make_dark(at: &Workstation) {
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

fn delete_dark(at: &Workstation) {
    at.delete(&["pod", "db-0", "--namespace=dark"]);
    at.kubectl(&["set", "image", "deployment/web", "a=example.com/two", "--namespace=dark"]);
    let is_deleted = || {
        let times = "--output=jsonpath={.items[*].metadata.deletionTimestamp}";
        at.kubectl(&["get", "pods", "--namespace=dark", times]).split(' ').count() == 2
    };
    at.plane.wait_for("the deletion of the old pod", is_deleted).unwrap();
}

/// A node that is off is named with what waits for its pods, which goes on after the printed command.
fn what_waits_for_a_node_that_is_off_is_named(at: &Workstation) {
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

fn acts(remedy: &Value) -> Option<&str> {
    let changes = !remedy["risk"].as_str().unwrap().starts_with("none");
    remedy["command"].as_str().filter(|_| changes)
}

/// The object that has to be released first.
fn leaf(document: &Value) -> &Value {
    let item = &document["items"][0];
    if item["leaf"].is_null() { item } else { &item["leaf"] }
}

fn released_by_what_is_printed(at: &Workstation, case: &Case) {
    let document = at.json(case.ask);
    let first = &document["items"][0]["causes"][0];
    assert_eq!(
        (&first["id"], &first["certainty"]),
        (&json!(case.cause), &json!("firm")),
        "{document:#}"
    );
    let (text, status) = at.podstuck(case.ask);
    assert_eq!(status, 1, "{text}");
    let remedies = leaf(&document)["causes"][0]["remedies"].as_array().unwrap();
    let command =
        remedies.iter().find_map(acts).unwrap_or_else(|| panic!("no command: {document:#}"));
    assert!(text.contains(command), "{command} is not in: {text}");
    println!("$ kubectl podstuck {}\n{text}\n$ {command}", case.ask.join(" "));
    at.run(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    at.wait_until_gone(case.gone);
}

/// The webhook that would refuse the command is reported first, with the command that lets it pass.
fn a_dead_webhook_is_released_before_the_finalizer(at: &Workstation) {
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

fn dead_webhook() -> Value {
    let client = json!({"service": {"namespace": "guard", "name": "webhook", "path": "/"}});
    webhook("guard", &client, "locked", &["UPDATE"], "persistentvolumeclaims")
}

/// Webhooks that deny the request of the Job controller in one namespace, and kubelet's last request in another.
fn denying_webhooks() -> [Value; 2] {
    let server = stand_in::denying_webhook();
    let url = format!("https://127.0.0.1:{}/", server.port());
    let client = json!({"url": url, "caBundle": ByteString(server.authority().into_bytes())});
    [
        webhook("owners", &client, "nightly", &["CREATE", "UPDATE"], "pods"),
        webhook("seals", &client, "sealed", &["DELETE"], "pods"),
    ]
}

/// A webhook denies the request by which the Job controller removes its finalizer. Only a dry run shows that, and it
/// changes nothing.
fn a_denied_removal_is_proven_by_a_dry_run(at: &Workstation) {
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
fn a_denied_deletion_by_kubelet_is_shown_by_a_dry_run(at: &Workstation, kubelet: &Kubelet) {
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

/// All stuck objects are listed: with sufficient rights, and with only a Role.
fn all_are_listed(at: &Workstation) {
    let (text, status) = at.podstuck(&["-A"]);
    println!("$ kubectl podstuck -A\n{text}");
    assert_eq!(status, 1, "{text}");
    for case in &CASES {
        // Other types are listed only if a listed object leads to them.
        if ["configmap", "daemonset"].contains(&case.gone[0]) {
            continue;
        }
        let name = case.gone[1];
        assert!(
            text.lines().any(|line| line.split_whitespace().any(|word| word == name)),
            "{name}: {text}"
        );
    }
    let (names, _) = at.podstuck(&["-n", "shop", "-o", "name"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["persistentvolumeclaim/data", "pod/kept", "pod/owned", "pod/silent"]);
    let (names, _) = at.podstuck(&["-n", "shop", "--all-types", "-o", "name"]);
    for of_another_type in ["configmap/dead", "daemonset/owner"] {
        assert!(names.lines().any(|line| line == of_another_type), "{names}");
    }
    let document = at.json(&["-A", "--all-types"]);
    println!("all types of the cluster: {} requests", document["requests"]["made"]);
    assert_eq!(document["not_read"], json!([]));
    let mut uids: Vec<&Value> =
        document["items"].as_array().unwrap().iter().map(|item| &item["uid"]).collect();
    uids.sort_unstable_by_key(|uid| uid.to_string());
    let all = uids.len();
    uids.dedup();
    assert_eq!(uids.len(), all, "no object is listed twice: {document:#}");
    let (text, _) = at.podstuck(&["-n", "shop", "--all-types", "--max-requests", "4"]);
    assert!(text.contains("no request is left of --max-requests"), "{text}");
    let (text, status) = at.podstuck(&["-n", "shop", "--max-requests", "4"]);
    assert!(text.contains("no request is left of --max-requests"), "{text}");
    assert_eq!(status, 5, "{text}");
}

/// A recording yields the same answer without the API server. A redacted one yields the same causes without the
/// names.
fn a_recording_gives_the_same_answer(at: &Workstation) {
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    let replayed = |file: &str| {
        let plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-podstuck"))
            .args(["--replay", file, "-o", "json"])
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        let text = String::from_utf8([plugin.stdout, plugin.stderr].concat()).unwrap();
        serde_json::from_str::<Value>(&text)
            .unwrap_or_else(|error| panic!("{file}: {error}: {text}"))
    };
    for (number, ask) in [
        &["-A", "--all-types"][..],
        &["pvc/data", "-n", "shop"],
        &["configmaps.core/dead", "-n", "shop"],
        &["nightly/tracked", "--via-dry-run"],
    ]
    .into_iter()
    .enumerate()
    {
        let (whole, redacted) = (path(&format!("{number}")), path(&format!("{number}-redacted")));
        let answer = at.json(&[ask, &["--no-examine", "--record", &whole]].concat());
        assert_eq!(replayed(&whole), answer, "{ask:?}");
        at.json(&[ask, &["--no-examine", "--record", &redacted, "--redact"]].concat());
        let causes = |document: &Value| {
            let items = document["items"].as_array().unwrap().clone();
            let each = |item: &Value| {
                let causes = item["causes"].as_array().unwrap().iter();
                causes.map(|it| format!("{} {}", it["id"], it["certainty"])).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = items.iter().map(each).collect();
            // Objects that were deleted within the same second are sorted by name, and redaction changes names.
            all.sort();
            all
        };
        assert_eq!(causes(&replayed(&redacted)), causes(&answer), "{ask:?}");
        let text = fs::read_to_string(&redacted).unwrap();
        for name in ["shop", "kept", "example.com", "silent", "edge", "guard", "owner label"] {
            assert!(!text.contains(name), "{name} is in the redacted recording of {ask:?}");
        }
    }
    let (text, status) = at.podstuck(&["-A", "--record", &path("0")]);
    assert!(status == 2 && text.contains("cannot create the recording"), "{text}");
}

/// The manifests of docs/cluster.md, as a user applies them.
fn the_documented_rights_suffice(at: &Workstation) {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md"))
            .unwrap();
    let manifests: Vec<&str> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    let [of_cluster, of_namespace] = manifests[..] else { panic!("{} manifests", manifests.len()) };
    // The right to get nodes/proxy permits running commands in any container.
    assert!(manifests.iter().all(|manifest| !manifest.contains("nodes/")), "{manifests:?}");
    let apply = |manifest: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), manifest).unwrap();
        at.kubectl(&["apply", "--filename", file.path().to_str().unwrap()]);
    };
    // Without any right there is no answer.
    let (text, status) = at.podstuck(&["-n", "shop", "--as", "jane"]);
    assert!(text.contains("list pods in shop: not permitted"), "{text}");
    assert_eq!(status, 3, "{text}");
    // With a Role, each missing right is named, with the command that checks it.
    apply(of_namespace);
    let (text, status) = at.podstuck(&["-n", "shop", "--as", "jane"]);
    println!("$ kubectl podstuck -n shop --as jane\n{text}");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("pod-finalizer") && text.contains("claim-in-use"), "{text}");
    assert!(text.contains("check: kubectl --as=jane auth can-i get nodes"), "{text}");
    // A node that may not be read is reported neither as gone nor as unreachable.
    let silent = at.json(&["shop/silent", "--as", "jane"]);
    assert_eq!(silent["items"][0]["causes"], json!([]), "{silent:#}");
    assert_eq!(silent["items"][0]["examine"], "n1");
    let error = silent["examined"][0]["error"].as_str().unwrap();
    assert!(error.contains("cannot create podstuck's own pod in kube-system"), "{error}");
    // podstuck's own pod examines that node; its manifest can be read beforehand.
    let (manifest, status) =
        at.podstuck(&["shop/silent", "--as", "jane", "--examine", "--print", "--", "--brief"]);
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!((&manifest["spec"]["nodeName"], status), (&json!("n1"), 0));
    assert!(manifest["spec"]["containers"][0]["args"].to_string().contains("--brief"));
    apply(of_cluster);
    at.plane
        .wait_for("the rights", || at.json(&["-A", "--as", "jane"])["not_read"] == json!([]))
        .unwrap();
    let (mine, all) =
        (at.podstuck(&["-A", "--as", "jane", "-o", "name"]), at.podstuck(&["-A", "-o", "name"]));
    assert_eq!(mine, all);
}

/// A kubeconfig whose user is known by a program that prints a token, as those of cloud providers are. Needs the rights of
/// docs/cluster.md.
fn a_credential_program_is_run(at: &Workstation) {
    at.kubectl(&["create", "serviceaccount", "caller", "--namespace=operators"]);
    let of = ["--clusterrole=podstuck", "--serviceaccount=operators:caller"];
    at.kubectl(&[&["create", "clusterrolebinding", "caller"], &of[..]].concat());
    let kubeconfig = at.plane.account("operators", "caller").unwrap();
    let kubectl = |args: &[&str]| {
        let output =
            at.command("kubectl").env("KUBECONFIG", &kubeconfig).args(args).output().unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        (text, output.status.code().unwrap())
    };
    let token =
        ["config", "view", "--raw", "--output=jsonpath={.users[?(@.name==\"caller\")].user.token}"];
    let (token, _) = kubectl(&token);
    assert!(!token.is_empty());
    let version = "client.authentication.k8s.io/v1beta1";
    let credential =
        json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}});
    let top = tempfile::tempdir().unwrap();
    let (program, runs) = (top.path().join("credential"), top.path().join("runs"));
    let write = |rest: &str| {
        let script = format!("#!/bin/sh\necho $1 >> {}\n{rest}\n", runs.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let command = format!("--exec-command={}", program.display());
    let api = format!("--exec-api-version={version}");
    kubectl(&["config", "set-credentials", "by-program", &command, &api, "--exec-arg=login"]);
    kubectl(&["config", "set-context", "--current", "--user=by-program"]);
    kubectl(&["config", "unset", "users.caller"]);
    write(&format!("echo '{credential}'"));
    let ask = ["podstuck", "-n", "shop"];
    let (text, status) = kubectl(&ask);
    assert!(status == 1 && text.contains("pod-finalizer"), "{text}");
    // The client library runs it for a token, for a certificate, and for the time at which that expires.
    assert_eq!(fs::read_to_string(&runs).unwrap(), "login\n".repeat(3));
    write("echo 'no session: log in' >&2; exit 7");
    let (text, status) = kubectl(&ask);
    println!("$ kubectl podstuck -n shop\n{text}");
    assert!(status == 3 && text.contains("no session: log in"), "{status}: {text}");
}

/// The heartbeat of n2's kubelet: it renews its Lease and reports that its node is Ready, and its address.
fn heartbeat(at: &Workstation, kubelet: &Kubelet) {
    let now = format!("{:.0}", jiff::Timestamp::now());
    let micro = now.replace('Z', ".000000Z");
    let renewed = json!({"spec": {"renewTime": micro}}).to_string();
    at.kubectl(&[
        "patch",
        "lease",
        "n2",
        "--namespace=kube-node-lease",
        "--type=merge",
        "--patch",
        &renewed,
    ]);
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
        "volumesInUse": ["kubernetes.io/csi/disk.example.com^pv-5"],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now}]});
    set_status(at, "/api/v1/nodes/n2", &status);
}

/// A pod's API object.
fn record(at: &Workstation, name: &str) -> Value {
    let text = at.kubectl(&["get", "pod", name, "--namespace=edge", "--output=json"]);
    serde_json::from_str(&text).unwrap()
}

/// kubelet's own list decides whether it has missed a deletion. It is read only on request and with the right to do
/// so.
fn a_missed_deletion_is_proven_by_two_reads(at: &Workstation, kubelet: &Kubelet, before: &Value) {
    at.apply(vec![on_n2("edge", "later")]);
    kubelet.has(&[before.clone(), record(at, "later")]);
    let ask = ["missed", "-n", "edge", "--no-examine"];
    let with_proxy = [&ask[..], &["--via-node-proxy"]].concat();
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&ask);
    assert_eq!((status, kubelet.reads()), (5, 0), "{text}");
    assert!(text.contains("kubectl podstuck edge/missed --via-node-proxy"), "{text}");
    // The rights of docs/cluster.md do not suffice.
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&[&with_proxy[..], &["--as", "jane"]].concat());
    assert_eq!((status, kubelet.reads()), (5, 0), "{text}");
    assert!(text.contains("get nodes/proxy: not permitted"), "{text}");
    assert!(
        text.contains("check: kubectl --as=jane auth can-i get nodes --subresource=proxy"),
        "{text}"
    );
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&with_proxy);
    println!("$ kubectl podstuck {}\n{text}", with_proxy.join(" "));
    let cause = "kubelet-missed-deletion";
    assert!(status == 1 && text.contains(&format!("{cause} (certain)")), "{text}");
    assert_eq!(kubelet.reads(), 2);
    // Like a kubelet that lists its pods again.
    kubelet.has(&[record(at, "missed"), record(at, "later")]);
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&with_proxy);
    assert!(status == 5 && text.contains("has received the deletion"), "{text}");
    at.kubectl(&["delete", "pod", "missed", "--namespace=edge", "--force", "--grace-period=0"]);
    at.wait_until_gone(&["pod", "missed", "--namespace=edge"]);
}

#[test]
fn what_keeps_objects_is_found_and_released_on_a_real_api_server() {
    if let Err(missing) = ControlPlane::is_possible() {
        return skip(format!("{missing:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let one = podstuck_cluster::present::schema(&mut generator);
    let schema = json!({"oneOf": [one], "$defs": generator.take_definitions(true)});
    let plane = ControlPlane::up(top.path()).unwrap();
    let at = Workstation { plane, schema: Schema::new(schema) };
    at.apply(namespaces());
    strand(&at);
    make(&at);
    make_dark(&at);
    let kubelet = Kubelet::start();
    let before = record(&at, "missed");
    // The webhooks are created last: they would also keep the controllers from writing to the claim.
    delete(&at);
    delete_dark(&at);
    at.apply([&[dead_webhook()][..], &denying_webhooks()].concat());
    healthy_deletions_are_silent(&at);
    // The namespace controller deletes a namespace's content later than the namespace.
    let are_overdue = || at.json(&["-A", "--all-types"])["in_time"] == 0;
    at.plane.wait_for("all deletions to be overdue", are_overdue).unwrap();
    all_are_listed(&at);
    a_recording_gives_the_same_answer(&at);
    the_documented_rights_suffice(&at);
    a_credential_program_is_run(&at);
    a_missed_deletion_is_proven_by_two_reads(&at, &kubelet, &before);
    what_waits_for_a_node_that_is_off_is_named(&at);
    a_denied_removal_is_proven_by_a_dry_run(&at);
    a_denied_deletion_by_kubelet_is_shown_by_a_dry_run(&at, &kubelet);
    a_volume_that_kubelet_uses_leads_to_its_pod(&at, &kubelet);
    let mut followed = Followed::begin(&at);
    for case in &CASES {
        released_by_what_is_printed(&at, case);
    }
    followed.has("PersistentVolumeClaim locked/data: stuck: webhook-unavailable (certain)");
    followed
        .has("s after its deletion was requested, as the finalizer example.com/kept was removed");
    a_dead_webhook_is_released_before_the_finalizer(&at);
    followed.has("PersistentVolumeClaim locked/data: gone ");
    an_object_that_cannot_be_read_keeps_its_namespace(&at);
    controllers_that_do_not_run_are_named(&at);
    let (text, status) = at.podstuck(&["-A"]);
    assert_eq!(status, 0, "{text}");
}

/// The store has an object of another kind under the key of a ConfigMap: the API server can neither list nor delete the
/// ConfigMaps of the namespace.
fn an_object_that_cannot_be_read_keeps_its_namespace(at: &Workstation) {
    let server = at.plane.pid("kube-apiserver").unwrap();
    let words = fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
    let mut words = words.split('\0').skip_while(|word| *word != "--etcd-servers");
    let store = words.nth(1).unwrap();
    let ask_store = |path: &str, body: &Value| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), body.to_string()).unwrap();
        let body = file.path().to_str().unwrap();
        at.kubectl(&["--server", store, "create", "--raw", path, "--filename", body]);
    };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let key = bytes("/registry/configmaps/damaged/left");
    at.kubectl(&["create", "namespace", "damaged"]);
    at.kubectl(&["create", "configmap", "left", "--namespace=damaged"]);
    let other = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"left"}}"#;
    ask_store("/v3/kv/put", &json!({"key": key, "value": bytes(other)}));
    at.delete(&["namespace", "damaged"]);
    let ask = ["ns/damaged"];
    let cause = || at.json(&ask)["items"][0]["causes"].clone();
    let is_firm = || {
        let causes = cause();
        (&causes[0]["id"], &causes[0]["certainty"])
            == (&json!("stored-object-unreadable"), &json!("firm"))
    };
    at.plane.wait_for("the namespace to be overdue", is_firm).unwrap();
    let (text, status) = at.podstuck(&ask);
    println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
    assert_eq!((status, cause().as_array().unwrap().len()), (1, 1), "{text}");
    assert!(
        text.contains("the list of configmaps in damaged fails with the same message"),
        "{text}"
    );
    ask_store("/v3/kv/deleterange", &json!({"key": key}));
    at.wait_until_gone(&["namespace", "damaged"]);
}

/// kubelet lists a volume as in use: the VolumeAttachment, and a pod on another node that waits for the volume, lead to the
/// pod that uses it.
fn a_volume_that_kubelet_uses_leads_to_its_pod(at: &Workstation, kubelet: &Kubelet) {
    for (ask, cause) in [
        (["volumeattachment/used", "--no-examine"], "volume-in-use-on-node"),
        (["edge/coming", "--no-examine"], "pod-not-deleted"),
    ] {
        heartbeat(at, kubelet);
        let document = at.json(&ask);
        let item = &document["items"][0];
        is(&document, &[(cause, "firm")]);
        assert_eq!(
            (&item["leaf"]["name"], &item["leaf"]["examine"]),
            (&json!("leaving"), &json!("n2")),
            "{document:#}"
        );
        let (text, status) = at.podstuck(&ask);
        println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
        assert!(text.contains("waits for Pod edge/leaving"), "{text}");
        assert!(text.contains(&format!("{cause} (certain)")), "{text}");
        assert_eq!(status == 1, cause == "volume-in-use-on-node", "{status}: {text}");
    }
    // As kubelet does after it has unmounted the volume.
    at.kubectl(&["delete", "pod", "leaving", "--namespace=edge", "--force", "--grace-period=0"]);
    set_status(at, "/api/v1/nodes/n2", &json!({"volumesInUse": []}));
    let (text, status) = at.podstuck(&["volumeattachment/used"]);
    assert!(status == 0 && !text.contains("volume-in-use-on-node"), "{text}");
}

/// The causes of the object that was asked about, with their certainties.
#[track_caller]
fn is(document: &Value, all: &[(&str, &str)]) {
    let causes = document["items"][0]["causes"].as_array().unwrap();
    let found: Vec<_> = causes
        .iter()
        .map(|it| (it["id"].as_str().unwrap(), it["certainty"].as_str().unwrap()))
        .collect();
    assert_eq!(found, all, "{document:#}");
}

/// kube-controller-manager runs without the garbage collector of pods and without the DaemonSet controller, then not at
/// all, and is started again with both.
fn controllers_that_do_not_run_are_named(at: &Workstation) {
    let until = |what: &str, ask: &[&str], cause: &str| {
        let is_firm = || {
            let document = at.json(ask);
            let first = &document["items"][0]["causes"][0];
            (&first["id"], &first["certainty"]) == (&json!(cause), &json!("firm"))
        };
        at.plane.wait_for(what, is_firm).unwrap();
    };
    let ask = ["ds/agent", "-n", "operators"];
    until("a minute after the change", &ask, "daemonset-not-synced");
    let (text, status) = at.podstuck(&ask);
    println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
    assert!(status == 1 && text.contains("status.observedGeneration 0"), "{text}");
    let document = at.json(&ask);
    let remedies = document["items"][0]["causes"][0]["remedies"].as_array().unwrap();
    for command in remedies.iter().filter_map(|it| it["command"].as_str()) {
        at.run(command).unwrap();
    }
    until("two minutes after the deletion", &["edge/stranded"], "node-object-gone");
    released_by_what_is_printed(
        at,
        &Case {
            ask: &["edge/stranded"],
            cause: "node-object-gone",
            gone: &["pod", "stranded", "--namespace=edge"],
        },
    );
    let mut words = at.plane.kill("kube-controller-manager").unwrap();
    // As it stays where the replica that held it was killed.
    at.apply(vec![lease("kube-system", "kube-controller-manager", "control-plane-1_1")]);
    at.kubectl(&["delete", "pod", "late-user", "--namespace=edge", "--force", "--grace-period=0"]);
    let late = ["pvc/late", "-n", "edge"];
    let (text, status) = at.podstuck(&late);
    println!("$ kubectl podstuck {}\n{text}", late.join(" "));
    assert_eq!(status, 1, "{text}");
    is(&at.json(&late), &[("control-plane-without-leader", "firm"), ("object-finalizer", "firm")]);
    is(&at.json(&ask), &[("control-plane-without-leader", "firm")]);
    for word in &mut words {
        *word = word.replace("--leader-elect=false", "--leader-elect=true");
        *word = word.replace("--controllers=", "--controllers=daemonset,podgc,");
    }
    for (option, value) in [
        ("resource-lock", "leases"),
        ("lease-duration", "5s"),
        ("renew-deadline", "4s"),
        ("retry-period", "1s"),
    ] {
        words.push(format!("--leader-elect-{option}={value}"));
    }
    at.plane.start_again("kube-controller-manager", &words).unwrap();
    at.wait_until_gone(&["pvc", "late", "--namespace=edge"]);
    at.plane.wait_for("the DaemonSet controller", || at.podstuck(&ask).1 == 0).unwrap();
}

/// A running `--watch`, whose output goes to a file.
struct Followed {
    podstuck: Child,
    file: tempfile::NamedTempFile,
}

impl Followed {
    fn begin(at: &Workstation) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut kubectl = at.command("kubectl");
        let podstuck =
            kubectl.args(["podstuck", "-A", "--watch"]).stdout(file.reopen().unwrap()).spawn();
        let mut own = Self { podstuck: podstuck.unwrap(), file };
        own.has("Pod shop/kept: stuck: pod-finalizer (certain): the finalizer example.com/kept");
        own
    }

    fn has(&mut self, words: &str) {
        let text = || fs::read_to_string(self.file.path()).unwrap();
        for _ in 0..100 {
            if text().contains(words) {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
        panic!("{words} is not in: {}", text());
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        println!(
            "$ kubectl podstuck -A --watch\n{}",
            fs::read_to_string(self.file.path()).unwrap_or_default()
        );
        let _ = self.podstuck.kill();
        let _ = self.podstuck.wait();
    }
}
