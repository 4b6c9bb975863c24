//! What a file system without a block device of its own depends on: an overlay on the directories of others, btrfs on
//! several devices. Read from mount tables and sysfs, which ask no disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use podstuck_model::{
    mountinfo::unescape,
    mounts::{Device, Mount, Mounts},
};

/// Limit of layers read of an overlay: the kernel accepts no more.
const LAYERS: usize = 500;
/// Limit of devices read of a btrfs.
const DEVICES: usize = 64;

/// The directories in the options of an overlay. Relative ones, which Docker uses, cannot be resolved.
pub fn layer_paths(options: &str) -> Vec<PathBuf> {
    let values = options.split(',').filter_map(|option| option.split_once('='));
    let layers = values.filter(|(key, _)| {
        matches!(key.trim_end_matches('+'), "lowerdir" | "upperdir" | "datadir")
    });
    let paths = layers.flat_map(|(_, value)| value.split(':')).filter(|path| path.starts_with('/'));
    paths.map(|path| unescape(path.as_bytes())).collect()
}

/// The mounts that an overlay's layers are on, each once, by the table of the process that mounted it.
pub fn below<'a>(overlay: &Mount, table: &'a Mounts) -> Vec<&'a Mount> {
    if overlay.fs_type != "overlay" {
        return Vec::new();
    }
    let mut found: Vec<&Mount> = Vec::new();
    for layer in layer_paths(&overlay.super_options).iter().take(LAYERS) {
        if let Some(mount) = table.covering(layer)
            && !found.iter().any(|known| known.id == mount.id)
        {
            found.push(mount);
        }
    }
    found
}

/// The block devices that a mount needs: its own, or those of its btrfs. The device number of a btrfs mount is made
/// up by the kernel; the mount's source names one of the devices.
pub fn devices(mount: &Mount) -> Vec<Device> {
    if mount.device.major != 0 {
        return vec![mount.device];
    }
    let source = Path::new(&mount.source).file_name().and_then(|name| name.to_str());
    let Some(name) = source.filter(|_| mount.fs_type == "btrfs") else { return Vec::new() };
    let name = of_mapper(name).unwrap_or_else(|| name.to_owned());
    let all = entries("/sys/fs/btrfs").into_iter().map(|own| entries(own.join("devices")));
    let its_own = all.into_iter().find(|devices| devices.iter().any(|it| it.ends_with(&name)));
    let devices = its_own.unwrap_or_else(|| vec![PathBuf::from(name)]);
    devices.iter().filter_map(|device| number(device)).take(DEVICES).collect()
}

/// The device number, by the last component of a device's path.
fn number(device: &Path) -> Option<Device> {
    let file = Path::new("/sys/class/block").join(device.file_name()?).join("dev");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The kernel's name of a device-mapper device.
fn of_mapper(name: &str) -> Option<String> {
    let is_it = |device: &PathBuf| {
        fs::read_to_string(device.join("dm/name")).is_ok_and(|own| own.trim_end() == name)
    };
    let device = entries("/sys/block").into_iter().find(is_it)?;
    Some(device.file_name()?.to_str()?.to_owned())
}

fn entries(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_mounts;

    #[test]
    fn fuzz_overlay_options() {
        podstuck_fuzz::fuzz("overlay_options", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = layer_paths(&text);
        });
    }

    #[test]
    fn layers_are_read_from_the_options() {
        let options = "rw,relatime,lowerdir=/a:/b,upperdir=/c,workdir=/d,lowerdir+=/e,index=off";
        assert_eq!(layer_paths(options), ["/a", "/b", "/c", "/e"].map(PathBuf::from));
        assert!(layer_paths("rw,lowerdir=l/ABC:l/DEF").is_empty());
    }

    #[test]
    fn an_overlay_lies_on_the_mounts_of_its_layers() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /n rw - nfs4 s:/x rw\n\
            3 1 0:8 / /o rw - overlay o rw,lowerdir=/n/a:/n/b,upperdir=/u,workdir=/w\n";
        let table = parse_mounts(7, text);
        let ids =
            |at: usize| below(&table.all[at], &table).iter().map(|m| m.id).collect::<Vec<_>>();
        assert_eq!((ids(2), ids(0)), (vec![2, 1], vec![]));
    }

    #[test]
    fn a_block_device_is_its_own() {
        let [mount] =
            parse_mounts(7, b"1 0 8:1 / / rw - btrfs /dev/none-such rw\n").all.try_into().unwrap();
        assert_eq!(devices(&mount), [mount.device]);
        let made_up = Mount { device: Device { major: 0, minor: 33 }, ..mount };
        assert!(devices(&made_up).is_empty(), "there is no such device");
        // An existing device is found by its name.
        let Some(disk) = entries("/sys/class/block").pop() else {
            return podstuck_testing::skip("no block device");
        };
        let named = Path::new("/dev").join(disk.file_name().unwrap());
        let named = Mount { source: named.to_str().unwrap().into(), ..made_up };
        assert_eq!(devices(&named), [number(&disk).unwrap()]);
    }
}
