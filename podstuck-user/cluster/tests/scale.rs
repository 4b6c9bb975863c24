//! `kubectl podstuck` on a large cluster, by hand: `cargo test -p podstuck-cluster --test scale -- --ignored --nocapture`.
//! A real API server and etcd hold 1,000 nodes with their Leases, 50,000 pods, 200 custom types and 300 stuck objects.
//! Nothing here asserts a time: it prints requests, memory, and the time beside that of `kubectl get --raw` for the same
//! pages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, PostParams, PropagationPolicy},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use podstuck_test_node::ControlPlane;
use podstuck_testing::skip;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

const NODES: usize = 1000;
const NAMESPACES: usize = 100;
const PODS: usize = 500;
const TYPES: usize = 200;
/// Stuck objects by cause.
const STUCK: [(&str, usize); 6] = [
    ("pod-finalizer", 60),
    ("node-not-heard", 60),
    ("claim-in-use", 60),
    ("namespace-content-remains", 30),
    ("volume-detach-fails", 45),
    ("attached-volume-gone", 45),
];
/// Number of stuck pods or claims in a namespace.
const IN_ONE: usize = 10;
/// Concurrent writes.
const WRITES: usize = 48;
/// Time after which a deletion counts as stuck.
const PATIENCE: Duration = Duration::from_secs(32);

/// Writes objects, some at a time.
#[derive(Clone)]
struct Writer {
    client: Client,
    turns: Arc<Semaphore>,
}

fn kind(object: &Value) -> (ApiResource, Option<String>, String) {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, text("/kind"));
    let namespace = object.pointer("/metadata/namespace").map(|it| it.as_str().unwrap().to_owned());
    (ApiResource::from_gvk(&kind), namespace, text("/metadata/name").to_owned())
}

impl Writer {
    fn api(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let (resource, namespace, name) = kind(object);
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        (api, name)
    }

    async fn each<F>(&self, objects: Vec<Value>, act: fn(Api<DynamicObject>, String, Value) -> F)
    where
        F: Future<Output = kube::Result<()>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for object in objects {
            let turn = self.turns.clone().acquire_owned().await.unwrap();
            let (api, name) = self.api(&object);
            tasks.spawn(async move {
                let _turn = turn;
                let mut tries = 0;
                while let Err(error) = act(api.clone(), name.clone(), object.clone()).await {
                    tries += 1;
                    assert!(tries < 20, "{name}: {error}");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            });
            while let Some(done) = tasks.try_join_next() {
                done.unwrap();
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }

    async fn create(&self, objects: Vec<Value>) {
        let create = |api: Api<DynamicObject>, _, object| async move {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                other => other.map(drop),
            }
        };
        self.each(objects, create).await;
    }

    async fn delete(&self, objects: Vec<Value>) {
        let delete = |api: Api<DynamicObject>, name: String, _| async move {
            let how = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            api.delete(&name, &how).await.map(drop)
        };
        self.each(objects, delete).await;
    }
}

fn object(version: &str, kind: &str, namespace: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for (key, value) in more.as_object().unwrap() {
        if key == "finalizers" {
            object["metadata"]["finalizers"] = value.clone();
        } else {
            object[key] = value.clone();
        }
    }
    object
}

fn namespace(number: usize) -> String {
    format!("team-{number:03}")
}

fn node(number: usize) -> String {
    format!("node-{number:04}")
}

fn pod(of: &str, name: &str, on: usize, grace: u32, more: &Value) -> Value {
    let volumes: Vec<Value> = more
        .get("claim")
        .map(|claim| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}))
        .into_iter()
        .collect();
    // No node reports: without this, pods would be evicted.
    let spec = json!({"nodeName": node(on), "terminationGracePeriodSeconds": grace, "volumes": volumes,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "app", "image": "registry.example.com/team/app:1.2.3", "args": ["--serve", "--port=8080"]}]});
    let mut all = json!({"spec": spec});
    if let Some(finalizers) = more.get("finalizers") {
        all["finalizers"] = finalizers.clone();
    }
    object("v1", "Pod", of, name, &all)
}

