//! Reports of others, played by their mechanism: what is on the disk, mounted and listened at is real, kubelet and the
//! runtime are processes of that name that sleep, and their logs are as cited.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::{fd::OwnedFd, unix::fs::symlink, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use podstuck_testing::{again, is_started_again};
use podstuck_tests::{BTRFS, Disk, Ending, Mounted, done, has_btrfs, requires, root_and_btf};
use serde_json::Value;

use super::{Container, Node, answer, klog, log_of};

fn pod(node: &Node) -> PathBuf {
    node.root().join("pods").join(&node.uid)
}

/// The first cause, with these options alone.
fn cause(node: &Node, id: &str, certainty: &str) -> Value {
    let (lines, status) = node.ask("40s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&id.into(), &certainty.into()), "{answer:#}");
    assert_eq!(status, Some(1));
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    assert!(!chain.is_empty(), "{answer:#}");
    cause.clone()
}

/// Runs the first command as it is printed.
fn obey(cause: &Value) {
    podstuck_tests::obey(cause["remedies"][0]["command"].as_str().unwrap());
}

/// kyverno#16281
#[test]
fn a_webhook_that_refuses_kubelets_last_request_is_named() {
    requires!(root_and_btf());
    let node = Node::logging(51, |node| {
        let (name, uid) = (node.name(), &node.uid);
        let ended = format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"shop/{name}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerDied\"}}"
        );
        let refused = format!(
            "\"Failed to delete status for pod\" pod=\"shop/{name}\" err=\"Internal error occurred: failed calling \
             webhook \\\"mutate.kyverno.svc-fail\\\": failed to call webhook: Post \
             \\\"https://kyverno-svc.kyverno.svc:443/mutate/fail?timeout=10s\\\": dial tcp 10.30.144.165:443: connect: \
             no route to host\""
        );
        let deleted =
            klog(90, 'I', &format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]"));
        let refusals: String = [34, 24, 14, 4].map(|ago| klog(ago, 'I', &refused)).concat();
        deleted + &klog(60, 'I', &ended) + &refusals
    });
    let cause = cause(&node, "status-update-refused", "firm");
    let by =
        "the admission webhook mutate.kyverno.svc-fail (service kyverno-svc in namespace kyverno)";
    assert_eq!(cause["held_by"], by);
}

/// kubernetes#106942
#[test]
fn a_file_where_kubelet_expects_a_directory_goes_by_the_printed_command() {
    requires!(root_and_btf());
    let place = |node: &Node| pod(node).join("volume-subpaths/certs/module");
    let node = Node::logging(52, |node| {
        let (uid, path) = (&node.uid, place(node).join("0"));
        let text = format!(
            "\"There were many similar errors. Turn up verbosity to see them.\" err=\"orphaned pod \\\"{uid}\\\" found, \
             but failed to rmdir() subpath at path {}: not a directory\" numErrs=3",
            path.display()
        );
        [6, 4, 2].map(|ago| klog(ago, 'E', &text)).concat()
    });
    fs::create_dir_all(place(&node)).unwrap();
    let (file, kept) = (place(&node).join("0"), place(&node).join("1"));
    fs::write(&file, "").unwrap();
    fs::write(&kept, "").unwrap();
    let cause = cause(&node, "orphaned-pod-dir", "firm");
    obey(&cause);
    assert!(!file.exists() && kept.exists());
    // The same where a link or a socket is in the way, and not what has data.
    symlink(&kept, &file).unwrap();
    obey(&cause);
    assert!(file.symlink_metadata().is_err() && kept.exists());
    drop(UnixListener::bind(&file).unwrap());
    obey(&cause);
    assert!(!file.exists());
    fs::write(&file, "data").unwrap();
    obey(&cause);
    assert!(file.exists());
}

/// A mount that ends with its test.
/// rook#4695
#[test]
fn a_flex_volume_whose_driver_fails_is_unmounted_by_the_printed_command() {
    requires!(root_and_btf());
    let node = Node::logging(53, |node| {
        let volume = format!("flexvolume-ceph.rook.io/rook/{}-fs-store", node.uid);
        let error = "unmount command failed, status: Failure, reason: failed to get persistent volume fs-store: \
                     persistentvolumes \"fs-store\" not found";
        log_of(&node.uid, &node.name(), &volume, error)
    });
    let point = pod(&node).join("volumes/ceph.rook.io~rook/fs-store");
    fs::create_dir_all(&point).unwrap();
    let mounted = Mounted::memory(point, "");
    obey(&cause(&node, "flexvolume-driver-error", "firm"));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(mounted.to_str().unwrap()));
}

