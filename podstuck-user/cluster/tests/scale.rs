//! `kubectl podstuck` on a large cluster, by hand: `cargo test -p podstuck-cluster --test scale -- --ignored --nocapture`.
//! A real API server and etcd hold 1,000 nodes with their Leases, 50,000 pods, 200 custom types and 300 stuck objects;
//! a smaller one deletes 1,020 healthy objects, of which none is reported.
//! Nothing here asserts a time: it prints requests, memory, and the time beside that of `kubectl get --raw` for the same
//! pages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod objects;
mod writer;

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use kube::api::{
    Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use objects::{claim, finalizer, object};
use podstuck_test_node::ControlPlane;
use podstuck_testing::skip;
use serde_json::{Value, json};
use writer::{Writer, kind};

const NODES: usize = 1000;
const NAMESPACES: usize = 100;
const PODS: usize = 500;
const TYPES: usize = 200;
/// Stuck objects by cause.
const STUCK: [(&str, usize); 12] = [
    ("pod-finalizer", 40),
    ("node-not-heard", 40),
    ("claim-in-use", 40),
    ("namespace-content-remains", 30),
    ("volume-detach-fails", 30),
    ("attached-volume-gone", 30),
    ("node-off", 20),
    ("virtual-node", 10),
    ("windows-node", 10),
    ("object-finalizer", 20),
    ("volume-bound", 20),
    ("volume-attached", 10),
];
/// The nodes whose pods have the cause of that name, and what makes them so.
fn special_nodes() -> [(&'static str, usize, Value); 3] {
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    let off = json!({"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]}});
    [
        ("node-off", NODES - 1, off),
        ("virtual-node", NODES - 2, label("type", "virtual-kubelet")),
        ("windows-node", NODES - 3, label("kubernetes.io/os", "windows")),
    ]
}
/// Number of stuck pods or claims in a namespace.
const IN_ONE: usize = 10;
/// Time after which a deletion counts as stuck.
const PATIENCE: Duration = Duration::from_secs(32);

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
    let metadata = more.get("metadata").cloned().unwrap_or_else(|| json!({}));
    object("v1", "Pod", of, name, &json!({"metadata": metadata, "spec": spec}))
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
        let special = special_nodes().into_iter().find(|(_, number, _)| *number == it);
        let more = special.map_or_else(|| json!({}), |(_, _, more)| more);
        [
            object("v1", "Node", "", &node(it), &more),
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
        let kept = finalizer("example.com/kept");
        deleted.push(pod(&namespace(it / IN_ONE), &format!("kept-{it}"), it, 0, &kept));
    }
    for it in 0..stuck("node-not-heard") {
        deleted.push(pod(&namespace(20 + it / IN_ONE), &format!("silent-{it}"), it, 1, &json!({})));
    }
    for it in 0..stuck("claim-in-use") {
        let (of, name) = (namespace(40 + it / IN_ONE), format!("data-{it}"));
        deleted.push(claim(&of, &name, &json!({})));
        then.push(pod(&of, &format!("user-{it}"), it, 30, &json!({"claim": name})));
    }
    for it in 0..stuck("namespace-content-remains") {
        let name = format!("full-{it}");
        deleted.push(object("v1", "Namespace", "", &name, &json!({})));
        then.push(object("v1", "ConfigMap", &name, "left", &finalizer("example.com/left")));
    }
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "disk.example.com", "volumeHandle": "v"}}});
    first.push(object("v1", "PersistentVolume", "", "pv-1", &volume));
    for (cause, of) in [("volume-detach-fails", "pv-1"), ("attached-volume-gone", "pv-2")] {
        for it in 0..stuck(cause) {
            let spec = json!({"attacher": "disk.example.com", "nodeName": node(it), "source": {"persistentVolumeName": of}});
            let mut more = finalizer("external-attacher/disk-example-com");
            more["spec"] = spec;
            deleted.push(object(
                "storage.k8s.io/v1",
                "VolumeAttachment",
                "",
                &format!("{cause}-{it}"),
                &more,
            ));
        }
    }
    for (cause, on, _) in special_nodes() {
        for it in 0..stuck(cause) {
            deleted.push(pod(
                &namespace(50 + it / IN_ONE),
                &format!("{cause}-{it}"),
                on,
                1,
                &json!({}),
            ));
        }
    }
    for it in 0..stuck("object-finalizer") {
        let kept = finalizer("example.com/locked");
        deleted.push(claim(&namespace(60 + it / IN_ONE), &format!("locked-{it}"), &kept));
    }
    for it in 0..stuck("volume-bound") {
        let (of, name) = (namespace(70 + it / IN_ONE), format!("bound-{it}"));
        let mut bound = object("v1", "PersistentVolume", "", &name, &volume);
        bound["spec"]["claimRef"] = json!({"namespace": of, "name": name});
        bound["spec"]["storageClassName"] = json!("none");
        let mut its = claim(&of, &name, &json!({}));
        its["spec"]["volumeName"] = json!(name);
        first.push(its);
        deleted.push(bound);
    }
    for it in 0..stuck("volume-attached") {
        let name = format!("attached-{it}");
        let mut attached = volume.clone();
        attached["metadata"] = json!({"finalizers": ["external-attacher/disk-example-com"]});
        deleted.push(object("v1", "PersistentVolume", "", &name, &attached));
        let spec = json!({"attacher": "disk.example.com", "nodeName": node(it), "source": {"persistentVolumeName": name}});
        then.push(object(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "",
            &name,
            &json!({"spec": spec}),
        ));
    }
    (vec![first, deleted.clone(), then], deleted)
}