fn stuck(cause: &str) -> usize {
    STUCK.iter().find(|it| it.0 == cause).unwrap().1
}

/// The objects of a healthy cluster.
fn healthy() -> Vec<Vec<Value>> {
    let namespaces =
        (0..NAMESPACES).map(|it| object("v1", "Namespace", "", &namespace(it), &json!({})));
    let nodes = (0..NODES).flat_map(|it| {
        let spec = json!({"holderIdentity": node(it), "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"});
        [
            object("v1", "Node", "", &node(it), &json!({})),
            object("coordination.k8s.io/v1", "Lease", "kube-node-lease", &node(it), &json!({"spec": spec})),
        ]
    });
    let pods = (0..NAMESPACES * PODS).map(|it| {
        pod(&namespace(it % NAMESPACES), &format!("app-{it:05}"), it % NODES, 30, &json!({}))
    });
    let types = (0..TYPES).map(|it| {
        let (group, plural) = (format!("group-{}.example.com", it % 50), format!("things{it}"));
        let names = json!({"plural": plural, "singular": format!("thing{it}"), "kind": format!("Thing{it}"), "listKind": format!("Thing{it}List")});
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let spec = json!({"group": group, "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]});
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", &format!("{plural}.{group}"), &json!({"spec": spec}))
    });
    vec![namespaces.collect(), nodes.collect(), types.collect(), pods.collect()]
}

/// Objects that are to be deleted, and those that keep them.
fn to_get_stuck() -> (Vec<Vec<Value>>, Vec<Value>) {
    let (mut first, mut then, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    for it in 0..stuck("pod-finalizer") {
        let finalizers = json!({"finalizers": ["example.com/kept"]});
        deleted.push(pod(&namespace(it / IN_ONE), &format!("kept-{it}"), it, 0, &finalizers));
    }
    for it in 0..stuck("node-not-heard") {
        deleted.push(pod(&namespace(20 + it / IN_ONE), &format!("silent-{it}"), it, 1, &json!({})));
    }
    for it in 0..stuck("claim-in-use") {
        let (of, claim) = (namespace(40 + it / IN_ONE), format!("data-{it}"));
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}});
        deleted.push(object("v1", "PersistentVolumeClaim", &of, &claim, &json!({"spec": spec})));
        then.push(pod(&of, &format!("user-{it}"), it, 30, &json!({"claim": claim})));
    }
    for it in 0..stuck("namespace-content-remains") {
        let name = format!("full-{it}");
        deleted.push(object("v1", "Namespace", "", &name, &json!({})));
        then.push(object(
            "v1",
            "ConfigMap",
            &name,
            "left",
            &json!({"finalizers": ["example.com/left"]}),
        ));
    }
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "disk.example.com", "volumeHandle": "v"}}});
    first.push(object("v1", "PersistentVolume", "", "pv-1", &volume));
    for (cause, of) in [("volume-detach-fails", "pv-1"), ("attached-volume-gone", "pv-2")] {
        for it in 0..stuck(cause) {
            let spec = json!({"attacher": "disk.example.com", "nodeName": node(it), "source": {"persistentVolumeName": of}});
            let more = json!({"finalizers": ["external-attacher/disk-example-com"], "spec": spec});
            deleted.push(object(
                "storage.k8s.io/v1",
                "VolumeAttachment",
                "",
                &format!("{cause}-{it}"),
                &more,
            ));
        }
    }
    (vec![first, deleted.clone(), then], deleted)
}

