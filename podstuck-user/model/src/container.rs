//! A container, and how far its removal has come on this node.

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    identity::{Component, Pod, Target, TargetKind},
    mounted::Mounted,
    raw_path,
    runtime::Shim,
};

/// Which container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ContainerName {
    /// As its runtime gave it.
    pub id: String,
    /// Kubernetes' name for it, or else its runtime's, if it has one.
    pub name: Option<String>,
    /// Its pod, if it belongs to one.
    pub pod: Option<Pod>,
}

/// A container at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Which.
    pub container: ContainerName,
    /// Whose it is: containerd, dockerd, or for all that use containers-storage CRI-O.
    pub runtime: Component,
    /// Its first process, while that runs.
    pub init: Option<u32>,
    /// The process that looks after it, while that lives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shim: Option<Shim>,
    /// Whether its runtime still has a record of it: a bundle, or an entry of its own.
    pub recorded: bool,
    /// Whether its runtime wrote that its removal was begun. Docker does.
    pub to_go: bool,
    /// A process that sees its directories there, and the inode number of that process's mount namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen_by: Option<(u32, u32)>,
    /// Where its root file system is mounted.
    pub mounts: Vec<Mounted>,
    /// What of it is still there.
    pub parts: Vec<ContainerPart>,
}

/// Something that belongs to a container.
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

/// How far the removal of a container has come on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContainerProgress {
    /// The container.
    pub container: ContainerName,
    /// How far.
    pub stage: ContainerStage,
    /// The fact that says so.
    pub fact: String,
}

/// The stages of a container's removal, in the order in which runtimes come through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerStage {
    /// Its first process runs.
    Running,
    /// That has ended, and its root file system is mounted.
    Mounted,
    /// Nothing is mounted, and its task's bundle is there.
    Bundle,
    /// Its writable layer is there.
    Layer,
    /// Only its runtime's record of it is there.
    Recorded,
    /// Only a volume of it is there.
    Volume,
    /// This node has nothing of it.
    Gone,
}

impl ContainerStage {
    /// What a person is told.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Running => "it runs",
            Self::Mounted => "it has ended, its root file system is mounted",
            Self::Bundle => "its root file system is unmounted, its bundle is left",
            Self::Layer => "it has ended, its layer is left",
            Self::Recorded => "only its runtime's record of it is left",
            Self::Volume => "it is gone, a volume of it is left",
            Self::Gone => "there is nothing of it on this node",
        }
    }
}
