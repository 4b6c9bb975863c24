//! The file system that a failed call was about, by mountinfo and by what sysfs says of its device.
//! Neither touches the file system.

use std::{fs, io, path::Path};

use super::{
    asked::{AsWhom, Asked, from_proc},
    mounts,
};
use podstuck_confine::helper::Share;
use podstuck_model::{
    file_system::{Counted, FileSystem},
    mountinfo::tells_health,
    mounts::Mount,
    query::ReadFileSystem,
};

impl Asked for ReadFileSystem {
    async fn answer(self, _: Share, _: &AsWhom) -> Option<FileSystem> {
        from_proc(move || of_path(self.pid, self.namespace, &self.path)).await.flatten()
    }
}

/// The file system that a path lies on, by its text, in the namespace with this inode number: as
/// `pid` sees it if it still is in there, else any other process that is. `None` when no process is.
fn of_path(pid: u32, namespace: u32, path: &Path) -> Option<FileSystem> {
    let table = mounts::of_namespace(pid, namespace)?;
    let mount = table.covering(path)?;
    Some(describe(mount, table.source.clone()))
}

fn describe(mount: &Mount, table: String) -> FileSystem {
    let all = mount.super_options.split(',');
    let telling = all.filter(|option| *option != "ro" && tells_health(option));
    let mut options: Vec<String> = telling.map(str::to_owned).collect();
    options.sort();
    // Major number 0 is for file systems without a device.
    let has_device = mount.device.major != 0;
    let place = format!("/sys/dev/block/{}", mount.device);
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
        id: Some(mount.id),
        mount_read_only: mount.is_read_only(),
        read_only: mount.is_super_read_only(),
        errors: errors.collect(),
        point: mount.point.clone(),
        is_whole: mount.root == Path::new("/"),
        fs_type: mount.fs_type.clone(),
        source: mount.source.clone(),
        device_exists: has_device.then(|| exists(&place)).flatten(),
        device: mount.device.to_string(),
        options,
        table,
    }
}

/// Whether a device's link is there; `None` where it could not be looked at.
fn exists(place: &str) -> Option<bool> {
    match fs::symlink_metadata(place) {
        Ok(_) => Some(true),
        // Without sysfs no device has one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = Path::new(place).parent()?;
            fs::read_dir(above).ok()?.next().is_some().then_some(false)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_confine::proc::parse_mounts;

    #[test]
    fn a_name_that_is_no_text_hides_no_file_system() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /\xff rw - tmpfs t rw\n\
            3 1 0:10 / /v ro,noatime - ext4 s ro,seclabel,shutdown,errors=remount-ro\n";
        let table = parse_mounts(7, text);
        let found = describe(table.covering(Path::new("/v/x")).unwrap(), table.source.clone());
        assert_eq!(found.options, ["errors=remount-ro", "shutdown"]);
        assert!(found.read_only && found.mount_read_only && found.device_exists.is_none());
        assert_eq!(found.table, "/proc/7/mountinfo");
    }

    #[test]
    fn the_file_system_of_a_path_is_found() {
        let own = crate::state::namespaces::of_process(std::process::id()).unwrap();
        let found = of_path(u32::MAX >> 1, own, Path::new("/proc/self/status")).unwrap();
        assert_eq!((found.fs_type.as_str(), found.device_exists), ("proc", None));
        assert_eq!(found.point, Path::new("/proc"));
        assert!(!found.read_only && found.errors.is_empty());
        assert_eq!(of_path(1, own, Path::new("/procession")).unwrap().point, Path::new("/"));
        assert_eq!(of_path(1, 1, Path::new("/")), None);
    }
}
