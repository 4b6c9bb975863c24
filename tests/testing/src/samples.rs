//! Samples of the model's types, each as plain as it can be. A test names what it is about.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use podstuck_common::record::reason;
use podstuck_model::{
    block_volume::BlockVolume,
    call::{Call, Outcome},
    chain::Who,
    container::{ContainerName, ContainerState},
    csi::VolumeData,
    errno::Errno,
    event::Count,
    file_system::FileSystem,
    holder::{HeldMount, Holder, How, Snapshot, Subject, Through},
    hung::{Phase, Since},
    identity::{Actor, Component, Pod, Target, TargetKind, Volume},
    kernel_lock::{KernelLock, LockHolder},
    mounted::Mounted,
    mountinfo,
    mounts::{Device, Mounts},
    node::{PodState, VolumeState},
    object::{Attributes, FileId},
    operation::Operation,
    path::JsonPath,
    pod_group::{PodGroup, Reaper, Task},
    pod_record::{self, ContainerRecord, PodRecord},
    query::ObjectAttributes,
    runtime::{Runtime, Shim},
    space::{Capacity, Space},
    stuck::StuckThread,
    thread::Thread,
    time::Monotonic,
};

/// Root of the sample volume.
pub const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

/// A file or directory that was checked.
pub const FILE: FileId = FileId { device: 5, inode: 6 };

/// The holder as answers name it; empty without a holder.
pub fn holder_of(held_by: &Option<Who>) -> String {
    held_by.as_ref().map(Who::to_string).unwrap_or_default()
}

/// A process outside the pod that is to reap one of the pod's.
pub fn reaper(comm: &str, pid: u32) -> Reaper {
    Reaper { pid, started: 5, comm: comm.into(), state: 'S', traces: false, group: None }
}

/// kubelet's disk of one GiB, with this many bytes available.
pub fn space(available: u64, at: Monotonic) -> Space {
    let capacity = Capacity {
        device: 1,
        bytes: 1 << 30,
        free: available,
        available,
        inodes: 0,
        inodes_available: 0,
        read_only: false,
    };
    let path = "/var/lib/kubelet".into();
    Space { path, is_kubelets: true, seen_by: None, capacity, at }
}

/// A call of kubelet on an emptyDir, at second 1.
pub fn operation(call: Call, outcome: Outcome) -> Operation {
    let volume = Volume {
        name: "data".into(),
        plugin: "kubernetes.io/empty-dir".into(),
        path: JsonPath(VOLUME.into()),
    };
    let target = Target {
        kind: TargetKind::PodVolume,
        root: VOLUME.into(),
        volume: Some(volume),
        ..Target::unknown()
    };
    Operation {
        end: Monotonic(1_000_000_000),
        duration: Duration::from_micros(9),
        call,
        outcome,
        reason: reason::FAILED,
        flaws: 0,
        flags: 0,
        path: VOLUME.into(),
        target_id: 7,
        target: Arc::new(target),
        actor: Arc::new(actor(Component::Kubelet)),
        tid: 42,
        mnt_ns: 1,
        directory: (1, 2),
        mount_id: 9,
        depth: 1,
        mount_depth: 0,
        suppressed: 0,
        logged_in: None,
    }
}

/// A failed call of kubelet on an object of an emptyDir.
pub fn failed(call: Call, errno: Errno, object: &str, seconds: f64) -> Operation {
    let (end, path) = (Monotonic((seconds * 1e9) as u64), Path::new(VOLUME).join(object));
    Operation { end, path, ..operation(call, Outcome(errno as u16)) }
}

/// A process of a component.
pub fn actor(component: Component) -> Actor {
    let comm = component.name().into();
    Actor { pid: 42, started: None, comm, cgroup: None, component, pod: None, parent: None }
}

/// Process 77, which holds something on mount 9.
pub fn holder(how: How, through: Through, explains: Option<bool>) -> Holder {
    let source =
        if how == How::Loop { "/sys/block/loop3/loop/backing_file" } else { "/proc/77/fdinfo/3" };
    Holder {
        file: Some(FILE),
        nested: (how == How::NestedMount).then_some(12),
        how,
        object: JsonPath("/v/x".into()),
        count: 1,
        through,
        mount: HeldMount {
            id: 9,
            namespace: Some(5),
            point: JsonPath("/v".into()),
            detached: None,
        },
        explains_ebusy: explains,
        exact: true,
        pid: Some(77),
        started: Some(99),
        comm: Some("backup".into()),
        component: Some(Component::Other),
        cgroup: None,
        is_child: false,
        container: None,
        pod: None,
        source: source.into(),
    }
}

