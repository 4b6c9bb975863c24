//! The file system of a call's object.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{object::FileId, raw_path};

/// A mount with its file system and block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// `mnt_id`; `None` in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The mount point.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// Whether the root of the file system is mounted and not a subdirectory. True in recordings without the field.
    #[serde(default = "super::yes", skip_serializing_if = "Clone::clone")]
    pub is_whole: bool,
    /// Its type.
    pub fs_type: String,
    /// Its device, or the source as the type defines it.
    pub source: String,
    /// `major:minor`
    pub device: String,
    /// Whether this mount is read-only.
    pub mount_read_only: bool,
    /// Whether the whole file system is read-only.
    pub read_only: bool,
    /// Options that indicate the health of the file system.
    pub options: Vec<String>,
    /// Whether a block device with this number exists; `None` for types without one.
    pub device_exists: Option<bool>,
    /// Error counters of the device.
    pub errors: Vec<Counted>,
    /// The file that the mount was read from.
    pub table: String,
}

/// A subvolume of btrfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subvolume {
    /// Its root directory.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// The same.
    pub file: FileId,
    /// Whether the kernel refuses writes in it with EROFS, although the mount and the file system are writable.
    pub read_only: bool,
}

/// A kernel error counter that is not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its value.
    pub value: String,
    /// The file.
    pub file: String,
}

/// Whether a process or a remote machine serves the file system, so that an access can block.
pub fn has_server(fs_type: &str) -> bool {
    is_fuse(fs_type) || ["nfs", "nfs4", "cifs", "smb3", "ceph"].contains(&fs_type)
}

/// Whether the type is the kernel's client for SMB.
pub fn is_smb(fs_type: &str) -> bool {
    ["cifs", "smb3"].contains(&fs_type)
}

/// Whether the type is CephFS.
pub fn is_ceph(fs_type: &str) -> bool {
    fs_type == "ceph"
}

/// `fuse`, `fuse.NAME`, `fuseblk`; not `fusectl`, which the kernel serves.
pub fn is_fuse(fs_type: &str) -> bool {
    fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.")
}
