//! The node at one moment: pods, what is mounted for them, and who is left.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    block_volume::BlockVolume,
    container::ContainerState,
    crowd::Crowd,
    identity::Target,
    linked_root::LinkedRoot,
    mounted::Mounted,
    mounts::NodeMounts,
    object::FileId,
    raw_path,
    runtime::{GoneRuntime, HaltedShim, OutOfStep, Runtime, Shim},
    space::Space,
    time::Monotonic,
};

/// The node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSample {
    /// When the look was over.
    pub at: Monotonic,
    /// When the look began; `None` in recordings from before this was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub begun: Option<Monotonic>,
    /// How long after it the next one is begun.
    pub rest: Duration,
    /// Running kubelets.
    pub kubelets: Vec<u32>,
    /// Those of them that a signal has stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stopped: Vec<u32>,
    /// Processes that do not answer: they hang where they execute a program. What they have mounted is not known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub silent: Vec<u32>,
    /// When the one that was started last was started; `None` in recordings from before this was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet_since: Option<Monotonic>,
    /// The control group of the only kubelet; `None` where several run, and in recordings from before this was
    /// noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet_group: Option<String>,
    /// Pods that have a directory.
    pub pods: Vec<PodState>,
    /// kubelets' roots that could not be read this time: of those, `pods` has what was read last, if anything.
    #[serde(with = "raw_path::list", skip_serializing_if = "Vec::is_empty", default)]
    pub unread: Vec<PathBuf>,
    /// kubelets' roots that are reached by a symbolic link.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub linked: Vec<LinkedRoot>,
    /// Mount namespaces with very many mounts, of the host and of kubelets.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub crowded: Vec<Crowd>,
    /// Pods whose processes were looked at this time. Those that give a reason are, every time.
    pub cgroups: Vec<PodGroup>,
    /// Root file systems of containers that have ended, which are still mounted.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rootfs: Vec<LeftRootfs>,
    /// Runtimes that run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub runtimes: Vec<Runtime>,
    /// Runtimes that do not run, while what they have started does.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gone: Vec<GoneRuntime>,
    /// Shims that cannot run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shims: Vec<HaltedShim>,
    /// Containers of Docker's, of which dockerd has written something else than is so.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub out_of_step: Vec<OutOfStep>,
    /// Containers that are looked at: the one that the run is about.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub containers: Vec<ContainerState>,
    /// File systems that kubelet and the runtimes live on.
    pub spaces: Vec<Space>,
    /// Mounts of file systems on block devices or behind a server, and what is mounted over them, in all
    /// namespaces.
    pub mounts: NodeMounts,
}

impl NodeSample {
    /// Whether all of it was looked at after a time. What changed during the look may be in it or not.
    pub fn is_from_after(&self, time: Monotonic) -> bool {
        self.begun.unwrap_or(self.at) > time
    }

    /// The pod of a UID, if it has a directory.
    pub(crate) fn pod(&self, uid: &str) -> Option<&PodState> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    /// The volume of this target, and its pod.
    pub(crate) fn volume(&self, target_id: u64) -> Option<(&PodState, &VolumeState)> {
        let volumes = self.pods.iter().flat_map(|pod| pod.volumes.iter().map(move |it| (pod, it)));
        volumes.into_iter().find(|(_, volume)| volume.target_id == target_id)
    }

    /// Whether it may have one: it has, or nobody could look everywhere.
    pub(crate) fn may_have_pod(&self, uid: &str) -> bool {
        !self.unread.is_empty() || self.pod(uid).is_some()
    }
}

/// One pod that has a directory on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodState {
    /// As in the name of the directory.
    pub uid: String,
    /// `<kubelet root>/pods/<uid>`, as kubelet sees it.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// Whether kubelet has started a container of it since the node was booted.
    pub started: bool,
    /// Whether its containers were started before that, and none since.
    #[serde(skip_serializing_if = "is_false", default)]
    pub before_boot: bool,
    /// Whether a process is left in its control groups; `None` when no group could be read.
    pub populated: Option<bool>,
    /// When something was put into its directories or taken out of them last; `None` when unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changed: Option<Timestamp>,
    /// When its last volume was removed of which only the plugin's empty directory is left; `None` when
    /// there is no such directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume_removed: Option<Timestamp>,
    /// A process that sees its directory there, and the inode number of that process's mount namespace;
    /// `None` in recordings that do not have it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen_by: Option<(u32, u32)>,
    /// Its volumes and subpaths.
    pub volumes: Vec<VolumeState>,
    /// Its raw block volumes; none in recordings from before they were looked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<BlockVolume>,
}

impl PodState {
    /// Whether nothing is left of its volumes, be they mounted, files or raw devices.
    pub fn has_no_volumes(&self) -> bool {
        self.volumes.is_empty() && self.devices.is_empty()
    }
}

/// As serde asks it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One volume of a pod, or the subpaths that a container has of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// Its directory, which is the root of the target.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// That directory, of a CSI volume; `None` in recordings from before this was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<FileId>,
    /// What kubelet wrote about it, for CSI.
    pub csi: Option<CsiState>,
    /// What is mounted on or below its directory, for kubelet or for the host.
    pub mounts: Vec<Mounted>,
}

impl VolumeState {
    /// Who answers for it, if that is a CSI driver and was found.
    pub fn driver(&self) -> Option<&DriverProcess> {
        self.csi.as_ref()?.driver.as_ref()?.process.as_ref()
    }
}

/// A CSI volume's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiState {
    /// `vol_data.json`
    pub data: VolumeData,
    /// Where the driver registers.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// Whether it has.
    pub registration: Registration,
    /// When something was put into that directory or taken out of it last; `None` when unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registry_changed: Option<Timestamp>,
    /// Who answers kubelet's calls; `None` where that was not looked for or could not be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<DriverState>,
}

