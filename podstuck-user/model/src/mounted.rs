//! A mount as seen by the host or by kubelet, whose views decide about a pod.

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
    /// The mount point.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// `mnt_id`
    pub id: u32,
    /// The file system, in a few words.
    pub what: String,
    /// Whether a process serves it (FUSE).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_fuse: bool,
    /// Device of its file system.
    pub device: Device,
    /// The directory of that file system that is mounted.
    #[serde(with = "raw_path")]
    pub root: PathBuf,
    /// Whether mount events below it propagate to its peers in other namespaces.
    pub shared: bool,
    /// Inode number of the mount namespace.
    pub namespace: u32,
    /// A process in that namespace.
    pub pid: u32,
    /// The file that it was read from.
    pub source: String,
}

impl Mounted {
    /// A mount from the table of process `pid` in that namespace.
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
