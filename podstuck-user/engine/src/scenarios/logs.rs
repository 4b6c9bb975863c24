//! Incidents that only logs show, with the original text of runtimes and kubelet.

use jiff::Timestamp;

use super::{
    play::{Node, Play, UID, group, node_mounts, sample, target, volume_state},
    removals::{EMPTY_DIR, Plays},
    states::{driver_process, of_pod, served},
};
use crate::{
    model::{
        block_volume::{BlockVolume, DeviceUser},
        holder::{How, Through},
        identity::Component,
        kernel_lock::LockHolder,
        node::{NodeSample, PodState},
        object::{Attributes, Protected},
        path::JsonPath,
        pod_group::{PodGroup, Task, Term},
        runtime::{Runtime, Shim},
        said::{Complaint, Report, Said},
        waiting::{On, Part, Waiting},
    },
    testing::{
        FILE, block_volume, holder, lock_holder, mounted as mounted_at, runtime, shim, task,
    },
};

fn waiting(pid: u32, started: u64, command: &str, part: Part, on: Vec<On>) -> Waiting {
    let (command, state, channel) = (command.to_owned(), 'S', None);
    Waiting { pid, started, command, state, channel, part, on, lock: Vec::new() }
}

/// kubelet has started a FlexVolume driver, whose child does not end.
pub(super) fn volume_command() -> Plays {
    let play = |by, program| child_of(by, program, 50_000, Vec::new());
    let holder = lock_holder("vendor-agent", 55, &["pipe_read", "vfs_read"]);
    vec![
        ("umount whose helper sleeps for a lock of the kernel", {
            child_of(DRIVER, "umount.nfs", 50_000, vec![holder])
        }),
        ("a FlexVolume driver that does not return", play(KUBELET, "rook")),
        ("umount of a CSI driver that does not return", play(DRIVER, "umount.nfs")),
        ("another program of a CSI driver", play(DRIVER, "s3fs")),
    ]
}

const KUBELET: (u32, &str) = (1, "kubelet");
const DRIVER: (u32, &str) = (7, "csi-driver");

/// A child of kubelet or of the driver that has the pod's UID on its command line, by its start; the pod was deleted at
/// second 400.
fn child_of((pid, by): (u32, &str), program: &str, started: u64, lock: Vec<LockHolder>) -> Play {
    let child = |pid| On::Child { pid, is_waited_for: true };
    let waits = vec![
        waiting(pid, 100, by, Part::Daemon, vec![child(8)]),
        waiting(8, started, program, Part::Task, vec![child(9)]),
        Waiting {
            state: if lock.is_empty() { 'S' } else { 'D' },
            lock,
            ..waiting(9, started, "nc", Part::Task, Vec::new())
        },
    ];
    let mut play = Play::new(Node { waits, ..Node::default() });
    let (source, at) = ("log of kubelet (pid 1)", Timestamp::from_second(400).unwrap());
    let said = Said::new(Component::Kubelet, source, UID, at, "SyncLoop DELETE");
    play.said(600.0, Said { report: Some(Report::ToGo), ..said });
    for second in [602.0, 605.0, 608.0] {
        let pods = vec![of_pod(false, vec![served(Some(driver_process(DRIVER.0)))])];
        play.sample(NodeSample { pods, ..sample(second) });
    }
    play.sample(sample(610.0));
    play
}

/// As the server of a FUSE file system, which is to stay.
#[test]
fn what_was_started_before_the_deletion_is_no_command_that_releases_a_volume() {
    let lines = |started| child_of(DRIVER, "umount", started, Vec::new()).lines;
    assert_eq!(lines(39_000), [""; 0]);
    assert_ne!(lines(41_000), [""; 0]);
}

/// The shim has started `runc delete`, which waits for a lock held by another process.
fn hung_command() -> Play {
    let text = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = DeadlineExceeded \
        desc = context deadline exceeded\"";
    let child = On::Child { pid: 8, is_waited_for: false };
    let lock = On::Lock { file: Some("/run/xtables.lock".into()), holder: Some(9) };
    let waits = vec![
        waiting(6, 100, "containerd-shim-runc-v2", Part::Shim, vec![child]),
        waiting(8, 50_000, "runc delete", Part::Task, vec![lock]),
        waiting(9, 200, "iptables", Part::Other, Vec::new()),
    ];
    let mut play = Play::new(Node { waits, ..Node::default() });
    let at = Timestamp::from_second(570).unwrap();
    let source = "log of kubelet (pid 9)";
    let said = Said::new(Component::Kubelet, source, UID, at, text);
    play.said(600.0, Said { complaint: Some(Complaint::NoAnswer), ..said });
    for second in [602.0, 605.0, 608.0] {
        let cgroups = vec![with_shim('S', vec![app('S', false)])];
        play.sample(NodeSample { pods: vec![of_pod(true, Vec::new())], cgroups, ..sample(second) });
    }
    play.sample(sample(610.0));
    play
}

