//! The node at one moment: pods, what is mounted for them, and who is left.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    block_volume::BlockVolume,
    container::ContainerState,
    crowd::Crowd,
    csi::{CsiState, DriverProcess},
    halted::HaltedKubelet,
    identity::{Pod, Target},
    linked_root::LinkedRoot,
    mounted::Mounted,
    mounts::NodeMounts,
    object::FileId,
    pod_group::PodGroup,
    raw_path,
    runtime::{GoneRuntime, HaltedShim, OutOfStep, Runtime},
    space::Space,
    time::Monotonic,
};

/// The node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSample {
    /// When the look was over.
    pub at: Monotonic,
    /// When the look began; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub begun: Option<Monotonic>,
    /// How long after it the next one is begun.
    pub rest: Duration,
    /// Running kubelets.
    pub kubelets: Vec<u32>,
    /// Those of them that a signal has stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stopped: Vec<u32>,
    /// Those of them that cannot act, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub halted_kubelets: Vec<HaltedKubelet>,
    /// Processes that do not answer: they hang where they execute a program. What they have mounted is not known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub silent: Vec<u32>,
    /// When the one that was started last was started; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet_since: Option<Monotonic>,
    /// The control group of the only kubelet; `None` where several run, or it is not known.
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

    /// Whether a disk of kubelet or the runtimes is full; `None` where none was looked at.
    pub fn is_full(&self) -> Option<bool> {
        let is_full = |space: &Space| space.exhausted().is_some();
        (!self.spaces.is_empty()).then(|| self.spaces.iter().any(is_full))
    }

    /// The pod of a UID, if it has a directory.
    pub fn pod(&self, uid: &str) -> Option<&PodState> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    /// The volume of this target, and its pod.
    pub fn volume(&self, target_id: u64) -> Option<(&PodState, &VolumeState)> {
        let volumes = self.pods.iter().flat_map(|pod| pod.volumes.iter().map(move |it| (pod, it)));
        volumes.into_iter().find(|(_, volume)| volume.target_id == target_id)
    }

    /// Whether it may have one: it has, or nobody could look everywhere.
    pub fn may_have_pod(&self, uid: &str) -> bool {
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
    /// Its raw block volumes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<BlockVolume>,
}

impl PodState {
    /// Who it is, as far as its volumes' names tell.
    pub fn named(&self) -> Pod {
        let of_volumes = self.volumes.iter().map(|volume| &volume.target);
        let targets = of_volumes.chain(self.devices.iter().map(|volume| &volume.target));
        let known = targets.filter_map(|target| target.pod.clone()).find(|pod| pod.uid == self.uid);
        known.unwrap_or_else(|| Pod { uid: self.uid.clone(), namespace: None, name: None })
    }

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
    /// That directory, of a CSI volume; `None` where it is not known.
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
