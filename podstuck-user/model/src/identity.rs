//! The objects of a deletion and the processes that carry it out.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{path::JsonPath, raw_path};

/// A pod. Its name is known only while this node's log directories exist.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Pod {
    /// The UID as in the path: dashed for API pods, 32 hexadecimal digits for static pods.
    pub uid: String,
    /// Namespace, if known.
    pub namespace: Option<String>,
    /// Name, if known.
    pub name: Option<String>,
}

/// A volume, or another directory of a pod or container that is removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Name of the volume's directory: the name in the pod, or the PersistentVolume's name for CSI.
    pub name: String,
    /// `kubernetes.io/empty-dir`, `kubernetes.io/csi`, `docker-volume`, `container-layer`, ...
    pub plugin: String,
    /// Its root directory in the caller's mount namespace.
    #[serde(flatten)]
    pub path: JsonPath,
}

/// The plugin name for subPaths, which have directories of their own beside the volumes.
pub const SUBPATH: &str = "subpath";

/// The kind of a target directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A volume of a pod.
    PodVolume,
    /// Another directory of a pod.
    PodDirectory,
    /// A volume of Docker's local driver.
    DockerVolume,
    /// A writable layer or snapshot of a container.
    ContainerLayer,
    /// The bundle of a container's task, below the runtime's state directory.
    ContainerBundle,
    /// None of these.
    Other,
}

impl TargetKind {
    /// Whether it belongs to a runtime, so that its path does not name a pod.
    pub const fn is_of_runtime(self) -> bool {
        matches!(self, Self::DockerVolume | Self::ContainerLayer | Self::ContainerBundle)
    }
}

/// The object of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its root in the caller's mount namespace; empty if the record with its path was lost.
    #[serde(with = "raw_path")]
    pub root: PathBuf,
    /// The pod it belongs to.
    pub pod: Option<Pod>,
    /// The volume it is.
    pub volume: Option<Volume>,
    /// The container that it belongs to: its id, or its name for a directory of the pod itself.
    pub container: Option<String>,
    /// The container's name, if `container` is an id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container_name: Option<String>,
}

impl Target {
    /// An unknown target.
    pub fn unknown() -> Self {
        Self {
            kind: TargetKind::Other,
            root: PathBuf::new(),
            pod: None,
            volume: None,
            container: None,
            container_name: None,
        }
    }
}

/// The role of a process on a node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// kubelet itself.
    Kubelet,
    /// containerd.
    Containerd,
    /// A containerd shim.
    ContainerdShim,
    /// dockerd.
    Dockerd,
    /// runc, crun and the like.
    Runc,
    /// CRI-O or its conmon.
    CriO,
    /// A driver in its own pod that works on another pod's volume.
    CsiDriver,
    /// `umount` or one of its helpers, started by another component.
    UmountHelper,
    /// A process in a container, or one that is not proven to belong to the node.
    Workload,
    /// Anything else.
    Other,
}

impl Component {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim",
            Self::Dockerd => "dockerd",
            Self::Runc => "runc",
            Self::CriO => "cri-o",
            Self::CsiDriver => "csi-driver",
            Self::UmountHelper => "umount-helper",
            Self::Workload => "workload",
            Self::Other => "other",
        }
    }
}

/// The caller of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// Process id.
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process. `None` if it ended before it was
    /// inspected.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Name of its thread at the first call.
    pub comm: String,
    /// Control group path, if it could be read in time.
    pub cgroup: Option<String>,
    /// Its role on this node.
    pub component: Component,
    /// Its parent, which explains a short-lived helper.
    pub pod: Option<Pod>,
    /// Name and id of its parent, which explains a short-lived helper.
    pub parent: Option<Parent>,
}

impl Actor {
    /// Whether the caller has no authority over a target: it is not proven to belong to the node, and the target
    /// does not belong to its own pod. Its calls there do not affect verdicts.
    pub fn is_stranger_to(&self, target: &Target) -> bool {
        let is_own = match (&self.pod, &target.pod) {
            (Some(own), Some(victim)) => own.uid == victim.uid,
            _ => false,
        };
        self.component == Component::Workload && !is_own
    }
}

/// The process that started an actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// Process id.
    pub pid: u32,
    /// Name of its main thread.
    pub comm: String,
}
