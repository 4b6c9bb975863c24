//! A scan of the node: pods, their mounts, processes and runtimes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    block_volume::BlockVolume,
    container::ContainerState,
    crowd::Crowd,
    csi::{CsiState, DriverProcess},
    disk::Disk,
    dra::KeptClaim,
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

/// A scan of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSample {
    /// The end of the scan.
    pub at: Monotonic,
    /// The start of the scan; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub begun: Option<Monotonic>,
    /// Time from its end to the start of the next scan.
    pub rest: Duration,
    /// Pids of running kubelets.
    pub kubelets: Vec<u32>,
    /// Those of them that are stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stopped: Vec<u32>,
    /// Those of them that cannot act, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub halted_kubelets: Vec<HaltedKubelet>,
    /// Processes that hang in an exec, so that their mounts are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub silent: Vec<u32>,
    /// Start of the youngest kubelet; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet_since: Option<Monotonic>,
    /// The control group of the only kubelet; `None` if several run, or unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubelet_group: Option<String>,
    /// Pods that have a directory.
    pub pods: Vec<PodState>,
    /// kubelet roots that this scan could not read: `pods` has their last known pods, if any.
    #[serde(with = "raw_path::list", skip_serializing_if = "Vec::is_empty", default)]
    pub unread: Vec<PathBuf>,
    /// kubelet roots that are reached through a symbolic link.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub linked: Vec<LinkedRoot>,
    /// Mount namespaces of the host and of kubelets with a very large number of mounts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub crowded: Vec<Crowd>,
    /// Pods whose processes this scan inspected. Pods that give a reason for it are inspected in every scan.
    pub cgroups: Vec<PodGroup>,
    /// Mounted root file systems of containers that have ended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rootfs: Vec<LeftRootfs>,
    /// Running runtimes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub runtimes: Vec<Runtime>,
    /// Runtimes that do not run while processes that they started do.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gone: Vec<GoneRuntime>,
    /// Shims that cannot run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shims: Vec<HaltedShim>,
    /// Docker containers whose state in dockerd's records is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub out_of_step: Vec<OutOfStep>,
    /// Inspected containers: the one that the run is about.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub containers: Vec<ContainerState>,
    /// Block devices with requests in flight or suspended ones, and those that they are made of.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub disks: Vec<Disk>,
    /// The file systems of kubelet and the runtimes.
    pub spaces: Vec<Space>,
    /// Mounts of file systems on block devices or with a server, and the mounts on top of them, in all namespaces.
    pub mounts: NodeMounts,
}

impl NodeSample {
    /// Whether the whole scan took place after a time. A change during the scan may or may not be in it.
    pub fn is_from_after(&self, time: Monotonic) -> bool {
        self.begun.unwrap_or(self.at) > time
    }

    /// Whether a file system of kubelet or the runtimes is full; `None` if none was inspected.
    pub fn is_full(&self) -> Option<bool> {
        let is_full = |space: &Space| space.exhausted().is_some();
        (!self.spaces.is_empty()).then(|| self.spaces.iter().any(is_full))
    }

    /// The pod with a UID, if it has a directory.
    pub fn pod(&self, uid: &str) -> Option<&PodState> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    /// The volume of this target, and its pod.
    pub fn volume(&self, target_id: u64) -> Option<(&PodState, &VolumeState)> {
        let volumes = self.pods.iter().flat_map(|pod| pod.volumes.iter().map(move |it| (pod, it)));
        volumes.into_iter().find(|(_, volume)| volume.target_id == target_id)
    }

    /// Whether the pod has a directory, or a kubelet root could not be read.
    pub fn may_have_pod(&self, uid: &str) -> bool {
        !self.unread.is_empty() || self.pod(uid).is_some()
    }
}

/// A pod that has a directory on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodState {
    /// The UID, from the directory's name.
    pub uid: String,
    /// `<kubelet root>/pods/<uid>`, as kubelet sees it.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// Whether kubelet has started a container of it since boot.
    pub started: bool,
    /// Whether all its containers were started before boot.
    #[serde(skip_serializing_if = "is_false", default)]
    pub before_boot: bool,
    /// Whether its control groups contain a process; `None` if no group could be read.
    pub populated: Option<bool>,
    /// When its directories were last modified; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changed: Option<Timestamp>,
    /// When the last volume was removed whose plugin directory is left, empty; `None` without such a directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume_removed: Option<Timestamp>,
    /// A process that sees its directory at this path, and the inode number of that process's mount namespace;
    /// `None` in older recordings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen_by: Option<(u32, u32)>,
    /// Its volumes and subpaths.
    pub volumes: Vec<VolumeState>,
    /// Its raw block volumes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<BlockVolume>,
    /// ResourceClaims that kubelet keeps for it alone; empty, too, where kubelet's file of them was not read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub claims: Vec<KeptClaim>,
}

impl PodState {
    /// The pod's identity, if the target of a volume has its name; else its UID alone.
    pub fn named(&self) -> Pod {
        let of_volumes = self.volumes.iter().map(|volume| &volume.target);
        let targets = of_volumes.chain(self.devices.iter().map(|volume| &volume.target));
        let known = targets.filter_map(|target| target.pod.clone()).find(|pod| pod.uid == self.uid);
        known.unwrap_or_else(|| Pod { uid: self.uid.clone(), namespace: None, name: None })
    }

    /// Whether no process of the pod lives, and nothing of it is mounted but kubelet's own files in memory.
    pub fn is_free(&self) -> bool {
        let mut mounted = self.volumes.iter().filter(|volume| !volume.mounts.is_empty());
        let is_mapped = self.devices.iter().any(|device| !device.mounts.is_empty());
        self.populated == Some(false) && !is_mapped && mounted.all(VolumeState::is_of_api)
    }

    /// Whether no volume is left, neither a directory nor a raw device.
    pub fn has_no_volumes(&self) -> bool {
        self.volumes.is_empty() && self.devices.is_empty()
    }

    /// The innermost mount of a volume that a path is on.
    pub fn mount_of(&self, path: &Path) -> Option<&Mounted> {
        let mounts = self.volumes.iter().flat_map(|volume| &volume.mounts);
        let on = mounts.filter(|mount| path.starts_with(&mount.point));
        on.max_by_key(|mount| mount.point.as_os_str().len())
    }
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A volume of a pod, or a container's subPaths of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// Its directory, the root of the target.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Device and inode of that directory, for a CSI volume; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<FileId>,
    /// The CSI state, for a CSI volume.
    pub csi: Option<CsiState>,
    /// The mounts at or below its directory, in kubelet's or the host's namespace.
    pub mounts: Vec<Mounted>,
}

impl VolumeState {
    /// Its CSI driver's process, if found.
    pub fn driver(&self) -> Option<&DriverProcess> {
        self.csi.as_ref()?.driver.as_ref()?.process.as_ref()
    }

    /// Whether it has files in memory that kubelet makes from API objects, by its plugin.
    pub fn is_of_api(&self) -> bool {
        let plugin = self.path.parent().and_then(|it| it.file_name());
        let plugin = plugin.and_then(|it| it.to_str()?.strip_prefix("kubernetes.io~"));
        matches!(plugin, Some("projected" | "secret" | "configmap" | "downward-api"))
    }
}

/// The root file system of a container that has ended, still mounted by a containerd shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRootfs {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The container's bundle as a target.
    pub target: Arc<Target>,
    /// The container's id.
    pub container: String,
    /// UID of its pod; empty if none.
    pub pod: String,
    /// The mount.
    pub mount: Mounted,
}