async fn fill(plane: &ControlPlane) {
    let config = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let writer = Writer { client, turns: Arc::new(Semaphore::new(WRITES)) };
    let began = Instant::now();
    for some in healthy() {
        let (what, number) = (some[0]["kind"].clone(), some.len());
        writer.create(some).await;
        println!("{number} of {what}: after {:.0?}", began.elapsed());
    }
    let (objects, deleted) = to_get_stuck();
    for some in objects {
        writer.create(some).await;
    }
    let attachments =
        (0..stuck("volume-detach-fails")).map(|it| format!("volume-detach-fails-{it}"));
    for name in attachments {
        let resource =
            kind(&object("storage.k8s.io/v1", "VolumeAttachment", "", &name, &json!({}))).0;
        let api: Api<DynamicObject> = Api::all_with(writer.client.clone(), &resource);
        let mut attachment = api.get(&name).await.unwrap();
        attachment.data["status"] = json!({"attached": true, "detachError": {"time": "2026-01-01T00:00:00Z", "message": "disk is busy"}});
        api.replace_status(&name, &PostParams::default(), &attachment).await.unwrap();
    }
    writer.delete(deleted).await;
}

/// A run of a command: its output, its time, and its peak memory in KiB.
fn measured(command: &mut Command) -> (String, Duration, u64) {
    let out = tempfile::NamedTempFile::new().unwrap();
    let began = Instant::now();
    let mut child = command.stdout(Stdio::from(out.reopen().unwrap())).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(peak);
        thread::sleep(Duration::from_millis(5));
    }
    (fs::read_to_string(out.path()).unwrap(), began.elapsed(), peak)
}

/// Reads the pages of the lists that podstuck reads, one after the other.
fn raw_pages(plane: &ControlPlane) -> (Duration, usize) {
    let (began, mut pages) = (Instant::now(), 0);
    let lists = ["pods", "persistentvolumeclaims", "persistentvolumes", "nodes", "namespaces"]
        .map(|it| format!("/api/v1/{it}"));
    for list in
        lists.iter().map(String::as_str).chain(["/apis/storage.k8s.io/v1/volumeattachments"])
    {
        let mut next = String::new();
        loop {
            let text =
                plane.kubectl(&["get", "--raw", &format!("{list}?limit=500{next}")]).unwrap();
            pages += 1;
            let page: Value = serde_json::from_str(&text).unwrap();
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => next = format!("&continue={token}"),
                None => break,
            }
        }
    }
    (began.elapsed(), pages)
}

#[test]
#[ignore = "minutes, and gigabytes of memory: by hand"]
fn a_large_cluster_is_read_in_few_requests() {
    if let Err(why) = ControlPlane::is_possible() {
        return skip(format!("{why:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(fill(&plane));
    thread::sleep(PATIENCE);
    let is_seen = || {
        let reasons = plane.kubectl(&[
            "get",
            "namespaces",
            "--output=jsonpath={.items[*].status.conditions[*].reason}",
        ]);
        reasons.unwrap().matches("SomeResourcesRemain").count()
            == stuck("namespace-content-remains")
    };
    plane.wait_for("the namespace controller", is_seen).unwrap();
    for round in 0..3 {
        for args in
            [&["-A"][..], &["-n", "team-000"], &["-A", "--all-types", "--max-requests", "2000"]]
        {
            let mut podstuck = Command::new(env!("CARGO_BIN_EXE_kubectl-podstuck"));
            podstuck.args(args).args(["-o", "json"]).env("KUBECONFIG", plane.kubeconfig());
            let (text, time, peak) = measured(&mut podstuck);
            let document: Value = serde_json::from_str(&text).unwrap();
            println!(
                "round {round}: {args:?}: {} requests, {time:.1?}, {} MiB",
                document["requests"]["made"],
                peak / 1024
            );
            if args == ["-A"] {
                let mut found: BTreeMap<String, usize> = BTreeMap::new();
                for item in document["items"].as_array().unwrap() {
                    let cause = item["causes"][0]["id"].as_str().unwrap_or("none");
                    *found.entry(cause.to_owned()).or_default() += 1;
                }
                assert_eq!(document["not_read"], json!([]));
                assert_eq!(found, STUCK.map(|(cause, number)| (cause.to_owned(), number)).into());
            }
        }
        let (time, pages) = raw_pages(&plane);
        println!("round {round}: kubectl get --raw: {pages} pages, {time:.1?}");
    }
}
