//! CSI drivers of the tests' own, one for each case, as pods: one of the driver, one of its registrar,
//! so that either can be missing. Their volumes are claimed as a user claims them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::{NAME, Node};
use procfs::process::Process;
use serde_json::{Value, json};

use super::pods::{OnNode, container, pod};

const KUBELET: &str = "/var/lib/kubelet";

/// Everything that a pod with a CSI volume takes. All is named after the pod.
pub fn with_volume(name: &str) -> Value {
    let driver = driver(name);
    let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } });
    let items = [
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": { "name": driver },
            "spec": { "attachRequired": false },
        }),
        driver_pod(name),
        registrar_pod(name),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": volume(name) },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": driver, "volumeHandle": format!("handle-{name}") },
                "claimRef": { "namespace": "default", "name": name },
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": name },
            "spec": {
                "storageClassName": "",
                "volumeName": volume(name),
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }),
        pod(name, &json!([claim])),
    ];
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// The same, with a volume that a process of the driver's serves by FUSE.
pub fn with_fuse(name: &str) -> Value {
    let mut all = with_volume(name);
    let items = all["items"].as_array_mut().unwrap();
    let volume = items.iter_mut().find(|item| item["kind"] == "PersistentVolume").unwrap();
    volume["spec"]["csi"]["volumeAttributes"] = json!({ "backing": "fuse" });
    all
}

/// Kills the process that serves a volume.
pub fn end_server(mounted: &Path) {
    let serves = |process: &Process| {
        let words = process.cmdline().unwrap_or_default();
        words.first().is_some_and(|program| program.ends_with("/podstuck-fuse"))
            && words.get(1).is_some_and(|point| Path::new(point) == mounted)
    };
    let mut all = procfs::process::all_processes().unwrap().flatten();
    let server = all.find(serves).unwrap();
    kill(Pid::from_raw(server.pid), Signal::SIGKILL).unwrap();
}

fn driver(name: &str) -> String {
    format!("{name}.podstuck.test")
}

fn volume(name: &str) -> String {
    format!("pv-{name}")
}

/// Where the volume of a pod is mounted.
pub fn mount_of(pod: &OnNode, name: &str) -> PathBuf {
    pod.directory().join("volumes/kubernetes.io~csi").join(volume(name)).join("mount")
}

fn driver_pod(name: &str) -> Value {
    let driver = driver(name);
    let socket = format!("{KUBELET}/plugins/{driver}/csi.sock");
    let words = ["/bin/podstuck-csi-driver", "driver", "--socket", &socket, "--state", "/state"];
    let more = ["--control", "/state/fault", "--name", &driver, "--node-id", NAME];
    privileged(&format!("{name}-driver"), &[&words[..], &more].concat())
}

fn registrar_pod(name: &str) -> Value {
    let driver = driver(name);
    let socket = format!("{KUBELET}/plugins/{driver}/csi.sock");
    let registration = format!("{KUBELET}/plugins_registry/{driver}-reg.sock");
    // It asks the driver for its name, and gives up without an answer.
    let script = format!(
        "until test -S {socket}; do sleep 0.2; done; exec /bin/podstuck-csi-driver registrar \
         --registration-socket {registration} --csi-socket {socket} --name {driver}"
    );
    privileged(&format!("{name}-registrar"), &["/bin/sh", "-c", &script])
}

/// A pod that sees kubelet's directory, and whose mounts the node sees.
fn privileged(name: &str, command: &[&str]) -> Value {
    let mut container = container("main", command);
    container["securityContext"] = json!({ "privileged": true });
    container["volumeMounts"] = json!([
        { "name": "kubelet", "mountPath": KUBELET, "mountPropagation": "Bidirectional" },
        { "name": "state", "mountPath": "/state" },
    ]);
    let host = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } });
    // Driver and registrar of a case share a directory.
    let case = name.rsplit_once('-').unwrap().0;
    let volumes = [host("kubelet", KUBELET), host("state", state(case).to_str().unwrap())];
    let mut pod = pod(name, &json!([]));
    pod["spec"]["containers"] = json!([container]);
    pod["spec"]["volumes"] = volumes.into();
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    pod
}

fn state(case: &str) -> PathBuf {
    Path::new("/run/podstuck-node/disk/csi").join(case)
}

/// Tells the driver of a case what is to go wrong from now on.
pub fn order(case: &str, fault: &str) {
    fs::write(state(case).join("fault"), fault).unwrap();
}

/// Ends the driver's or the registrar's pod of a case.
pub fn end(node: &Node, case: &str, part: &str) {
    node.kubectl(&["delete", "pod", &format!("{case}-{part}")]).unwrap();
}

/// Starts the driver of a case again.
pub fn start_driver(node: &Node, case: &str) {
    node.apply(&driver_pod(case)).unwrap();
}

/// Starts the registrar of a case again.
pub fn start_registrar(node: &Node, case: &str) {
    node.apply(&registrar_pod(case)).unwrap();
}

/// Restarts the driver of a case, and nothing goes wrong from then on.
pub fn restart_healthy(node: &Node, case: &str) {
    order(case, "");
    end(node, case, "driver");
    start_driver(node, case);
}

/// Restarts the driver of a case without mount propagation, as after a change of its manifest: it has
/// copies of all mounts, and what it unmounts is unmounted for itself only.
pub fn cut_off(node: &Node, case: &str) {
    end(node, case, "driver");
    let mut driver = driver_pod(case);
    for mounted in driver["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap() {
        mounted.as_object_mut().unwrap().remove("mountPropagation");
    }
    node.apply(&driver).unwrap();
    let name = format!("{case}-driver");
    let phase = ["get", "pod", &name, "-o", "jsonpath={.status.phase}"];
    node.wait_for(&name, || node.kubectl(&phase).unwrap() == "Running").unwrap();
}

/// Unmounts a volume without kubelet and the driver, as a boot does.
pub fn unmount(pod: &OnNode, name: &str) {
    nix::mount::umount(&mount_of(pod, name)).unwrap();
}

/// Removes what kubelet wrote about a volume.
pub fn lose_data(mounted: &Path) {
    fs::remove_file(mounted.with_file_name("vol_data.json")).unwrap();
}

/// Empties it, as a file system does after a crash that came before its content was written.
pub fn empty_data(mounted: &Path) {
    fs::write(mounted.with_file_name("vol_data.json"), "").unwrap();
}

/// Puts a file where a volume is mounted, below the mount.
pub fn hide_a_file(node: &Node, mounted: &Path) {
    let window = node.top().join("window");
    fs::create_dir_all(&window).unwrap();
    let parent = mounted.parent().unwrap();
    let none = None::<&str>;
    // Not recursive: what is mounted below is not shown.
    nix::mount::mount(Some(parent), &window, none, nix::mount::MsFlags::MS_BIND, none).unwrap();
    fs::write(window.join("mount/hidden"), "data").unwrap();
    nix::mount::umount(&window).unwrap();
}