async fn fill(plane: &ControlPlane) {
    let writer = Writer::of(&plane.kubeconfig()).await;
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
    let is_bound = || {
        let phases = plane.kubectl(&["get", "pv", "--output=jsonpath={.items[*].status.phase}"]);
        phases.unwrap().matches("Bound").count() == stuck("volume-bound")
    };
    plane.wait_for("the volumes to be bound", is_bound).unwrap();
    writer.delete(deleted, PropagationPolicy::Background).await;
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
    // It reads 200 types for each namespace.
    let mut waits = (0..5).map(|_| plane.wait_for("the namespace controller", is_seen));
    assert!(waits.any(|waited| waited.is_ok()), "the namespace controller has seen not all");
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

/// Healthy objects of each kind that are deleted in one wave, and the waves.
const WAVE: usize = 20;
const WAVES: usize = 17;
/// A finalizer that a controller removes.
const SLOW: &str = "example.com/slow";

/// Deletes pods with a controller's finalizer, claims with their protection, and ReplicaSets with their pods, all in the
/// foreground, wave by wave.
async fn churn(writer: &Writer) {
    for wave in 0..WAVES {
        let pods = (0..WAVE).map(|it| {
            let mut pod = pod("churn", &format!("p{wave}-{it}"), 0, 1, &finalizer(SLOW));
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
            pod
        });
        let claims = (0..WAVE).map(|it| claim("churn", &format!("c{wave}-{it}"), &json!({})));
        let sets = (0..WAVE).map(|it| {
            let name = format!("r{wave}-{it}");
            let labels = json!({"app": name});
            let template = json!({"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "example.com/none"}]}});
            let spec =
                json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
            object("apps/v1", "ReplicaSet", "churn", &name, &json!({"spec": spec}))
        });
        let all: Vec<Value> = pods.chain(claims).chain(sets).collect();
        writer.create(all.clone()).await;
        writer.delete(all.clone(), PropagationPolicy::Foreground).await;
        while !released(writer, &all).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Removes the finalizer of deleted pods, as its controller does; whether all objects are gone.
async fn released(writer: &Writer, all: &[Value]) -> bool {
    let mut are_gone = true;
    for index in [0, WAVE, 2 * WAVE] {
        let (api, _) = writer.api(&all[index]);
        for left in api.list(&ListParams::default()).await.unwrap() {
            are_gone = false;
            let Some(own) = left.metadata.finalizers.filter(|own| own.iter().any(|it| it == SLOW))
            else {
                continue;
            };
            let others: Vec<&String> = own.iter().filter(|it| *it != SLOW).collect();
            let patch = Patch::Merge(
                json!({"metadata": {"finalizers": others, "resourceVersion": left.metadata.resource_version}}),
            );
            // Another controller may have written to it meanwhile: then the next round removes it.
            let _ = api.patch(&left.metadata.name.unwrap(), &PatchParams::default(), &patch).await;
        }
    }
    are_gone
}

#[test]
#[ignore = "minutes: by hand"]
fn a_thousand_healthy_deletions_are_silent() {
    if let Err(why) = ControlPlane::is_possible() {
        return skip(format!("{why:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    plane.apply(&object("v1", "Namespace", "", "churn", &json!({}))).unwrap();
    let done = AtomicBool::new(false);
    let ask = || {
        let mut podstuck = Command::new(env!("CARGO_BIN_EXE_kubectl-podstuck"));
        podstuck.args(["-A", "-o", "json"]).env("KUBECONFIG", plane.kubeconfig());
        let document: Value = serde_json::from_str(&measured(&mut podstuck).0).unwrap();
        assert_eq!((&document["items"], &document["not_read"]), (&json!([]), &json!([])));
        document["in_time"].as_u64().unwrap()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime
                .unwrap()
                .block_on(async { churn(&Writer::of(&plane.kubeconfig()).await).await });
            done.store(true, SeqCst);
        });
        let (mut asked, mut going) = (0, 0);
        while !done.load(SeqCst) {
            asked += 1;
            going += ask();
        }
        println!("{} deletions: asked {asked} times, {going} deletions in time", 3 * WAVE * WAVES);
        assert!(going > 0, "no deletion was under way while it was asked");
    });
    assert_eq!(ask(), 0);
}
