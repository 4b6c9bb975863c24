//! Many pods that go as they should: nothing is to be said about them.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::Duration,
};

use podstuck_test_node::{Node, Runtime};
use podstuck_tests::{of_type, skip, summary, watch};
use serde_json::{Value, json};

use super::{
    borrowed::Borrowed,
    pods::{OnNode, empty_dir, pod},
};

/// How many at once.
const PODS: usize = 50;
/// Long enough to be in the way of the first attempt, and gone at the second one, half a second later.
const HELD: Duration = Duration::from_millis(1500);
/// What kubelet clears away after a pod is gone, it does every two seconds.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn healthy_deletions_are_not_reported() {
    for runtime in [Runtime::Containerd, Runtime::Docker] {
        if runtime == Runtime::Docker && !Path::new("/usr/sbin/dockerd").exists() {
            skip("with docker: no dockerd");
            continue;
        }
        let borrowed = Borrowed::with(runtime);
        deleted(borrowed.node(), runtime);
    }
}

fn deleted(node: &Node, runtime: Runtime) {
    let names: Vec<String> = (0..PODS).map(|number| format!("healthy-{number}")).collect();
    let in_memory = json!({ "name": "memory", "emptyDir": { "medium": "Memory" } });
    let volumes = json!([empty_dir("disk"), in_memory]);
    let items: Vec<Value> = names.iter().map(|name| pod(name, &volumes)).collect();
    node.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items })).unwrap();
    let mut agents = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let phase = ["get", "pod", name, "-o", "jsonpath={.status.phase}"];
        node.wait_for(name, || node.kubectl(&phase).unwrap() == "Running").unwrap();
        // An agent reads in every other one.
        agents.extend(fill(&OnNode::of(node, name)).into_iter().filter(|_| number % 2 == 0));
    }

    let watching = watch(&[]);
    node.kubectl(&["delete", "pod", "--wait=false", "--all"]).unwrap();
    thread::sleep(HELD);
    drop(agents);
    let left = ["get", "pods", "-o", "name"];
    node.wait_for("all pods to go", || node.kubectl(&left).unwrap().is_empty()).unwrap();
    thread::sleep(HOUSEKEEPING);
    let (lines, status) = watching.stop();

    let found = of_type(&lines, "finding");
    assert!(found.is_empty(), "{runtime:?}: {found:#?}");
    assert_eq!(status.code(), Some(0), "{runtime:?}");
    let removed = &summary(&lines)["by_outcome"]["unlinkat+AT_REMOVEDIR"]["ok"];
    // Of each volume on the disk, itself and what is in it.
    assert!(removed.as_u64() >= Some(3 * PODS as u64), "{runtime:?}: {removed} directories");
}

/// Puts files into both volumes, and opens one in each.
fn fill(pod: &OnNode) -> Vec<File> {
    let folders = ["disk", "memory"].map(|volume| pod.empty_dir(volume).join("a/b"));
    let fill = |folder: &std::path::PathBuf| {
        fs::create_dir_all(folder).unwrap();
        (0..20).for_each(|file| fs::write(folder.join(file.to_string()), "x").unwrap());
        File::open(folder.join("7")).unwrap()
    };
    folders.iter().map(fill).collect()
}
