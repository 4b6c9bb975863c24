//! The file system that a call was about.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::raw_path;

/// A mount, its file system, and the device below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// `mnt_id`; `None` in recordings that do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Where it is mounted.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// Whether it is mounted whole, and not a directory of it. Recordings that do not tell have it so.
    #[serde(default = "super::yes", skip_serializing_if = "Clone::clone")]
    pub is_whole: bool,
    /// Its type.
    pub fs_type: String,
    /// Its device, or whatever the type calls its source.
    pub source: String,
    /// `major:minor`
    pub device: String,
    /// This mount is read-only.
    pub mount_read_only: bool,
    /// The whole file system is.
    pub read_only: bool,
    /// Options of the file system that say something about its health.
    pub options: Vec<String>,
    /// Whether a block device of this number exists; `None` where there never is one.
    pub device_exists: Option<bool>,
    /// What the kernel has counted on the device.
    pub errors: Vec<Counted>,
    /// The file that the mount was read from.
    pub table: String,
}

/// An error counter of the kernel that is not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its value.
    pub value: String,
    /// The file.
    pub file: String,
}

/// Whether a process or another machine serves it, so that whoever uses it may be made to wait.
pub fn has_server(fs_type: &str) -> bool {
    is_fuse(fs_type) || ["nfs", "nfs4", "cifs", "smb3", "ceph"].contains(&fs_type)
}

/// `fuse`, `fuse.NAME`, `fuseblk`; not `fusectl`, which the kernel serves.
pub fn is_fuse(fs_type: &str) -> bool {
    fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.")
}
