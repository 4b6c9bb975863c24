//! Events for the trackers' tests, and a harness that answers their queries.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use nix::errno::Errno;

use crate::{
    event::{Event, Run, Thresholds, What},
    kubelet_steps::KubeletSteps,
    model::{
        block_volume::BlockVolume,
        call::{Call, Outcome},
        chain::Who,
        csi::VolumeData,
        file_system::FileSystem,
        holder::{HeldMount, Holder, How, Snapshot, Subject, Through},
        hung::{Phase, Since},
        identity::{Actor, Component, Pod, Target, TargetKind, Volume},
        kernel_lock::{KernelLock, LockHolder},
        mounted::Mounted,
        mountinfo,
        mounts::{Device, Mounts},
        node::PodState,
        object::FileId,
        operation::Operation,
        path::JsonPath,
        pod_group::{PodGroup, Reaper, Task},
        pod_record::PodRecord,
        runtime::Runtime,
        space::{Capacity, Space},
        stuck::StuckThread,
        summary::Start,
        thread::Thread,
        time::{Clock, Monotonic},
    },
    query::{Answer, Query},
    tracker::{Context, Steps, Tracker},
    unmounts::Unmounts,
    verdict::{Draft, Verdict},
    waits::Waits,
};

/// Root of the sample volume.
pub(crate) const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

/// A file or directory that was checked.
pub(crate) const FILE: FileId = FileId { device: 5, inode: 6 };

/// The holder, as answers name it; empty if there is none.
pub(crate) fn holder_of(held_by: &Option<Who>) -> String {
    held_by.as_ref().map(Who::to_string).unwrap_or_default()
}

/// A process outside the pod that is to reap one of the pod's.
pub(crate) fn reaper(comm: &str, pid: u32) -> Reaper {
    Reaper { pid, started: 5, comm: comm.into(), state: 'S', traces: false, group: None }
}

