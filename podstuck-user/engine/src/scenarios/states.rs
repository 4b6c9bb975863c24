//! Incidents that show in the state of the node.

use jiff::{SignedDuration, Timestamp};
use podstuck_common::record::reason;

use super::{
    play::{Node, Play, UID, at, group, node_mounts, on, pod, sample, stuck, target, volume_state},
    removals::{CSI, EMPTY_DIR, Plays},
};
use crate::{
    model::{
        call::{Call, Outcome},
        csi::{CsiState, DriverProcess, DriverState, Reach, Registration, VolumeData},
        disk::{Disk, ServedBy},
        errno::Errno,
        halted::{Halted, HaltedKubelet},
        holder::{How, Through},
        hung::{MountPoint, NfsServer, Phase, WaitProgress},
        identity::{Component, Pod},
        mountinfo,
        mounts::{Device, Mounts, NodeMounts},
        node::{NodeSample, PodState, VolumeState},
        pod_group::{Member, PodGroup, Reaper, Task},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
        said::{Complaint, Heard, Report, Said},
        space::{Capacity, Space},
    },
    query::{Fanotify, Listening},
    testing::{
        self, container_record, holder, lock_holder, mounted, pod_group, pod_state, reaper,
        runtime, task,
    },
};

pub(super) fn of_pod(populated: bool, volumes: Vec<VolumeState>) -> PodState {
    PodState { populated: Some(populated), volumes, ..pod_state(UID) }
}

fn csi(registration: Registration, data: VolumeData) -> VolumeState {
    let socket = "/k/plugins_registry/d.example-reg.sock".into();
    let point = target(CSI).1.root.join("mount");
    let csi = CsiState { data, socket, registration, driver: None, registry_changed: None };
    volume_state(CSI, Some(csi), vec![mounted(&point, 7)])
}

fn known() -> VolumeData {
    let (driver, handle) = ("d.example".into(), "h".into());
    VolumeData::Known { driver, handle, lifecycle: "Persistent".into() }
}

/// The same scan repeatedly, then a last one that differs.
fn lasting(play: &mut Play, until: u32, now: impl Fn(f64) -> NodeSample, end: NodeSample) {
    (10..until).step_by(2).for_each(|second| play.sample(now(f64::from(second))));
    play.sample(end);
}

pub(super) fn not_attempted() -> Plays {
    let token = || volume_state("kubernetes.io~projected/kube-api-access-x", None, Vec::new());
    let plain = || {
        let point = target(EMPTY_DIR).1.root;
        volume_state(EMPTY_DIR, None, vec![mounted(&point, 8)])
    };
    let mut plays = Vec::new();
    for (title, volumes) in [
        ("no process calls the driver", vec![csi(Registration::Listening, known())]),
        ("a driver without its socket", vec![csi(Registration::Absent, known())]),
        ("a driver that is deaf", vec![csi(Registration::Deaf, known())]),
        (
            "kubelet does not take the pod down",
            vec![csi(Registration::Listening, known()), token()],
        ),
        ("no vol_data.json", vec![csi(Registration::Unknown, VolumeData::Missing)]),
        (
            "an empty vol_data.json",
            vec![csi(Registration::Unknown, VolumeData::Corrupt { size: 0 })],
        ),
        ("a mount of no driver", vec![plain()]),
    ] {
        let mut play = Play::new(Node::default());
        let now = |second| {
            let pods = vec![of_pod(false, volumes.clone())];
            NodeSample { pods, ..sample(second) }
        };
        let pods = vec![of_pod(false, Vec::new())];
        lasting(&mut play, 540, now, NodeSample { pods, ..sample(540.0) });
        plays.push((title, play));
    }
    for (title, namespace) in [("unmounted once", 1), ("unmounted elsewhere", 2)] {
        let mut play = Play::new(Node::default());
        let mut op = on(CSI, Call::Umount2, 0, "mount", 30.0);
        (op.outcome, op.mnt_ns) = (Outcome::OK, namespace);
        play.op(op);
        let volumes = || vec![csi(Registration::Listening, known())];
        let now = |second| NodeSample { pods: vec![of_pod(false, volumes())], ..sample(second) };
        lasting(&mut play, 120, now, sample(120.0));
        plays.push((title, play));
    }
    // A failing attempt is not a missing attempt; the time counts from the last attempt.
    let mut play = Play::new(Node::default());
    for second in [5.0, 5.5, 6.5] {
        play.op(on(CSI, Call::UnlinkatDir, Errno::EBUSY as i32, "mount", second));
    }
    let now = |second| {
        let volumes = vec![csi(Registration::Listening, known())];
        NodeSample { pods: vec![of_pod(false, volumes)], ..sample(second) }
    };
    lasting(&mut play, 300, now, now(300.0));
    let mut gone = on(CSI, Call::UnlinkatDir, 0, "mount", 301.0);
    (gone.outcome, gone.reason) = (Outcome::OK, reason::RECOVERED);
    play.op(gone);
    (302..560).step_by(2).for_each(|second| play.sample(now(f64::from(second))));
    plays.push(("attempts that stop", play));
    plays
}