/// The socket on which kubelet calls a CSI driver, and who listens on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// As kubelet sees it.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// Where that was read.
    pub source: String,
    /// Who listens; `None` when nobody does.
    pub process: Option<DriverProcess>,
    /// Process id of its registrar, mostly another container of the same pod; `None` in recordings from
    /// before this was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registrar: Option<u32>,
}

/// A CSI driver's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverProcess {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to be shown.
    pub comm: String,
    /// When it was started.
    pub started: Monotonic,
    /// The same in ticks since boot: with its id, this names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ticks: Option<u64>,
    /// Whether what it unmounts is unmounted for kubelet, too.
    pub reach: Reach,
    /// Why it cannot answer, if something shows that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halted: Option<Halted>,
}

impl DriverProcess {
    /// Whether the volume is not mounted where the driver runs, and what happens there stays there.
    pub fn is_cut_off(&self) -> bool {
        self.reach == Reach::Cut { mounted: false }
    }
}

/// Whether an unmount of a volume in the driver's mount namespace reaches kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// It is the same namespace, or the mount that the volume is mounted on is shared with kubelet's.
    Whole,
    /// That mount is not shared: an unmount stays in the driver's namespace.
    Cut {
        /// Whether the volume is mounted in there.
        mounted: bool,
    },
    /// The tables do not tell.
    Unknown,
}

/// What keeps a process from answering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halted {
    /// It is stopped, as by SIGSTOP or a debugger.
    Stopped,
    /// Its control group is frozen.
    Frozen {
        /// The group that has to be thawed.
        #[serde(with = "raw_path")]
        group: PathBuf,
    },
    /// It has all descriptors open that it may: it takes no connection, opens no file and starts no program.
    NoDescriptors {
        /// That it has open.
        open: u64,
        /// That it may have (`RLIMIT_NOFILE`, soft).
        most: u64,
        /// To which it may be raised (hard); `None` for no limit.
        hard: Option<u64>,
    },
    /// One of its threads waits in the kernel.
    Waits {
        /// The thread.
        tid: u32,
        /// Its state.
        state: char,
        /// The function that it waits in.
        channel: String,
    },
}

/// Whether a CSI driver is registered with kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// Its socket is there, and somebody listens.
    Listening,
    /// Its socket is there, and nobody listens.
    Deaf,
    /// Its socket is not there: kubelet forgets a driver whose socket is removed.
    Absent,
    /// The driver is not known.
    Unknown,
}

/// The root file system of a container that has ended, as a shim of containerd's has mounted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRootfs {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The container's bundle as a target.
    pub target: Arc<Target>,
    /// The container's id.
    pub container: String,
    /// UID of its pod; empty for none.
    pub pod: String,
    /// The mount.
    pub mount: Mounted,
}

/// kubelet's `vol_data.json` (pkg/volume/csi, `saveVolumeData`), without which it can neither find
/// the driver nor tell it which volume to unpublish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeData {
    /// There is none.
    Missing,
    /// There is one, and it says nothing.
    Corrupt {
        /// Its size in bytes.
        size: u64,
    },
    /// As written.
    Known {
        /// `driverName`
        driver: String,
        /// `volumeHandle`
        handle: String,
        /// `volumeLifecycleMode`: Persistent or Ephemeral; empty before Kubernetes 1.16.
        lifecycle: String,
    },
    /// It could not be read: nothing is known.
    Unknown,
}

/// What is left of a pod in the control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Hash that names the pod as a target; 0 until it was attributed.
    pub target_id: u64,
    /// The pod as a target.
    pub target: Arc<Target>,
    /// The pod.
    pub uid: String,
    /// Its group's directory.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Whether a runtime's group of a container is in it.
    pub has_containers: bool,
    /// The group of version 1 whose `freezer.state` keeps its processes from running: its own, one
    /// below or one above.
    #[serde(with = "raw_path::option")]
    pub frozen: Option<PathBuf>,
    /// Processes in it.
    pub tasks: Vec<Task>,
    /// The runtime's processes that look after them, mostly one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shims: Vec<Shim>,
}

/// A process that is in a pod's control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// The thread that the rest is about: one that cannot be killed, else the first.
    pub tid: u32,
    /// Its name, safe to be shown.
    pub comm: String,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// `SIGKILL` has been sent and not yet taken. Neither this nor `exiting` is said of one that
    /// waits until the core dump of its process is written.
    pub killed: bool,
    /// It has taken it, and is about to end.
    pub exiting: bool,
    /// When the thread was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// How often it has been woken so far, where it is to end and that was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub woken: Option<u64>,
    /// What it has read and written so far: bytes by the calls that it made and by devices, and those calls; where
    /// it is to end and that was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<u64>,
    /// Bytes of answers so far from the servers of all NFS mounts that it sees, where no signal reaches it and that
    /// was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received: Option<u64>,
    /// The kernel function that it waits in, where that is told.
    pub wait_channel: Option<String>,
    /// Functions on its kernel stack, the innermost first; empty without `CAP_SYS_ADMIN`.
    pub stack: Vec<String>,
    /// Its working directory, as the process names it.
    #[serde(with = "raw_path::option")]
    pub directory: Option<PathBuf>,
    /// Its control group.
    #[serde(with = "raw_path")]
    pub group: PathBuf,
}

impl Task {
    /// Whether it is to end, and waits where no signal reaches it.
    pub fn is_unkillable(&self) -> bool {
        self.state == 'D' && (self.killed || self.exiting)
    }
}
