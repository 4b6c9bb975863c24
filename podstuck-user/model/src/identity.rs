//! Who is deleted and who deletes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{path::JsonPath, raw_path};

/// A pod. Its name is known only if this node's log directories (still) tell it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Pod {
    /// As in the path: dashed for API pods, 32 hexadecimal digits for static ones.
    pub uid: String,
    /// Namespace, if known.
    pub namespace: Option<String>,
    /// Name, if known.
    pub name: Option<String>,
}

/// A volume, or what else of a pod or container is removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Name of the volume's directory: the pod's name for it, or the PersistentVolume's for CSI.
    pub name: String,
    /// `kubernetes.io/empty-dir`, `kubernetes.io/csi`, `docker-volume`, `container-layer`, ...
    pub plugin: String,
    /// Its root directory in the caller's mount namespace.
    #[serde(flatten)]
    pub path: JsonPath,
}

/// The plugin of subPaths, which are directories of their own beside the volumes.
pub const SUBPATH: &str = "subpath";

/// What kind of directory a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A volume of a pod.
    PodVolume,
    /// Something of a pod beside its volumes.
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
    /// Whether it is a runtime's, and says by its path nothing of a pod.
    pub const fn is_of_runtime(self) -> bool {
        matches!(self, Self::DockerVolume | Self::ContainerLayer | Self::ContainerBundle)
    }
}

/// What a call was about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// What it is.
    pub kind: TargetKind,
    /// Its root in the caller's mount namespace; empty when its text never arrived.
    #[serde(with = "raw_path")]
    pub root: PathBuf,
    /// The pod it belongs to.
    pub pod: Option<Pod>,
    /// The volume it is.
    pub volume: Option<Volume>,
    /// The container it belongs to: its id, or in a pod's own directory its name.
    pub container: Option<String>,
    /// The container's name, if it is known by its id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container_name: Option<String>,
}

impl Target {
    /// A target of which nothing is known.
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

/// The part that a process plays on a node.
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
    /// A driver in a pod of its own that works on another pod's volume.
    CsiDriver,
    /// `umount` or one of its helpers, started by another component.
    UmountHelper,
    /// A process in a container, or another one that is not proven to be the node's own.
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

/// Who made a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// Process id.
    pub pid: u32,
    /// When it was started, in ticks since boot: with its id, this names it. `None` when it had ended
    /// before it was looked at.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Name of its thread at the first call.
    pub comm: String,
    /// Control group path, if it could still be read.
    pub cgroup: Option<String>,
    /// What it is on this node.
    pub component: Component,
    /// The pod it runs in, if any.
    pub pod: Option<Pod>,
    /// Name and id of its parent, which explains a short-lived helper.
    pub parent: Option<Parent>,
}

impl Actor {
    /// Whether a target is none of its business: it is not proven to be a part of the node, and the target
    /// is not known to be its own pod's. Its calls there decide nothing.
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