pub(super) fn driver_process(pid: u32) -> DriverProcess {
    let (comm, started, reach) = ("driver".into(), at(2.0), Reach::Whole);
    DriverProcess { pid, comm, started, ticks: Some(9), reach, halted: None }
}

/// A CSI volume and its driver.
pub(super) fn served(process: Option<DriverProcess>) -> VolumeState {
    let mut volume = csi(Registration::Listening, known());
    let (socket, source) = ("/k/plugins/d/csi.sock".into(), "/proc/70/cmdline".into());
    volume.csi.as_mut().unwrap().driver =
        Some(DriverState { socket, source, process, registrar: None });
    volume
}

/// The first scan ten minutes after the pod's end, by the traces that are left.
pub(super) fn arrived_late() -> Plays {
    let then = |second: i64| Timestamp::from_second(second).unwrap();
    let driver = |halted, reach| Some(DriverProcess { reach, halted, ..driver_process(77) });
    let with = served;
    let said = |second, report, complaint, text: &str| {
        let source = "log of kubelet (pid 1)";
        let said = Said::new(Component::Kubelet, source, UID, then(second), text);
        Said { volume: "kubernetes.io/csi/d.example^h".into(), complaint, report, ..said }
    };
    let ended = || said(99, Some(Report::ContainerEnded), None, "");
    let well = || said(100, Some(Report::TornDown), None, "UnmountVolume.TearDown succeeded");
    let failed = |complaint, text: &str| {
        let failed = |second| said(second, None, Some(complaint), text);
        vec![failed(456), failed(578)]
    };
    let alive = || driver(None, Reach::Whole);
    let halted = || driver(Some(Halted::Stopped), Reach::Whole);
    let cut = || driver(None, Reach::Cut { mounted: false });
    let mut absent = csi(Registration::Absent, known());
    absent.csi.as_mut().unwrap().registry_changed = Some(then(120));
    let mut bare = with(alive());
    bare.mounts.clear();
    let (down, hangs) = (Complaint::DriverDown, Complaint::DriverHangs);
    let mut plays = Vec::new();
    for (title, volume, kubelet, lines) in [
        ("the driver has said that all is well", with(alive()), 1.0, vec![ended(), well()]),
        ("by the times of directories alone", with(alive()), 1.0, vec![]),
        ("the driver's mounts keep it to itself", with(cut()), 1.0, vec![well()]),
        ("a driver that is down", with(None), 1.0, failed(down, "code = Unavailable")),
        ("a driver that is stopped", with(halted()), 1.0, failed(hangs, "code = DeadlineExceeded")),
        (
            "a driver that answers with an error",
            with(alive()),
            1.0,
            failed(Complaint::DriverError, "code = Internal"),
        ),
        ("a driver that is gone", absent, 1.0, vec![]),
        ("kubelet was restarted", with(alive()), 200.0, vec![ended()]),
        (
            "nothing to unmount after a boot",
            bare,
            200.0,
            failed(Complaint::DriverError, "code = NotFound"),
        ),
    ] {
        let mut play = Play::new(Node::default());
        for said in lines {
            play.said(600.0, said);
        }
        if kubelet > 1.0 {
            let (source, since, until) = ("log of kubelet (pid 1)".into(), then(201), then(600));
            play.heard(600.0, Heard { source, since, until, names_steps: true });
        }
        let has_booted = volume.mounts.is_empty();
        let of = |volumes| PodState {
            seen_by: None,
            changed: Some(then(100)),
            volume_removed: Some(then(100)),
            started: !has_booted,
            before_boot: has_booted,
            ..of_pod(false, volumes)
        };
        let kubelet_since = Some(at(kubelet));
        let now = |second, volumes| NodeSample {
            kubelet_since,
            pods: vec![of(volumes)],
            ..sample(second)
        };
        play.sample(now(600.0, vec![volume]));
        play.sample(now(602.0, vec![]));
        plays.push((title, play));
    }
    plays
}