/// lxd#7025
#[test]
fn a_read_only_subvolume_in_a_volume_is_made_writable_by_the_printed_command() {
    requires!(root_and_btf(), has_btrfs());
    let in_volume = |node: &Node, name: &str| node.volume().join(name).display().to_string();
    let node = Node::logging(59, |node| {
        let object = in_volume(node, "containers/.migration/rootfs");
        let error = format!("unlinkat {object}: read-only file system");
        log_of(&node.uid, &node.name(), &node.unique_name(), &error)
    });
    let _disk = Disk::mount(&node.root(), 256 << 20, BTRFS, "");
    fs::create_dir_all(in_volume(&node, "containers")).unwrap();
    let subvolume = in_volume(&node, "containers/.migration");
    done(Command::new("btrfs").args(["subvolume", "create", &subvolume]));
    let rootfs = Path::new(&subvolume).join("rootfs");
    fs::create_dir(&rootfs).unwrap();
    done(Command::new("btrfs").args(["property", "set", "-ts", &subvolume, "ro", "true"]));
    let refused = fs::remove_dir(&rootfs).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let cause = cause(&node, "subvolume-readonly", "firm");
    assert_eq!(cause["held_by"], format!("the read-only subvolume {subvolume}"));
    obey(&cause);
    fs::remove_dir_all(node.volume()).unwrap();
}

/// A process in a control group of a pod's container; the runtime that keeps it, with a socket that it listens at.
struct Unreached {
    _container: Container,
    runtime: Ending,
}

impl Unreached {
    fn new(uid: &str, place: &Path, listener: UnixListener) -> Self {
        let program = place.join("containerd");
        symlink("/bin/sleep", &program).unwrap();
        let mut runtime = Command::new(program);
        let runtime = Ending::start(runtime.arg("600").stdin(OwnedFd::from(listener)));
        Self { _container: Container::new(uid), runtime }
    }
}

/// kubernetes#129193 and nydus-snapshotter#631
#[test]
fn a_runtime_whose_socket_has_lost_its_file_is_named() {
    requires!(root_and_btf());
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("containerd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let node = Node::logging(54, |node| {
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"app\\\" with \
             KillContainerError: \\\"rpc error: code = Unavailable desc = connection error: desc = \
             \\\\\\\"transport: Error while dialing: dial unix {}: connect: no such file or directory\\\\\\\"\\\"\" \
             pod=\"shop/{}\" podUID=\"{}\"",
            socket.display(),
            node.name(),
            node.uid
        );
        [40, 25, 10].map(|ago| klog(ago, 'E', &text)).concat()
    });
    let unreached = Unreached::new(&node.uid, place.path(), listener);
    fs::remove_file(&socket).unwrap();
    let removed = cause(&node, "runtime-socket-gone", "firm");
    assert_eq!(removed["held_by"], format!("containerd (pid {})", unreached.runtime.id()));
    let _other = UnixListener::bind(&socket).unwrap();
    let taken = cause(&node, "runtime-socket-gone", "firm").to_string();
    assert!(taken.contains("is another file than the one that it bound its socket to"), "{taken}");
}

/// cri-o#9521 and nvidia-container-toolkit#1360
#[test]
fn a_runtime_without_the_handler_of_the_pod_is_named() {
    requires!(root_and_btf());
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("containerd.sock");
    let node = Node::logging(81, |node| {
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"app\\\" with \
             KillContainerError: \\\"rpc error: code = Unknown desc = stop containers in parallel: failed to stop \
             container 75ca: failed to find runtime handler nvidia from runtime list map[runc:0xc0005a2480]\\\"\" \
             pod=\"shop/{}\" podUID=\"{}\"",
            node.name(),
            node.uid
        );
        [40, 25, 10].map(|ago| klog(ago, 'E', &text)).concat()
    });
    let listener = UnixListener::bind(socket).unwrap();
    let unreached = Unreached::new(&node.uid, place.path(), listener);
    let cause = cause(&node, "runtime-handler-gone", "likely");
    assert_eq!(cause["held_by"], format!("containerd (pid {})", unreached.runtime.id()));
}

/// A process that has asked to permit each access to a file system and answers no request. Accesses that wait go on when
/// it ends.
struct Agent(Ending);

const MARKED: &str = "PODSTUCK_TEST_MARKED";

impl Agent {
    /// In a process of its own: this test, started again.
    fn run() {
        let mark = || {
            let group = Fanotify::init(InitFlags::FAN_CLASS_CONTENT, EventFFlags::O_RDONLY)?;
            let point = PathBuf::from(std::env::var_os(MARKED).unwrap());
            let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
            let mask = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_ONDIR;
            group.mark(flags, mask, io::stdin(), Some(&point)).map(|()| group)
        };
        let _group = mark();
        println!("armed: {}", _group.is_ok());
        std::thread::sleep(std::time::Duration::from_secs(600));
    }

    /// `None` where the kernel has no permission events (CONFIG_FANOTIFY_ACCESS_PERMISSIONS).
    fn new(point: &Path) -> Option<Self> {
        let mut agent = Self(Ending::start(again().env(MARKED, point).stdout(Stdio::piped())));
        let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
        let armed = lines.find_map(|line| Some(line.unwrap().split_once("armed: ")?.1 == "true"));
        armed.unwrap().then_some(agent)
    }
}

