//! What a path is mounted on, by the mount table of the process that named it. Reading that touches
//! no file system.

use std::{fs, path::Path};

use crate::{
    model::{file_system::is_fuse, hung::MountPoint, mounts::Mount},
    proc,
};

/// The mount that a path is on.
pub(super) fn of(pid: u32, path: &Path) -> Option<MountPoint> {
    proc::mounts(pid)?.covering(path).map(describe)
}

/// The FUSE mounts at or below a path, and the one that it is on.
pub(crate) fn fuse_at(pid: u32, path: &Path) -> Vec<MountPoint> {
    // One that has ended has no table.
    let Some(table) = proc::mounts(pid) else { return Vec::new() };
    let on = table.covering(path).filter(|mount| mount.point != path);
    let below = table.all.iter().filter(|mount| mount.point.starts_with(path));
    let all = on.into_iter().chain(below);
    all.filter(|mount| is_fuse(&mount.fs_type)).map(describe).collect()
}

/// Where the kernel says how many requests a FUSE server has not answered.
pub(super) fn waiting(minor: u32) -> String {
    format!("/sys/fs/fuse/connections/{minor}/waiting")
}

/// How many these are.
pub(super) fn unanswered(minor: u32) -> Option<u64> {
    fs::read_to_string(waiting(minor)).ok()?.trim().parse().ok()
}

fn describe(mount: &Mount) -> MountPoint {
    let minor = mount.device.minor;
    let unanswered = is_fuse(&mount.fs_type).then(|| unanswered(minor));
    MountPoint {
        id: Some(mount.id),
        point: mount.point.clone(),
        fs_type: mount.fs_type.clone(),
        source: mount.source.clone(),
        minor,
        unanswered: unanswered.flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it() {
        let mount = of(std::process::id(), Path::new("/proc/self/x")).unwrap();
        assert_eq!((mount.point.as_path(), mount.fs_type.as_str()), (Path::new("/proc"), "proc"));
        assert!(fuse_at(std::process::id(), Path::new("/proc")).is_empty());
    }

    #[test]
    fn the_control_file_system_is_none() {
        assert!(is_fuse("fuse.s3fs") && is_fuse("fuseblk") && !is_fuse("fusectl"));
    }
}