pub(super) fn unkillable() -> Plays {
    let task = |state, killed, function: &str| Task {
        state,
        killed,
        started: 7,
        wait_channel: Some(function.into()),
        stack: vec![function.into()],
        lock: Vec::new(),
        directory: Some("/data".into()),
        group: format!("/sys/fs/cgroup/kubepods/pod{UID}/c").into(),
        ..testing::task("app", 42)
    };
    let nfs = vec![task('D', true, "rpc_wait_bit_killable")];
    let gpu = vec![task('D', true, "os_acquire_mutex")];
    let reaper = reaper("agent", 90);
    let tracer = Some(Reaper { traces: true, ..reaper.clone() });
    let traced = Task { exiting: true, traced_by: tracer, ..task('t', false, "ptrace_stop") };
    let zombie = Member { pid: 50, comm: "probe".into(), state: 'Z', reaper: Some(reaper) };
    let of_namespace =
        Task { exiting: true, members: vec![zombie], ..task('S', false, "zap_pid_ns_processes") };
    let mut plays = Vec::new();
    for (title, left, volumes) in [
        (
            "waits for NFS",
            group(nfs.clone(), true, false),
            vec![volume_state(EMPTY_DIR, None, vec![])],
        ),
        ("waits for a GPU", group(gpu, true, false), vec![volume_state(EMPTY_DIR, None, vec![])]),
        ("is frozen", group(nfs, true, true), vec![volume_state(EMPTY_DIR, None, vec![])]),
        ("is left over", group(vec![task('S', false, "do_wait")], false, false), vec![]),
        (
            "is stopped by a tracer",
            group(vec![traced], true, false),
            vec![volume_state(EMPTY_DIR, None, vec![])],
        ),
        (
            "waits for a zombie",
            group(vec![of_namespace], true, false),
            vec![volume_state(EMPTY_DIR, None, vec![])],
        ),
    ] {
        let mut play = Play::new(Node::default());
        let now = |second| {
            let pods = vec![of_pod(true, volumes.clone())];
            NodeSample { pods, cgroups: vec![left.clone()], ..sample(second) }
        };
        lasting(&mut play, 50, now, sample(50.0));
        plays.push((title, play));
    }
    plays
}

pub(super) fn pinned_device() -> Plays {
    let line = format!("9 2 8:16 / {} rw - ext4 /dev/sdb rw\n", target(EMPTY_DIR).1.root.display());
    let held = vec![holder(How::Mount, Through::Itself, None)];
    let mut play = Play::new(Node { holders: held, ..Node::default() });
    let both = node_mounts(&[(1, &line), (5, &line)]);
    play.sample(NodeSample { mounts: both, ..sample(0.5) });
    let mut op = on(EMPTY_DIR, Call::Umount2, 0, "", 1.0);
    op.outcome = Outcome::OK;
    play.op(op);
    for second in [2.0, 4.0, 6.0] {
        play.sample(NodeSample { mounts: node_mounts(&[(5, &line)]), ..sample(second) });
    }
    play.node.holders.clear();
    play.sample(sample(8.0));
    vec![("another namespace keeps the device", play)]
}