/// A runtime's complaint, logged twice, and the state of the node.
pub(super) fn runtime_says() -> Plays {
    let said = |component: Component, uid: &str, complaint, second, text: &str| {
        let source = format!("log of {} (pid 9)", component.name());
        let at = Timestamp::from_second(second).unwrap();
        Said { complaint: Some(complaint), ..Said::new(component, &source, uid, at, text) }
    };
    let network = "StopPodSandbox for \"aa\" failed: failed to destroy network for sandbox \"aa\": plugin \
        type=\"calico\" failed (delete): dial tcp 10.96.0.1:443: i/o timeout";
    let denied = "failed to kill container \"aa\": unknown error after kill: runc did not terminate \
        successfully: exit status 1: unable to signal init: permission denied";
    let lost = "failed to kill container \"aa\": ttrpc: closed: unknown";
    let unanswered = "get state for aa: context deadline exceeded: unknown";
    let silent = "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = \
        DeadlineExceeded desc = context deadline exceeded\"";
    let unhealthy = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
    let id = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    let of_cri_o = format!(
        "failed to \"KillContainer\" for \"du\" with KillContainerError: \"rpc error: code = Unknown desc = failed to run \
         post-stop hook for container \\\"{id}\\\": set CPU load balancing: open \
         /sys/fs/cgroup/cpuset/crio-{id}.scope/cpuset.sched_load_balance: no such file or directory\""
    );
    let of_runc = format!(
        "failed to delete container \"{id}\": error running poststop hook #0: fork/exec /opt/hook.sh: no such file or \
         directory, stdout: , stderr: "
    );
    let handler = "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = Unknown desc = failed to \
        find runtime handler nvidia from runtime list map[crun:0xc0 runc:0xc1]\"";
    let no_container = format!(
        "failed to \"KillPodSandbox\" for \"{UID}\" with KillPodSandboxError: \"rpc error: code = 2 desc = NetworkPlugin cni \
         failed to teardown pod \\\"web_shop\\\" network: CNI failed to retrieve network namespace path: Error: No such \
         container: {id}\""
    );
    let same_interface = format!(
        "failed to \"KillPodSandbox\" for \"{UID}\" with KillPodSandboxError: \"rpc error: code = Unknown desc = failed to \
         destroy network for pod sandbox k8s_web_shop_{UID}_0({id}): network \\\"multus-cni-network\\\" requested \
         interface name \\\"eth0\\\" already assigned\""
    );
    let (containerd, kubelet) = (Component::Containerd, Component::Kubelet);
    let mut plays = Vec::new();
    for (title, component, complaint, text, of_node, populated) in [
        ("a plugin that fails", containerd, Complaint::NetworkTeardown, network, None, false),
        ("a signal that is refused", containerd, Complaint::SignalDenied, denied, None, true),
        ("a shim that is gone", containerd, Complaint::StateLost, lost, None, false),
        (STOPPED, containerd, Complaint::StateLost, unanswered, None, true),
        ("a hook of CRI-O's", kubelet, Complaint::HookFailed, of_cri_o.as_str(), None, true),
        ("a hook that cannot be run", containerd, Complaint::HookFailed, &of_runc, None, true),
        ("a handler that is gone", kubelet, Complaint::HandlerGone, handler, None, true),
        ("a sandbox that is gone", kubelet, Complaint::NetworkTeardown, &no_container, None, false),
        (
            "an interface that is taken",
            kubelet,
            Complaint::NetworkTeardown,
            &same_interface,
            None,
            false,
        ),
        ("a runtime that hangs", kubelet, Complaint::NoAnswer, silent, Some(unhealthy), false),
    ] {
        let mut play = Play::new(Node::default());
        for second in [450, 570] {
            play.said(600.0, said(component, UID, complaint, second, text));
        }
        if let Some(text) = of_node {
            play.said(600.0, said(kubelet, "", complaint, 590, text));
        }
        let pods = vec![of_pod(populated, Vec::new())];
        let tasks = if title == STOPPED { vec![app('S', false)] } else { Vec::new() };
        let state = if title == STOPPED { 'T' } else { 'S' };
        let is_signal = complaint == Complaint::SignalDenied;
        let cgroups = if is_signal { Vec::new() } else { vec![with_shim(state, tasks)] };
        play.sample(NodeSample { pods, cgroups, ..sample(602.0) });
        play.sample(sample(604.0));
        plays.push((title, play));
    }
    let stays = format!(
        "StopContainer for \"{id}\" failed: rpc error: code = DeadlineExceeded desc = an error occurs during waiting \
         for container \"{id}\" to be killed: context deadline exceeded"
    );
    let mut play = Play::new(Node::default());
    for second in [450, 570] {
        play.said(600.0, said(containerd, UID, Complaint::ContainerStays, second, &stays));
    }
    for second in [602.0, 608.0] {
        let group = format!("/kubepods/pod/{id}").into();
        let task = Task { group, term: Some(Term::Ignored), ..app('S', false) };
        let (pods, cgroups) = (vec![of_pod(true, Vec::new())], vec![with_shim('S', vec![task])]);
        play.sample(NodeSample { pods, cgroups, ..sample(second) });
    }
    play.sample(sample(610.0));
    plays.push(("a process that gets no SIGKILL", play));
    plays.push(("a command that does not return", hung_command()));
    let mut play = Play::new(Node::default());
    for second in [450, 570] {
        play.said(600.0, said(kubelet, UID, Complaint::NoAnswer, second, silent));
    }
    let mut group = with_shim('S', vec![app('S', false)]);
    "containerd-shim-kata-v2".clone_into(&mut group.shims[0].comm);
    let pods = vec![of_pod(true, Vec::new())];
    play.sample(NodeSample { pods, cgroups: vec![group], ..sample(602.0) });
    play.sample(sample(604.0));
    plays.push(("a sandbox that does not stop", play));
    let refused = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unavailable desc = \
        connection error: desc = \\\"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: \
        no such file or directory\\\"\"";
    let mut play = Play::new(Node::default());
    for second in [450, 570] {
        play.said(600.0, said(kubelet, UID, Complaint::SocketRefused, second, refused));
    }
    let sockets = vec!["/run/containerd/containerd.sock".into()];
    let runtimes = vec![Runtime { sockets, group: Some(RUNTIME.into()), ..runtime(containerd) }];
    let pods = vec![of_pod(true, Vec::new())];
    let refused = NodeSample { pods, runtimes, ..sample(602.0) };
    play.sample(refused.clone());
    play.sample(NodeSample { at: sample(604.0).at, ..refused });
    play.sample(sample(606.0));
    plays.push(("a socket without a file", play));
    plays
}