/// A mount as the host sees it.
pub fn mounted(point: impl AsRef<Path>, id: u32) -> Mounted {
    Mounted {
        point: point.as_ref().into(),
        id,
        what: "/dev/sdb of type ext4".into(),
        is_fuse: false,
        device: Device { major: 8, minor: 16 },
        root: "/".into(),
        shared: false,
        namespace: 1,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
    }
}

/// A snapshot with these holders of the sample volume.
pub fn snapshot(holders: Vec<Holder>) -> Snapshot {
    let subject = Subject {
        path: JsonPath(VOLUME.into()),
        what: "mount of tmpfs of type tmpfs, device 0:45".into(),
        device: "0:45".into(),
        mount_id: Some(9),
        namespace: Some(5),
    };
    let looked_at = (100, 3, 200);
    Snapshot { at: Monotonic(0), subject: Ok(subject), holders, unseen: Vec::new(), looked_at }
}

/// A pod whose containers have ended and which has no volume left.
pub fn pod_state(uid: &str) -> PodState {
    PodState {
        seen_by: None,
        uid: uid.into(),
        directory: format!("/k/pods/{uid}").into(),
        started: true,
        populated: Some(false),
        before_boot: false,
        changed: None,
        volume_removed: None,
        volumes: Vec::new(),
        devices: Vec::new(),
        claims: Vec::new(),
    }
}

/// A volume with these mounts.
pub fn volume_state(path: impl Into<PathBuf>, mounts: Vec<Mounted>) -> VolumeState {
    let (target, path) = (Target::unknown().into(), path.into());
    VolumeState { target_id: 7, target, path, file: None, csi: None, mounts }
}

/// A pod's control group without processes.
pub fn pod_group(uid: &str) -> PodGroup {
    PodGroup {
        target_id: 7,
        target: Target::unknown().into(),
        uid: uid.into(),
        path: "/sys/fs/cgroup/x".into(),
        has_containers: true,
        containers: Vec::new(),
        frozen: None,
        tasks: Vec::new(),
        outside: Vec::new(),
        shims: Vec::new(),
    }
}

/// A sleeping process.
pub fn task(comm: &str, pid: u32) -> Task {
    Task {
        pid,
        tid: pid,
        comm: comm.into(),
        state: 'S',
        killed: false,
        exiting: false,
        dumps: false,
        started: 1,
        woken: None,
        moved: None,
        received: None,
        term: None,
        is_init: false,
        wait_channel: None,
        stack: Vec::new(),
        lock: Vec::new(),
        directory: None,
        group: "/k/pod".into(),
        traced_by: None,
        members: Vec::new(),
    }
}

/// A shim of containerd's.
pub fn shim() -> Shim {
    Shim {
        pid: 41,
        comm: "containerd-shim-runc-v2".into(),
        state: 'S',
        started: 5,
        group: None,
        wait_channel: None,
        of: None,
        container: None,
        unreaped: Vec::new(),
        lost_directory: false,
    }
}

/// Docker's container `web`, about which the run is, without processes.
pub fn container_state() -> ContainerState {
    ContainerState {
        container: ContainerName { id: "a1".repeat(32), name: Some("web".into()), pod: None },
        runtime: Component::Dockerd,
        init: None,
        shim: None,
        recorded: true,
        to_go: false,
        seen_by: None,
        mounts: Vec::new(),
        parts: Vec::new(),
    }
}

/// A running runtime.
pub fn runtime(component: Component) -> Runtime {
    Runtime {
        pid: 40,
        component,
        started: 4,
        mnt_ns: None,
        halted: None,
        sockets: Vec::new(),
        group: None,
        connections: Vec::new(),
    }
}

/// A raw block volume of a CSI driver, as a running pod has it.
pub fn block_volume(uid: &str, name: &str) -> BlockVolume {
    let maps = format!("/k/plugins/kubernetes.io/csi/volumeDevices/{name}");
    let published = format!("/k/plugins/kubernetes.io/csi/volumeDevices/publish/{name}/{uid}");
    let map = PathBuf::from(format!("{maps}/dev/{uid}"));
    let (driver, handle) = ("block.example".into(), "h-1".into());
    let pod = Some(Pod { uid: uid.into(), namespace: None, name: None });
    BlockVolume {
        target_id: 77,
        target: Target { kind: TargetKind::PodVolume, pod, ..Target::unknown() }.into(),
        link: Some(format!("/k/pods/{uid}/volumeDevices/kubernetes.io~csi/{name}").into()),
        leads_to: Some(published.into()),
        mounts: vec![mounted(&map, 77)],
        map: Some(map),
        data: Some(VolumeData::Known { driver, handle, lifecycle: "Persistent".into() }),
        users: Vec::new(),
    }
}

