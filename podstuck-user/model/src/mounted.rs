//! A mount as one of those sees it that decide about a pod: the host, or kubelet.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    file_system::is_fuse,
    mounts::{Device, Mount},
    raw_path,
};

/// A mount on or below a volume's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// `mnt_id`
    pub id: u32,
    /// What, in a few words.
    pub what: String,
    /// Whether a process serves it (FUSE).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_fuse: bool,
    /// Device of its file system.
    pub device: Device,
    /// Directory of that file system that it shows.
    #[serde(with = "raw_path")]
    pub root: PathBuf,
    /// Whether what happens below it is seen by its peers in other namespaces.
    pub shared: bool,
    /// Inode number of the mount namespace.
    pub namespace: u32,
    /// A process in there.
    pub pid: u32,
    /// Where it was read.
    pub source: String,
}

impl Mounted {
    /// As a process in that mount namespace has it.
    pub fn of(mount: &Mount, (pid, namespace): (u32, u32), source: String) -> Self {
        Self {
            point: mount.point.clone(),
            id: mount.id,
            what: mount.describe(),
            is_fuse: is_fuse(&mount.fs_type),
            device: mount.device,
            root: mount.root.clone(),
            shared: mount.shared.is_some(),
            namespace,
            pid,
            source,
        }
    }
}