pub(super) fn hung_call() -> Plays {
    let mut plays = Vec::new();
    let mount = |fs_type: &str| MountPoint {
        id: Some(9),
        point: target(EMPTY_DIR).1.root,
        fs_type: fs_type.into(),
        source: "there".into(),
        minor: 45,
        unanswered: Some(3),
        server: None,
        fuse: None,
    };
    let server = |address: &str, port| MountPoint {
        server: Some(NfsServer { address: address.into(), port, received: Some(9) }),
        ..mount("nfs4")
    };
    for (title, stack, on) in [
        ("a FUSE server", vec!["request_wait_answer", "fuse_rmdir"], Some(mount("fuse.s3"))),
        ("a frozen file system", vec!["percpu_rwsem_wait", "mnt_want_write"], Some(mount("ext4"))),
        (
            "an NFS server",
            vec!["rpc_wait_bit_killable", "nfs4_proc_getattr"],
            Some(server("10.0.0.5", None)),
        ),
        (
            "a tunnel of an NFS mount",
            vec!["rpc_wait_bit_killable", "nfs4_proc_getattr"],
            Some(server("127.0.0.1", Some(20249))),
        ),
        ("an SMB server", vec!["wait_for_response [cifs]", "cifs_statfs"], Some(mount("cifs"))),
        ("CephFS", vec!["ceph_mdsc_wait_request [ceph]"], Some(mount("ceph"))),
        ("an NFS server elsewhere", vec!["rpc_wait_bit_killable", "nfs4_proc_getattr"], None),
        ("a lock", vec!["rwsem_down_write_slowpath", "do_unlinkat"], None),
        ("a lock with a holder", vec!["rwsem_down_write_slowpath", "vfs_unlink"], None),
        (
            "a fanotify listener",
            vec!["fanotify_handle_event", "fsnotify", "do_dentry_open"],
            Some(mount("ext4")),
        ),
    ] {
        let listening = Listening { namespaces: 3, ..Listening::default() };
        let agent = holder(How::Fanotify, Through::Itself, None);
        let fanotify = Fanotify { listeners: vec![agent], unread: 0 };
        let mut play = Play::new(Node { listening, fanotify, ..Node::default() });
        if on.is_some() {
            play.sample(NodeSample { mounts: shared(), ..sample(3.0) });
        }
        for second in [4.0, 12.0, 40.0, 130.0] {
            let mut seen = stuck(42, EMPTY_DIR, &stack, second);
            seen.mount = on.clone();
            if title == "a lock with a holder" {
                let stack = ["handle_userfault", "ext4_buffered_write_iter"];
                seen.lock = vec![lock_holder("restore", 77, &stack)];
            }
            play.stuck(seen);
        }
        let mut seen = stuck(42, EMPTY_DIR, &stack, 131.0);
        seen.over = true;
        play.stuck(seen);
        plays.push((title, play));
    }
    let device = Device { major: 8, minor: 0 };
    let root = target(EMPTY_DIR).1.root;
    let line = format!("9 1 8:0 / {} rw - ext4 /dev/sda rw\n", root.display());
    let mounts = node_with(line.as_bytes());
    let served_by = Some(ServedBy::Scsi { state: "blocked".into() });
    let (name, below) = ("sda".into(), Vec::new());
    let disks = vec![Disk { name, device, in_flight: 2, done: 9, below, served_by }];
    let mut play = Play::new(Node::default());
    for second in [3.0, 13.0, 40.0] {
        play.sample(NodeSample { mounts: mounts.clone(), disks: disks.clone(), ..sample(second) });
        play.stuck(stuck(42, EMPTY_DIR, &["io_schedule", "__ext4_find_entry"], second + 1.0));
    }
    let mut seen = stuck(42, EMPTY_DIR, &["io_schedule", "__ext4_find_entry"], 51.0);
    seen.over = true;
    play.stuck(seen);
    plays.push(("a disk", play));
    let stack = ["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"];
    let mut play = Play::new(Node::default());
    for (second, quiet_ms) in [(5.0, 1000), (61.0, 50_000), (125.0, 110_000)] {
        let mut seen = stuck(42, EMPTY_DIR, &stack, second);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.progress =
            Some(WaitProgress { woken: 1, milliseconds: 2000, quiet_ms, seen_woken: true });
        play.stuck(seen);
    }
    let mut back = on(EMPTY_DIR, Call::Umount2, Errno::EIO as i32, "", 170.0);
    back.reason = reason::SLOW;
    play.op(back);
    plays.push(("a shutdown that is slow and then hangs", play));
    plays
}

/// An NFS file system that is mounted for another pod and at a path of the host.
pub(super) fn shared() -> NodeMounts {
    let line = b"9 1 0:45 / /k/pods/other/volumes/kubernetes.io~csi/x/mount rw - nfs4 there rw\n\
        8 1 0:45 / /srv/backup rw - nfs4 there rw\n";
    node_with(line)
}

/// A node whose only mount table has these lines.
fn node_with(lines: &[u8]) -> NodeMounts {
    let table = Mounts { all: mountinfo::parse(lines), source: String::new(), pid: 1 };
    NodeMounts { tables: [(1, table.into())].into(), host: Some(1) }
}