/// The mounts of process 7, by the text of its `mountinfo`.
pub fn mounts(text: &str) -> Mounts {
    let all = mountinfo::parse(text.as_bytes());
    Mounts { all, source: "/proc/7/mountinfo".into(), pid: 7 }
}

/// Thread 42 of kubelet, which has been in an `unlinkat` for three seconds with this kernel stack.
pub fn stuck(stack: &[&str]) -> StuckThread {
    let op = failed(Call::Unlinkat, Errno::EIO, "m", 1.0);
    StuckThread {
        thread: Thread { pid: 42, tid: 42 },
        phase: Phase::InSyscall,
        syscall: "unlinkat".into(),
        path: Some(PathBuf::from(VOLUME)),
        mount: None,
        target_id: op.target_id,
        target: op.target,
        actor: op.actor,
        mnt_ns: 1,
        began: Monotonic(1_000_000_000),
        since: Since::Probe,
        before_start: false,
        at: Monotonic(4_000_000_000),
        over: false,
        times: None,
        wait_channel: stack.first().map(|f| (*f).to_owned()),
        stack: stack.iter().map(|f| (*f).to_owned()).collect(),
        progress: None,
        disks: Vec::new(),
        lock: Vec::new(),
    }
}

/// A sleeping process that holds an `rw_semaphore` of the kernel, in these functions.
pub fn lock_holder(comm: &str, pid: u32, stack: &[&str]) -> LockHolder {
    LockHolder {
        lock: KernelLock::RwSemaphore,
        is_proven: true,
        thread: Thread::main(pid),
        started: 7,
        comm: comm.into(),
        is_kernel: false,
        state: 'S',
        wait_channel: stack.first().map(|name| (*name).to_owned()),
        stack: stack.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The record of a pod in deletion: its grace period is over, its containers have ended, it has no finalizers.
pub fn pod_record(uid: &str) -> PodRecord {
    PodRecord {
        pod: Pod { uid: uid.into(), namespace: Some("shop".into()), name: Some("cart".into()) },
        deletion: Some(Timestamp::UNIX_EPOCH),
        grace_s: 30,
        finalizers: Vec::new(),
        node: Some("here".into()),
        is_mirror: false,
        all_terminated: true,
        read: None,
        claims: Vec::new(),
        bidirectional: None,
        containers: None,
        reason: None,
        unmade_claims: Vec::new(),
    }
}

/// The container `app` in a pod's record.
pub fn container_record(state: pod_record::ContainerState) -> ContainerRecord {
    ContainerRecord {
        name: "app".into(),
        is_sidecar: false,
        state,
        reason: None,
        id: Some(format!("containerd://{}", "a".repeat(64))),
        has_pre_stop: false,
        has_post_start: false,
    }
}

/// A number of kubelet's calls on the sample volume.
pub fn count(call: Call, outcome: Outcome, calls: u64) -> Count {
    Count {
        target_id: 7,
        pid: 42,
        started: None,
        call,
        outcome,
        component: Component::Kubelet,
        bucket: 0,
        calls,
        total_ns: 0,
        min_ns: 0,
        max_ns: 0,
    }
}

/// The attributes of an object and its directory, which is the one of the failed call.
pub fn attributes(object: Attributes, directory: Attributes) -> ObjectAttributes {
    let files = Some((FILE, FILE));
    let (same_directory, sticky, swap, swap_unknown) = (true, false, false, false);
    ObjectAttributes { files, object, directory, same_directory, sticky, swap, swap_unknown }
}

/// A healthy file system on a disk, mounted at `point`.
pub fn file_system(point: &str) -> FileSystem {
    FileSystem {
        id: Some(3),
        point: point.into(),
        is_whole: true,
        fs_type: "ext4".into(),
        source: "/dev/sda1".into(),
        device: "8:1".into(),
        mount_read_only: false,
        read_only: false,
        options: Vec::new(),
        device_exists: Some(true),
        errors: Vec::new(),
        table: "/proc/1/mountinfo".into(),
    }
}
