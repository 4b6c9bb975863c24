//! What the kernel itself holds: swap files, files behind loop devices, NFS exports, layers of
//! overlays. It names them by path only, as their own mount namespace sees it. So each path is looked
//! up in the namespaces that have a mount which matters, and it counts when it leads to such a
//! mount. That may wait for a dead file system: only in the helper process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{OFlags, StatxFlags};

use super::{
    people,
    process::mount_of,
    relation::{Hit, Wanted},
};
use crate::state::{
    seen_by::{Root, file_id},
    swap,
};
use podstuck_confine::lies_on::layer_paths;
use podstuck_model::{
    holder::{Holder, How},
    mountinfo::unescape,
    mounts::{Device, Mount, Mounts, NodeMounts},
    object::FileId,
    path::JsonPath,
};

/// All of them, each with which of what is wanted it holds.
pub(super) fn all(node: &NodeMounts, all: &[(usize, Wanted)]) -> Vec<(usize, Holder)> {
    // One process that sees each namespace with a mount that matters.
    let relevant = all.iter().flat_map(|(_, wanted)| wanted.relevant.values());
    let viewers: BTreeMap<u32, u32> =
        relevant.map(|found_on| (found_on.namespace, found_on.pid)).collect();
    let mut found = Vec::new();
    for (how, object, source) in named_by_path() {
        let mut known = BTreeSet::new();
        let look = |pid: &u32| look(*pid, &object).or_else(|| look(*pid, undeleted(&object)?));
        for seen in viewers.values().filter_map(look) {
            for (at, hit) in seen.hits(all).filter(|(at, _)| known.insert(*at)) {
                let object = JsonPath(object.clone());
                let holder = people::kernel(how, hit, object, source.clone());
                found.push((at, Holder { file: Some(seen.file), ..holder }));
            }
        }
    }
    for (namespace, pid) in viewers {
        if let Some(table) = node.tables.get(&namespace) {
            found.extend(layers(table, pid, all));
        }
    }
    found
}

/// What a path leads to in the view of a process.
struct Seen {
    mount: u32,
    device: Device,
    file: FileId,
}

impl Seen {
    /// What it means for those of what is wanted to which it matters.
    fn hits<'a>(
        &'a self,
        all: &'a [(usize, Wanted)],
    ) -> impl Iterator<Item = (usize, Hit)> + use<'a> {
        let hit =
            |wanted: &Wanted| wanted.hit(self.mount, Some(self.device), Some(self.file.inode));
        all.iter().filter_map(move |(at, wanted)| Some((*at, hit(wanted)?)))
    }
}

fn look(pid: u32, path: &Path) -> Option<Seen> {
    if !path.is_absolute() {
        return None;
    }
    let held = Root::of(pid).ok()?.open(path, OFlags::NOFOLLOW).ok()?;
    let seen = held.statx(StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
    let device = Device { major: seen.stx_dev_major, minor: seen.stx_dev_minor };
    Some(Seen { mount: mount_of(&seen)?, device, file: file_id(&seen) })
}

/// The path of a file that the kernel marks as deleted. A mount may still lie there, as the one of a device that went away.
fn undeleted(path: &Path) -> Option<&Path> {
    let path = path.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    Some(Path::new(std::ffi::OsStr::from_bytes(path)))
}

/// Swap files, files behind loop devices, exports.
fn named_by_path() -> Vec<(How, PathBuf, String)> {
    let mut found = Vec::new();
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    found.extend(swap::files(&swaps).map(|area| (How::Swap, area.path, "/proc/swaps".into())));
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for entry in blocks {
        let source = entry.path().join("loop/backing_file");
        if let Ok(text) = fs::read(&source) {
            let path = text.strip_suffix(b"\n").unwrap_or(&text);
            let path = Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
            found.push((How::Loop, path, source.to_string_lossy().into_owned()));
        }
    }
    let source = "/proc/fs/nfsd/exports";
    let exports = fs::read(source).unwrap_or_default();
    let lines = exports.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"/"));
    found.extend(lines.map(|line| (How::NfsExport, first_field(line), source.into())));
    found
}

fn first_field(line: &[u8]) -> PathBuf {
    unescape(line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default())
}

/// Overlays with a layer on a mount that matters. An overlay has private copies of its layers'
/// mounts (`ovl_get_layers`, fs/overlayfs/super.c): it keeps the file system alive, and no mount busy.
fn layers(table: &Mounts, pid: u32, all: &[(usize, Wanted)]) -> Vec<(usize, Holder)> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for overlay in table.all.iter().filter(|mount| mount.fs_type == "overlay") {
        for layer in layer_paths(&overlay.super_options) {
            // By its text first, so that of thousands of layers few are looked up.
            let is_on = |m: &Mount| all.iter().any(|(_, wanted)| wanted.device == m.device);
            let likely = table.covering(&layer).is_some_and(is_on);
            if !likely || !known.insert(layer.clone()) {
                continue;
            }
            let Some(seen) = look(pid, &layer) else { continue };
            for (at, hit) in seen.hits(all) {
                let hit = Hit { explains: hit.explains.map(|_| false), ..hit };
                let source = format!("{}, mount {}", table.source, overlay.id);
                let object = JsonPath(layer.clone());
                found.push((at, people::kernel(How::OverlayLayer, hit, object, source)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_files_path_is_read_without_its_mark() {
        let of = |path: &'static str| undeleted(Path::new(path)).and_then(Path::to_str);
        assert_eq!(of("/k/map of it (deleted)"), Some("/k/map of it"));
        assert_eq!(of("/k/map"), None);
    }
}
