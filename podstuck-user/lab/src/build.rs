//! Creates a pod's files as kubelet and the containers leave them, without mounts.

use std::{ffi::OsStr, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::json;

use super::{
    attribute,
    case::{Case, Driver, Kind, Volume},
    layout::{self, CONTAINER, DRIVER, Pod},
    program,
};

/// Size of a disk, in bytes.
const DISK: u64 = 8 << 20;
/// Path of the protected file in its volume.
const PROTECTED: &str = "store/index/journal.db";

/// Creates the pod's files. The caller creates the entries of a mass deletion.
pub(super) fn pod(pod: &Pod, case: &Case) -> Result<()> {
    let directory = pod.directory();
    file(&directory.join("etc-hosts"), "127.0.0.1\tlocalhost\n")?;
    file(&directory.join("containers").join(CONTAINER).join("1f0c3a7d"), "")?;
    file(&pod.logs().join(CONTAINER).join("0.log"), "1970-01-01T00:00:00Z stdout F hello\n")?;
    case.volumes.iter().try_for_each(|volume| build_volume(pod, volume))
}

fn build_volume(pod: &Pod, volume: &Volume) -> Result<()> {
    if let Some(ready) = pod.ready(volume) {
        file(&ready.join("ready"), "")?;
    }
    let content = pod.content(volume);
    make(&content)?;
    match volume.kind {
        Kind::Files => some_files(&content),
        Kind::Protected(attribute) => {
            some_files(&content)?;
            let victim = content.join(PROTECTED);
            file(&victim, "entry\n")?;
            attribute::set(&victim, attribute)
        }
        Kind::ForeignMount => {
            some_files(&content)?;
            make(&content.join("m"))?;
            let foreign = layout::foreign_data(&pod.root);
            (0..20).try_for_each(|n| file(&foreign.join(format!("keepme-{n}")), "precious\n"))
        }
        Kind::Covered => {
            let foreign = layout::foreign_data(&pod.root);
            make(&content)?;
            file(&foreign.join("keepme"), "precious\n")
        }
        Kind::SubPath => {
            some_files(&content)?;
            make(&content.join("conf"))?;
            make(&pod.sub_path(volume).join("0"))
        }
        Kind::Csi(driver) => csi(pod, volume, driver),
        Kind::Disk => disk_image(&pod.image(volume)),
        Kind::MassFiles | Kind::Memory | Kind::MemoryWithChild | Kind::Mounted => Ok(()),
    }
}

/// A few files such as applications leave behind.
pub(super) fn some_files(directory: &Path) -> Result<()> {
    file(&directory.join("config.yaml"), "answer: 42\n")?;
    for shard in 0..4 {
        for part in 0..3 {
            file(&directory.join(format!("cache/{shard:02x}/part-{part}")), "data\n")?;
        }
    }
    make(&directory.join("tmp/empty"))
}

fn csi(pod: &Pod, volume: &Volume, driver: Driver) -> Result<()> {
    file(&pod.backing(volume).join("rows.dat"), "data\n")?;
    let state = json!({"Volumes": [{
        "VolName": volume.name,
        "VolID": volume.name,
        "VolPath": pod.backing(volume),
        "Published": match driver {
            Driver::Works | Driver::PublishedTwice => Some([pod.content(volume)]),
            _ => None,
        },
    }]});
    file(&layout::driver_state(&pod.root).join("state.json"), &state.to_string())?;
    let data = json!({
        "attachmentID": "csi-0",
        "driverName": DRIVER,
        "nodeName": "laptop",
        "specVolID": volume.name,
        "volumeHandle": volume.name,
        "volumeLifecycleMode": if driver == Driver::Works { "Ephemeral" } else { "Persistent" },
    });
    if driver == Driver::UnmountedEarly {
        file(&pod.content(volume).join("export/rows.dat"), "written on the node's disk\n")?;
    }
    let data = if driver == Driver::Unknown { String::new() } else { data.to_string() };
    file(&pod.volume(volume).join("vol_data.json"), &data)
}

/// An empty ext4 in a file. It has no journal, because it is small and short-lived.
fn disk_image(path: &Path) -> Result<()> {
    file(path, "")?;
    let image = fs::File::options().write(true).open(path);
    let sized = image.and_then(|image| image.set_len(DISK));
    sized.with_context(|| format!("cannot size {}", path.display()))?;
    let options = ["-q", "-F", "-O", "^has_journal"].map(OsStr::new);
    program::run("mkfs.ext4", options.into_iter().chain([path.as_os_str()]))
}

fn file(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        make(parent)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a directory and its parents.
pub(super) fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}
