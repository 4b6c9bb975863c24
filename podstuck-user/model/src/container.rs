//! A container, and the progress of its removal on this node.

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    identity::{Component, Pod, Target, TargetKind},
    mounted::Mounted,
    raw_path,
    runtime::Shim,
};

/// The identity of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ContainerName {
    /// The runtime's id.
    pub id: String,
    /// The name in Kubernetes, else the runtime's name, if any.
    pub name: Option<String>,
    /// The pod that it belongs to, if any.
    pub pod: Option<Pod>,
}

/// The state of a container at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// The container.
    pub container: ContainerName,
    /// The runtime: containerd, dockerd, or CRI-O for everything that uses containers-storage.
    pub runtime: Component,
    /// Its first process, while it runs.
    pub init: Option<u32>,
    /// Its shim, while it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shim: Option<Shim>,
    /// Whether its runtime still has a record of it: a bundle, or an entry in its own store.
    pub recorded: bool,
    /// Whether its runtime recorded that the removal has begun. Docker does.
    pub to_go: bool,
    /// A process that sees its directories at these paths, and the inode number of that process's mount namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen_by: Option<(u32, u32)>,
    /// The mounts of its root file system.
    pub mounts: Vec<Mounted>,
    /// The parts of it that still exist.
    pub parts: Vec<ContainerPart>,
}

/// A part of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPart {
    /// Bundle, layer or volume.
    pub kind: TargetKind,
    /// Its directory.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
}

/// The progress of a container's removal on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContainerProgress {
    /// The container.
    pub container: ContainerName,
    /// The stage.
    pub stage: ContainerStage,
    /// The evidence, as a sentence.
    pub fact: String,
}

/// The stages of a container's removal, in the order in which runtimes pass through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerStage {
    /// Its first process runs.
    Running,
    /// Its first process has ended, its root file system is mounted.
    Mounted,
    /// Nothing is mounted, its task's bundle exists.
    Bundle,
    /// Its writable layer exists.
    Layer,
    /// Only its runtime's record exists.
    Recorded,
    /// Only a volume of it exists.
    Volume,
    /// Nothing of it is left on this node.
    Gone,
}

impl ContainerStage {
    /// The text in output.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Running => "it runs",
            Self::Mounted => "it has ended, but its root file system is mounted",
            Self::Bundle => "its root file system is unmounted, but its bundle is left",
            Self::Layer => "it has ended, but its layer is left",
            Self::Recorded => "only its runtime's record of it is left",
            Self::Volume => "it is gone, but one of its volumes is left",
            Self::Gone => "nothing of it is left on this node",
        }
    }
}
