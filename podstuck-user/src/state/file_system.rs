//! The file system that a failed call was about, by mountinfo and by what sysfs says of its device.
//! Neither touches the file system.

use std::{fs, os::linux::fs::MetadataExt, path::PathBuf};

use procfs::process::{MountInfo, Process, all_processes};

/// A mount, its file system, and the device below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Where it is mounted.
    pub point: PathBuf,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its value.
    pub value: String,
    /// The file.
    pub file: String,
}

/// The mount of this id, as a namespace with this inode number shows it: by `pid` if it still is in
/// there, else by any other process that is.
pub fn of_mount(pid: u32, namespace: u32, mount_id: u32) -> Option<FileSystem> {
    let own = std::process::id();
    let near = [pid, own].into_iter().filter(|pid| is_in(*pid, namespace));
    let far = all_processes().into_iter().flatten().flatten();
    let far = far.map(|process| process.pid.unsigned_abs()).filter(|pid| is_in(*pid, namespace));
    near.chain(far).find_map(|pid| {
        let table = Process::new(i32::try_from(pid).ok()?).ok()?.mountinfo().ok()?;
        let mut mounts = table.into_iter();
        let mount = mounts.find(|mount| mount.mnt_id.unsigned_abs() == mount_id);
        Some(mount.map(|mount| describe(mount, format!("/proc/{pid}/mountinfo"))))
    })?
}

fn is_in(pid: u32, namespace: u32) -> bool {
    // `stat` of a namespace link is answered by nsfs; it reaches no other file system.
    fs::metadata(format!("/proc/{pid}/ns/mnt")).is_ok_and(|m| m.st_ino() == u64::from(namespace))
}

fn describe(mount: MountInfo, table: String) -> FileSystem {
    let telling = |(name, value): (&String, &Option<String>)| match (name.as_str(), value) {
        ("errors", Some(value)) => Some(format!("errors={value}")),
        ("shutdown" | "emergency_ro" | "norecovery", _) => Some(name.clone()),
        _ => None,
    };
    let mut options: Vec<String> = mount.super_options.iter().filter_map(telling).collect();
    options.sort();
    // Major number 0 is for file systems without a device.
    let has_device = !mount.majmin.starts_with("0:");
    let place = format!("/sys/dev/block/{}", mount.majmin);
    let name = fs::read_link(&place).ok();
    let name = name.as_ref().and_then(|link| link.file_name()?.to_str()).unwrap_or_default();
    let counters = [
        format!("/sys/fs/{}/{name}/errors_count", mount.fs_type),
        format!("/sys/fs/{}/{name}/shutdown", mount.fs_type),
        format!("{place}/device/ioerr_cnt"),
    ];
    let errors =
        counters.into_iter().filter(|_| has_device && !name.is_empty()).filter_map(|file| {
            let value = fs::read_to_string(&file).ok()?.trim().to_owned();
            (value != "0" && value != "0x0").then_some(Counted { value, file })
        });
    FileSystem {
        mount_read_only: mount.mount_options.contains_key("ro"),
        read_only: mount.super_options.contains_key("ro"),
        errors: errors.collect(),
        point: mount.mount_point,
        fs_type: mount.fs_type,
        source: mount.mount_source.unwrap_or_default(),
        device_exists: has_device.then(|| fs::symlink_metadata(&place).is_ok()),
        device: mount.majmin,
        options,
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_an_id_is_found() {
        let own = fs::metadata("/proc/self/ns/mnt").unwrap().st_ino() as u32;
        let mounts = Process::myself().unwrap().mountinfo().unwrap();
        let proc = mounts.into_iter().find(|m| m.mount_point.ends_with("proc")).unwrap();
        let found = of_mount(u32::MAX >> 1, own, proc.mnt_id.unsigned_abs()).unwrap();
        assert_eq!((found.fs_type.as_str(), found.device_exists), ("proc", None));
        assert!(!found.read_only && found.errors.is_empty());
        assert_eq!(of_mount(1, own, u32::MAX >> 1), None);
        assert_eq!(of_mount(1, 1, 1), None);
    }
}