const RUNTIME: &str = "/system.slice/containerd.service";
const STOPPED: &str = "a shim that is stopped";

fn with_shim(state: char, tasks: Vec<Task>) -> PodGroup {
    let group_of_shim = Some(RUNTIME.into());
    let shim = Shim { comm: "containerd-shim".into(), state, group: group_of_shim, ..shim() };
    PodGroup { shims: vec![shim], ..group(tasks, true, false) }
}

fn app(state: char, killed: bool) -> Task {
    let group = format!("/sys/fs/cgroup/kubepods/pod{UID}/c").into();
    Task { state, killed, started: 7, group, ..task("app", 42) }
}

/// A frozen pod with an immutable file, and an API server that does not answer: the file is reported as a second
/// cause if kubelet's log has the deletion.
pub(super) fn told_to_go() -> Plays {
    let path = target(EMPTY_DIR).1.root.clone();
    let attributes = Attributes { immutable: true, append_only: false, known: true };
    let objects = vec![(JsonPath(path.join("d/f")), attributes)];
    let protected = Protected { objects, files: vec![FILE], looked: 9, complete: true };
    let frozen = group(vec![app('D', true)], true, true);
    let mut plays = Vec::new();
    for (title, is_logged) in [("kubelet has heard", true), ("no log says so", false)] {
        let mut play = Play::new(Node { protected: protected.clone(), ..Node::default() });
        if is_logged {
            let (source, at) = ("log of kubelet (pid 9)", Timestamp::from_second(1).unwrap());
            let said = Said::new(Component::Kubelet, source, UID, at, "SyncLoop DELETE");
            play.said(2.0, Said { report: Some(Report::ToGo), ..said });
        }
        for second in [2.0, 4.0, 8.0, 16.0] {
            let volumes = vec![volume_state(EMPTY_DIR, None, Vec::new())];
            let pods = vec![PodState { seen_by: Some((7, 1)), ..of_pod(true, volumes) }];
            play.sample(NodeSample { pods, cgroups: vec![frozen.clone()], ..sample(second) });
        }
        plays.push((title, play));
    }
    plays
}

