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
use crate::{
    model::{
        holder::{Holder, How},
        mountinfo::unescape,
        mounts::{Device, Mounts, NodeMounts},
        object::FileId,
        path::JsonPath,
    },
    state::lies_on::layer_paths,
    state::{
        seen_by::{Root, file_id},
        swap,
    },
};

/// All of them.
pub(super) fn all(node: &NodeMounts, wanted: &Wanted) -> Vec<Holder> {
    // One process that sees each namespace with a mount that matters.
    let viewers: BTreeMap<u32, u32> =
        wanted.relevant.values().map(|found_on| (found_on.namespace, found_on.pid)).collect();
    let mut found = Vec::new();
    for (how, object, source) in named_by_path() {
        let hit = viewers.values().find_map(|pid| look(*pid, &object, wanted));
        found.extend(hit.map(|(hit, file)| Holder {
            file: Some(file),
            ..people::kernel(how, hit, JsonPath(object), source)
        }));
    }
    for (namespace, pid) in viewers {
        if let Some(table) = node.tables.get(&namespace) {
            found.extend(layers(table, pid, wanted));
        }
    }
    found
}

/// What a path leads to in the view of a process, if that matters.
fn look(pid: u32, path: &Path, wanted: &Wanted) -> Option<(Hit, FileId)> {
    if !path.is_absolute() {
        return None;
    }
    let held = Root::of(pid).ok()?.open(path, OFlags::NOFOLLOW).ok()?;
    let seen = held.statx(StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
    let device = Device { major: seen.stx_dev_major, minor: seen.stx_dev_minor };
    let hit = wanted.hit(mount_of(&seen)?, Some(device), Some(seen.stx_ino))?;
    Some((hit, file_id(&seen)))
}

/// Swap files, files behind loop devices, exports.
fn named_by_path() -> Vec<(How, PathBuf, String)> {
    let mut found = Vec::new();
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    found.extend(swap::files(&swaps).map(|path| (How::Swap, path, "/proc/swaps".into())));
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
fn layers(table: &Mounts, pid: u32, wanted: &Wanted) -> Vec<Holder> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for overlay in table.all.iter().filter(|mount| mount.fs_type == "overlay") {
        for layer in layer_paths(&overlay.super_options) {
            // By its text first, so that of thousands of layers few are looked up.
            let likely = table.covering(&layer).is_some_and(|m| m.device == wanted.device);
            if !likely || !known.insert(layer.clone()) {
                continue;
            }
            let Some((hit, _)) = look(pid, &layer, wanted) else { continue };
            let hit = Hit { explains: hit.explains.map(|_| false), ..hit };
            let source = format!("{}, mount {}", table.source, overlay.id);
            found.push(people::kernel(How::OverlayLayer, hit, JsonPath(layer), source));
        }
    }
    found
}
