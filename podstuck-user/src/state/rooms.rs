//! How full file systems are: the helper's side. `statfs` of a dead file system may never return.

use std::{ffi::OsString, os::linux::fs::MetadataExt, path::Path};

use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::{Deserialize, Serialize};

/// A file system's room, by `statvfs(3)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// `st_dev`: names the file system.
    pub device: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that nobody uses, those kept for root included.
    pub free: u64,
    /// Bytes that anybody may use.
    pub available: u64,
    /// Inodes in all; 0 where they are made as they are needed.
    pub inodes: u64,
    /// Inodes that anybody may use.
    pub inodes_available: u64,
    /// It, or its mount, is read-only.
    pub read_only: bool,
}

/// Looks at the file system of a path; `None` when there is no such path.
pub(super) fn room(path: &Path) -> Option<Room> {
    let device = std::fs::metadata(path).ok()?.st_dev();
    let found = statvfs(path).ok()?;
    Some(Room {
        device,
        bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bfree.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
        inodes: found.f_files,
        inodes_available: found.f_favail,
        read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// A path, as a process sees it or as we do.
pub type Place = (Option<u32>, OsString);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_room() {
        let room = room(Path::new("/tmp")).unwrap();
        assert!(room.bytes >= room.free && room.free >= room.available && !room.read_only);
        assert_eq!(super::room(Path::new("/nonexistent")), None);
    }
}