/// kubelet's disk of one GiB, with this many bytes available.
pub(crate) fn space(available: u64, at: Monotonic) -> Space {
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

/// A failed call of kubelet on an object of an emptyDir.
pub(crate) fn failed(call: Call, errno: Errno, object: &str, seconds: f64) -> Operation {
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
        end: Monotonic((seconds * 1e9) as u64),
        duration: Duration::from_micros(9),
        call,
        outcome: Outcome(errno as u16),
        reason: podstuck_common::record::reason::FAILED,
        flaws: 0,
        flags: 0,
        path: Path::new(VOLUME).join(object),
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

/// A process of a component.
pub(crate) fn actor(component: Component) -> Actor {
    let comm = component.name().into();
    Actor { pid: 42, started: None, comm, cgroup: None, component, pod: None, parent: None }
}

/// Process 77, which holds something on mount 9.
pub(crate) fn holder(how: How, through: Through, explains: Option<bool>) -> Holder {
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
pub(crate) fn mounted(point: &Path, id: u32) -> Mounted {
    Mounted {
        point: point.into(),
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
pub(crate) fn snapshot(holders: Vec<Holder>) -> Snapshot {
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
pub(crate) fn pod_state(uid: &str) -> PodState {
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

/// A pod's control group without processes.
pub(crate) fn pod_group(uid: &str) -> PodGroup {
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
pub(crate) fn task(comm: &str, pid: u32) -> Task {
    Task {
        pid,
        tid: pid,
        comm: comm.into(),
        state: 'S',
        killed: false,
        exiting: false,
        started: 1,
        woken: None,
        moved: None,
        received: None,
        term: None,
        wait_channel: None,
        stack: Vec::new(),
        lock: Vec::new(),
        directory: None,
        group: "/k/pod".into(),
        traced_by: None,
        members: Vec::new(),
    }
}

/// A running runtime.
pub(crate) fn runtime(component: Component) -> Runtime {
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
pub(crate) fn block_volume(uid: &str, name: &str) -> BlockVolume {
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
pub(crate) fn mounts(text: &str) -> Mounts {
    let all = mountinfo::parse(text.as_bytes());
    Mounts { all, source: "/proc/7/mountinfo".into(), pid: 7 }
}

/// Thread 42 of kubelet, which has been in an `unlinkat` for three seconds with this kernel stack.
pub(crate) fn stuck(stack: &[&str]) -> StuckThread {
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
pub(crate) fn lock_holder(comm: &str, pid: u32, stack: &[&str]) -> LockHolder {
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

/// A single tracker and the shared state that it sees.
pub(crate) struct Alone<T> {
    /// The tracker.
    pub(crate) tracker: T,
    /// Unmounts so far.
    pub(crate) unmounts: Unmounts,
    /// kubelet's progress with each pod.
    pub(crate) kubelet_steps: KubeletSteps,
    /// Waits of processes.
    pub(crate) waits: Waits,
    /// The pod that the run is about.
    pub(crate) asked: Option<String>,
    /// Other trackers, which may explain the subject.
    pub(crate) others: Vec<Box<dyn Tracker>>,
}

impl<T: Tracker + Default> Alone<T> {
    /// A tracker without events.
    pub(crate) fn new() -> Self {
        let (unmounts, kubelet_steps) = (Unmounts::default(), KubeletSteps::default());
        let (waits, others) = (Waits::default(), Vec::new());
        Self { tracker: T::default(), unmounts, kubelet_steps, waits, asked: None, others }
    }
}

impl<T: Tracker> Alone<T> {
    /// Passes an event.
    pub(crate) fn take(&mut self, at: Monotonic, what: What) -> Steps {
        let mut steps = Steps::default();
        self.kubelet_steps.listen(&what);
        let context = Context {
            waits: &self.waits,
            asked: self.asked.as_deref(),
            ..context(at, &self.unmounts, &self.kubelet_steps, &self.others)
        };
        self.tracker.take(&Event { at, what }, &context, &mut steps);
        steps
    }

    /// Passes an operation; returns the queries.
    pub(crate) fn ask(&mut self, op: &Operation) -> Vec<Query> {
        self.take(op.end, What::Operation(Box::new(op.clone()))).queries
    }

    /// Passes an answer; returns the finding.
    pub(crate) fn answer(&mut self, query: &Query, answer: Answer) -> Option<Draft> {
        self.answer_at(Monotonic(20_000_000_000), query, answer)
    }

    /// Passes an answer at a given time.
    pub(crate) fn answer_at(
        &mut self,
        at: Monotonic,
        query: &Query,
        answer: Answer,
    ) -> Option<Draft> {
        let (query, answer) = (Box::new(query.clone()), Box::new(answer));
        found(self.take(at, What::Answer { query, answer }).verdicts).pop()
    }
}

/// The findings among the verdicts.
pub(crate) fn found(verdicts: Vec<Verdict>) -> Vec<Draft> {
    let found = verdicts.into_iter().filter_map(|verdict| match verdict {
        Verdict::Found(draft) => Some(*draft),
        _ => None,
    });
    found.collect()
}

/// A run on the whole node that starts at time 0, the Unix epoch.
pub(crate) fn run() -> Run {
    Run {
        clock: Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0)),
        start: Start::default(),
        own_mnt_ns: 4,
        thresholds: Thresholds {
            hung: Duration::from_secs(2),
            not_attempted: Duration::from_secs(240),
        },
        one_answer: false,
        pod: None,
        container: None,
        directory: None,
    }
}

/// A context at a time, in a mount namespace that none of the sample calls has.
pub(crate) fn context<'a>(
    now: Monotonic,
    unmounts: &'a Unmounts,
    kubelet_steps: &'a KubeletSteps,
    others: &'a [Box<dyn Tracker>],
) -> Context<'a> {
    static CLOCK: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));
    static WAITS: Waits = Waits::NONE;
    let Run { clock, own_mnt_ns, thresholds, .. } = run();
    Context {
        now,
        calendar: clock.at(now),
        begun: clock.started(),
        asked: None,
        own_mnt_ns,
        thresholds,
        unmounts,
        kubelet_steps,
        waits: &WAITS,
        clock: &CLOCK,
        sample: None,
        yields_of: crate::causes::yields_of,
        others: [others, &[]],
    }
}

/// The record of a pod in deletion: its grace period is over, its containers have ended, it has no finalizers.
pub(crate) fn pod_record(uid: &str) -> PodRecord {
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

/// A healthy file system on a disk, mounted at `point`.
pub(crate) fn file_system(point: &str) -> FileSystem {
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