/// AgentBaker#9089 and hotsos#594
#[test]
fn a_fanotify_listener_that_answers_no_more_is_named_and_ended_by_the_printed_command() {
    if is_started_again() {
        return Agent::run();
    }
    requires!(root_and_btf());
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("kubelet");
    symlink("/bin/ls", &program).unwrap();
    let root = directory.path().join("var/lib/kubelet");
    fs::create_dir_all(&root).unwrap();
    let mounted = Mounted::memory(root, "");
    let uid = format!("{}55", super::UID);
    let volume = mounted.join("pods").join(&uid).join("volumes/kubernetes.io~empty-dir/cache");
    fs::create_dir_all(&volume).unwrap();
    let Some(agent) = Agent::new(&mounted) else {
        return podstuck_tests::skip("a kernel without permission events of fanotify");
    };
    // It opens the directory, as kubelet does before it empties one.
    let kubelet = Command::new(program).arg(&volume).stdout(Stdio::null()).spawn().unwrap();
    let node = Node { kubelet, directory, uid };
    let (lines, status) = node.ask("40s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!((&cause["id"], status), (&"fanotify-listener-hung".into(), Some(1)), "{answer:#}");
    assert_eq!(cause["certainty"], "firm", "{answer:#}");
    let held_by = cause["held_by"].as_str().unwrap();
    assert!(held_by.contains(&format!("(pid {})", agent.0.id())), "{held_by}");
    obey(cause);
    let mut node = node;
    assert!(node.kubelet.wait().unwrap().success(), "kubelet goes on");
    drop((agent, mounted));
}

/// kubernetes#135825
#[test]
fn a_kubelet_that_waits_for_systemd_about_a_slice_is_named() {
    requires!(root_and_btf());
    let node = Node::logging(58, |node| {
        let (name, uid) = (node.name(), &node.uid);
        let group = format!("[kubepods besteffort pod{uid}]");
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to delete cgroup paths for {group} : unable to destroy cgroup \
             paths for cgroup {group} : Timed out while waiting for systemd to remove kubepods-besteffort-pod{}.slice\" \
             pod=\"shop/{name}\" podUID=\"{uid}\"",
            uid.replace('-', "_")
        );
        [90, 60, 30].map(|ago| klog(ago, 'E', &text)).concat()
    });
    let cause = cause(&node, "slice-removal-times-out", "likely");
    let slice = format!("kubepods-besteffort-pod{}.slice", node.uid.replace('-', "_"));
    assert_eq!(cause["held_by"], format!("systemd's signal that {slice} is removed"));
}

/// cri-o#7032
#[test]
fn a_hook_that_fails_after_a_container_has_ended_is_named() {
    requires!(root_and_btf());
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("crio.sock")).unwrap();
    let id = "b7".repeat(32);
    let group = format!("/sys/fs/cgroup/cpuset/kubepods.slice/crio-{id}.scope");
    let node = Node::logging(56, |node| {
        let (name, uid) = (node.name(), &node.uid);
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"du\\\" with \
             KillContainerError: \\\"rpc error: code = Unknown desc = failed to run post-stop hook for container \
             \\\\\\\"{id}\\\\\\\": set CPU load balancing: open {group}/cpuset.sched_load_balance: no such file or \
             directory\\\"\" pod=\"shop/{name}\" podUID=\"{uid}\""
        );
        [40, 25, 10].map(|ago| klog(ago, 'E', &text)).concat()
    });
    let _sandbox = Unreached::new(&node.uid, place.path(), listener);
    let cause = cause(&node, "oci-hook-fails", "likely");
    assert_eq!(cause["held_by"], "CRI-O's own post-stop hook");
    assert!(cause["remedies"][0]["advice"].as_str().unwrap().contains(&group), "{cause:#}");
}

/// kubernetes#22625
#[test]
fn a_mirror_pod_whose_static_pod_runs_on_is_ended_by_its_manifest() {
    requires!(root_and_btf());
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("containerd.sock")).unwrap();
    let node = Node::logging(57, |_| String::new());
    let _runs = Unreached::new(&node.uid, place.path(), listener);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let record = serde_json::json!({"kind": "Pod", "metadata": {"name": node.name(), "namespace": "shop",
        "uid": "00000000-0000-4000-8000-00000000dea2", "deletionTimestamp": "2020-01-01T00:00:00Z",
        "annotations": {"kubernetes.io/config.mirror": node.uid, "kubernetes.io/config.hash": node.uid}},
        "spec": {"nodeName": host.trim()}});
    let (lines, status) = node.ask_with_record(&record);
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!((&cause["id"], status), (&"mirror-pod-deleted".into(), Some(1)), "{answer:#}");
    let chain = answer["stages"][0]["chain"].to_string();
    assert!(chain.contains("manifest to be removed") && !chain.contains("SIGKILL"), "{chain}");
}