/// kubelet's log messages about devices, and the state of these devices on the node.
pub(super) fn devices() -> Plays {
    let line = |source: (&str, &str), complaint, text: &str| {
        let (uid, volume) = source;
        let at = Timestamp::from_second(1).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", uid, at, text);
        Said { volume: volume.into(), complaint, ..said }
    };
    let block = "kubernetes.io/csi/block.example^h-1";
    let busy = "blkUtil.UnmapDevice failed. globalUnmapPath:/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev: \
                umount: target is busy.";
    let user = DeviceUser {
        name: "dm-3".into(),
        what: "encrypted volume osd".into(),
        of: "sdb".into(),
        source: "/sys/class/block/sdb/holders/dm-3".into(),
    };
    let volume = BlockVolume { users: vec![user], ..block_volume(UID, "pv") };
    let pod = PodState { devices: vec![volume], ..of_pod(false, Vec::new()) };
    let mut raw = Play::new(Node {
        holders: vec![holder(How::Fd, Through::Itself, Some(true))],
        ..Node::default()
    });
    raw.said(2.0, line((UID, block), Some(Complaint::MapBusy), busy));
    for second in [2.0, 4.0, 6.0] {
        raw.sample(NodeSample { pods: vec![pod.clone()], ..sample(second) });
    }
    raw.sample(sample(8.0));

    let flex = "ceph.rook.io~rook/fs-store";
    let fails =
        "unmount command failed, status: Failure, reason: persistentvolumes \"fs-store\" not found";
    let mount = mounted_at(&target(flex).1.root, 12);
    let volumes = vec![volume_state(flex, None, vec![mount])];
    let of_flex = PodState { seen_by: Some((1, 1)), ..of_pod(false, volumes) };
    let mut plugin = Play::new(Node::default());
    for second in [2.0, 4.0] {
        plugin.said(second, line((UID, "flexvolume-ceph.rook.io/rook/fs-store"), None, fails));
        plugin.sample(NodeSample { pods: vec![of_flex.clone()], ..sample(second) });
    }
    plugin.sample(sample(6.0));

    let staged = "/k/plugins/kubernetes.io/csi/d.example/0a/globalmount";
    let refused = format!(
        "The device mount path \"{staged}\" is still mounted by other references [/mnt/copy]"
    );
    let of =
        |complaint, text: &str| line(("", "kubernetes.io/csi/d.example^h"), Some(complaint), text);
    let mut mounted = Play::new(Node::default());
    mounted.said(2.0, of(Complaint::DeviceMounted, &refused));
    let own = format!("9 2 8:16 / {staged} rw - ext4 /dev/sdb rw\n");
    let both = format!("{own}10 2 8:16 / /mnt/copy rw - ext4 /dev/sdb rw\n");
    for (second, table) in [(2.0, &both), (4.0, &own)] {
        mounted.sample(NodeSample { mounts: node_mounts(&[(1, table)]), ..sample(second) });
    }
    let mut open = Play::new(Node::default());
    open.said(
        2.0,
        of(
            Complaint::DeviceInUse,
            "the device is in use when it was no longer expected to be in use",
        ),
    );
    open.sample(sample(2.0));
    let mut mapped = Play::new(Node::default());
    let maps = "/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev";
    let text = format!("The device \"{maps}\" is still referenced from other Pods [{maps}/{UID}]");
    mapped.said(2.0, of(Complaint::DeviceMapped, &text));
    mapped.sample(NodeSample {
        pods: vec![PodState { populated: Some(true), ..pod }],
        ..sample(2.0)
    });
    vec![
        ("a raw block volume that a process has open", raw),
        ("a staged volume that is mounted elsewhere, too", mounted),
        ("a device that a process has open", open),
        ("a FlexVolume whose driver fails", plugin),
        ("a raw device that is mapped for another pod", mapped),
    ]
}