pub(super) fn disk_full() -> Plays {
    let capacity = Capacity {
        device: 1,
        bytes: 1 << 30,
        free: 0,
        available: 0,
        inodes: 1 << 16,
        inodes_available: 1 << 15,
        read_only: false,
    };
    let reserved = Capacity { free: 50 << 20, ..capacity.clone() };
    let inodes =
        Capacity { available: 1 << 29, free: 1 << 29, inodes_available: 3, ..capacity.clone() };
    let mut plays = Vec::new();
    for (title, capacity, is_kubelets) in [
        ("kubelet's", capacity, true),
        ("with a reserve", reserved, false),
        ("inodes", inodes, true),
    ] {
        let mut play = Play::new(Node::default());
        for second in [10.0, 20.0, 30.0] {
            let (path, capacity) = ("/var/lib/kubelet".into(), capacity.clone());
            let space = Space { path, is_kubelets, seen_by: None, capacity, at: at(second) };
            play.sample(NodeSample { spaces: vec![space], ..sample(second) });
        }
        play.sample(sample(40.0));
        plays.push((title, play));
    }
    plays
}

pub(super) fn pod_record() -> Plays {
    let record = PodRecord {
        pod: pod(),
        finalizers: vec!["batch.kubernetes.io/job-tracking".into()],
        ..testing::pod_record(UID)
    };
    let later = Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_secs(90)).unwrap();
    let mut mirror = PodRecord { is_mirror: true, ..record.clone() };
    mirror.pod.namespace = Some("kube-system".into());
    mirror.pod.name = Some("kube-proxy-here".into());
    let elsewhere = PodRecord { node: Some("there".into()), ..record.clone() };
    let mut plays = Vec::new();
    for (title, record, is_here) in [
        ("a finalizer, and nothing left", record.clone(), false),
        ("a finalizer, and something left", record.clone(), true),
        ("not deleted", PodRecord { deletion: None, ..record.clone() }, true),
        ("in its grace", PodRecord { deletion: Some(later), grace_s: 90, ..record.clone() }, true),
        (
            "in its grace by another clock",
            PodRecord { deletion: Some(later), ..record.clone() },
            true,
        ),
        ("a mirror pod", mirror, true),
        ("elsewhere", elsewhere.clone(), false),
        ("elsewhere, by the host's own name", elsewhere, false),
    ] {
        let mut play = Play::new(Node::default());
        if title == "elsewhere" {
            play.node(1.0, "here");
        }
        let volumes = vec![volume_state(EMPTY_DIR, None, Vec::new())];
        let runs = record.is_mirror;
        let pods = if is_here { vec![of_pod(runs, volumes)] } else { Vec::new() };
        let web = runs.then(|| group(vec![testing::task("web", 42)], true, false));
        let cgroups = web.into_iter().collect();
        play.sample(NodeSample { pods, cgroups, ..sample(2.0) });
        play.record(3.0, record);
        plays.push((title, play));
    }
    for (title, why) in [
        (
            "a webhook that does not answer",
            "failed calling webhook \"mutate.kyverno.svc-fail\": failed to call webhook: Post \
             \"https://kyverno-svc.kyverno.svc:443/mutate/fail?timeout=10s\": dial tcp 10.30.144.165:443: connect: no \
             route to host",
        ),
        ("credentials that have expired", "Unauthorized"),
        (
            "a right that is missing",
            "pods \"web\" is forbidden: node \"n1\" can only update pod status",
        ),
    ] {
        let at = Timestamp::from_second(590).unwrap();
        let text = format!("Failed to delete status for pod: {why}");
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 1)", UID, at, &text);
        let mut play = Play::new(Node::default());
        play.said(600.0, Said { times: 4, ..said });
        play.sample(sample(602.0));
        play.sample(sample(700.0));
        plays.push((title, play));
    }
    plays
}

pub(super) fn kubelet_state() -> Plays {
    let record = PodRecord { pod: pod(), all_terminated: false, ..testing::pod_record(UID) };
    let stopped = HaltedKubelet { pid: 1, started: Some(9), halted: Halted::Stopped };
    let mut plays = Vec::new();
    for (title, kubelets, halted_kubelets) in
        [("a kubelet that is stopped", vec![1], vec![stopped]), ("no kubelet", vec![], vec![])]
    {
        let mut play = Play::new(Node::default());
        play.record(1.0, record.clone());
        for second in [2.0, 8.0, 14.0] {
            let (kubelets, halted_kubelets) = (kubelets.clone(), halted_kubelets.clone());
            let pods = vec![of_pod(true, Vec::new())];
            play.sample(NodeSample { pods, kubelets, halted_kubelets, ..sample(second) });
        }
        play.sample(sample(16.0));
        plays.push((title, play));
    }
    let slice = format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
    let text = format!(
        "Error syncing pod, skipping: failed to delete cgroup paths for [kubepods besteffort pod{UID}] : unable to destroy \
         cgroup paths for cgroup [kubepods besteffort pod{UID}] : Timed out while waiting for systemd to remove {slice}"
    );
    let at = Timestamp::from_second(590).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 1)", UID, at, &text);
    let mut play = Play::new(Node::default());
    play.said(600.0, Said { times: 4, ..said });
    play.sample(NodeSample { pods: vec![of_pod(false, Vec::new())], ..sample(602.0) });
    play.sample(sample(1200.0));
    plays.push(("a slice that systemd is to remove", play));
    plays.extend(kubelets_part());
    plays
}

