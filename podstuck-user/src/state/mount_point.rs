//! What a path is mounted on, by the mount table of the process that named it. Reading that touches
//! no file system.

use std::{fs, path::Path};

use procfs::process::{MountInfo, Process};

use crate::model::hung::MountPoint;

/// The mount that a path is on.
pub fn of(pid: u32, path: &Path) -> Option<MountPoint> {
    let above = table(pid).into_iter().filter(|mount| path.starts_with(&mount.mount_point));
    // Of two at the same place the later is on top.
    above.max_by_key(|mount| mount.mount_point.components().count()).map(describe)
}

/// The FUSE mounts at or below a path, and the one that it is on.
pub fn fuse_at(pid: u32, path: &Path) -> Vec<MountPoint> {
    let on = of(pid, path).filter(|mount| mount.point != path);
    let below = table(pid).into_iter().filter(|mount| mount.mount_point.starts_with(path));
    let all = on.into_iter().chain(below.map(describe));
    all.filter(|mount| is_fuse(&mount.fs_type)).collect()
}

/// `fuse`, `fuse.NAME`, `fuseblk`; not `fusectl`, which the kernel serves.
pub fn is_fuse(fs_type: &str) -> bool {
    fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.")
}

fn table(pid: u32) -> Vec<MountInfo> {
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    // One that has ended has no table.
    let table = process.and_then(|process| process.mountinfo().ok());
    table.into_iter().flatten().collect()
}

fn describe(mount: MountInfo) -> MountPoint {
    let minor = mount.majmin.split(':').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    let unanswered = is_fuse(&mount.fs_type).then(|| {
        let waiting = fs::read_to_string(format!("/sys/fs/fuse/connections/{minor}/waiting"));
        waiting.ok()?.trim().parse().ok()
    });
    MountPoint {
        point: mount.mount_point,
        fs_type: mount.fs_type,
        source: mount.mount_source.unwrap_or_default(),
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
