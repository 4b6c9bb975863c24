//! Where the writable layer of a container lies, by what is mounted.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use crate::identity::uid::is_long_id;

/// The data root and the container for which dockerd has mounted a snapshot here. It does where containerd keeps its
/// layers, as by default from 29 on: `<data root>/rootfs/<snapshotter>/<id>` (moby `daemon/snapshotter/mount.go`).
pub(super) fn mounted_by_docker(point: &Path) -> Option<(&Path, &OsStr)> {
    let rootfs = point.parent()?.parent()?;
    let id = point.file_name()?;
    let is_so = rootfs.ends_with("rootfs") && is_long_id(id.as_encoded_bytes());
    Some((rootfs.parent().filter(|_| is_so)?, id))
}

/// The root of the target that a container's writable layer is, by the options of its mount.
pub(super) fn of_mount(options: &str) -> Option<PathBuf> {
    let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    Some(Path::new(upper).parent()?.to_owned())
}