/// Waits inside kubelet.
fn kubelets_part() -> Plays {
    let second = |second| Timestamp::from_second(second).unwrap();
    let waiting = ContainerRecord { id: None, ..container_record(ContainerState::Waiting) };
    let named = Pod { namespace: Some("shop".into()), name: Some("cart".into()), ..pod() };
    let record = PodRecord { pod: named, all_terminated: false, ..testing::pod_record(UID) };
    let creating = ContainerRecord { reason: Some("ContainerCreating".into()), ..waiting.clone() };
    let never = PodRecord { containers: Some(vec![waiting]), ..record.clone() };
    let makes = PodRecord {
        containers: Some(vec![creating]),
        deletion: Some(second(560)),
        grace_s: 30,
        ..record.clone()
    };
    let text = "too old resource version: 7611676 (7611861)";
    let watch = Said::new(Component::Kubelet, "log of kubelet (pid 1)", "", second(590), text);
    let watch = Said { complaint: Some(Complaint::WatchFails), times: 4, ..watch };
    let says = |text: &str| {
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 1)", UID, second(590), text);
        Said { times: 4, ..said }
    };
    let unprepare = "Error syncing pod, skipping: unprepare dynamic resources: pod \"shop/cart\": ResourceClaim not created \
        yet";
    let rejected = "Predicate failed on Pod: Predicate TaintToleration failed";
    let mut plays = Plays::new();
    for (title, record, said, runs) in [
        ("a kubelet whose watch fails", record.clone(), watch, true),
        ("a kubelet that refuses a step", record, says(unprepare), false),
        ("a pod that kubelet has rejected", never, says(rejected), false),
    ] {
        let mut play = Play::new(Node::default());
        play.record(1.0, record);
        play.said(600.0, said);
        for at in [602.0, 604.0] {
            let pods = vec![of_pod(runs, Vec::new())];
            play.sample(NodeSample { pods, kubelets: vec![1], ..sample(at) });
        }
        play.sample(NodeSample { kubelets: vec![1], ..sample(606.0) });
        plays.push((title, play));
    }
    let hooked = makes.containers.iter().flatten().cloned();
    let hooked = hooked.map(|it| ContainerRecord { has_post_start: true, ..it }).collect();
    let hooked = PodRecord { containers: Some(hooked), ..makes.clone() };
    let mut play = Play::new(Node::default());
    play.record(1.0, makes);
    let source = "log of kubelet (pid 1)".to_owned();
    let heard = Heard { source, since: second(500), until: second(600), names_steps: true };
    play.heard(600.0, heard.clone());
    let to_go = says("SyncLoop DELETE");
    let to_go = Said { report: Some(Report::ToGo), at: second(531), times: 1, ..to_go };
    play.said(600.0, to_go.clone());
    for at in [602.0, 604.0] {
        let pods = vec![of_pod(true, Vec::new())];
        let cgroups = vec![PodGroup { tasks: vec![task("pause", 5)], ..pod_group(UID) }];
        let runtimes = vec![runtime(Component::Containerd)];
        play.sample(NodeSample { pods, kubelets: vec![1], cgroups, runtimes, ..sample(at) });
    }
    play.sample(NodeSample { kubelets: vec![1], ..sample(606.0) });
    plays.push(("an image that is still pulled", play));
    let mut play = Play::new(Node::default());
    play.record(1.0, hooked);
    play.heard(600.0, heard);
    play.said(600.0, to_go);
    for at in [602.0, 604.0] {
        let pods = vec![of_pod(true, Vec::new())];
        let tasks = vec![task("pause", 5), task("nginx", 6), task("sh", 7)];
        let cgroups = vec![PodGroup { tasks, ..pod_group(UID) }];
        let runtimes = vec![runtime(Component::Containerd)];
        play.sample(NodeSample { pods, kubelets: vec![1], cgroups, runtimes, ..sample(at) });
    }
    play.sample(NodeSample { kubelets: vec![1], ..sample(606.0) });
    plays.push(("a postStart hook that hangs", play));
    plays
}
