//! Mount tables of namespaces that no process is in. They are read from within: this thread enters
//! the namespace and reads its own table. Only in the helper process, which has one thread and ends
//! afterwards.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    os::{fd::AsFd, linux::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::sched::{CloneFlags, setns};
use rustix::fs::{FileType, Mode, OFlags, StatxFlags, open, openat};

use super::{descriptors::Descriptor, listed};
use crate::state::{
    namespaces,
    seen_by::{Place, Root, file_id, shown},
};
use podstuck_confine::proc;
use podstuck_model::mounts::{Mounts, NodeMounts};

/// Adds their tables; how many namespaces could not be entered (that takes `CAP_SYS_ADMIN`).
pub(super) fn add_tables(node: &mut NodeMounts, descriptors: &[Descriptor]) -> usize {
    // All files are opened before the first namespace is entered: they are found from here only.
    let mut files: BTreeMap<u32, (Option<File>, String)> = pins(node, descriptors)
        .into_iter()
        .map(|(number, pin)| (number, (open_pin(&pin, number), shown(&pin).display().to_string())))
        .collect();
    for file in listed::mount_namespaces() {
        let number = file.metadata().ok().and_then(|seen| u32::try_from(seen.st_ino()).ok());
        if let Some(number) = number.filter(|number| !node.tables.contains_key(number)) {
            files.entry(number).or_insert_with(|| (Some(file), "listns(2)".into()));
        }
    }
    if files.is_empty() {
        return 0;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The other namespace may have no `/proc`, or another one.
    let Ok(proc) = open("/proc", flags, Mode::empty()) else { return files.len() };
    let Ok(home) = File::open("/proc/self/ns/mnt") else { return files.len() };
    let mut failed = 0;
    for (namespace, (file, by)) in files {
        match file.and_then(|file| read_within(file, proc.as_fd())) {
            Some(text) => {
                let table = proc::parse_mounts(0, &text);
                let source = format!("mountinfo within mnt:[{namespace}], by {by}");
                node.tables.insert(namespace, Arc::new(Mounts { source, ..table }));
            }
            None => failed += 1,
        }
    }
    // What follows looks at paths from here again. If it cannot get back, it finds less.
    let _ = setns(home, CloneFlags::CLONE_NEWNS);
    failed
}

/// The file of a namespace, as a process sees it or as this one does. If it is another file by now, a tenant may have
/// replaced it.
fn open_pin(place: &Place, namespace: u32) -> Option<File> {
    let held = Root::of_place(place).ok()?.open(Path::new(&place.1), OFlags::empty()).ok()?;
    let stat = held.statx(StatxFlags::INO | StatxFlags::TYPE).ok()?;
    let is_file = FileType::from_raw_mode(stat.stx_mode.into()).is_file();
    let is_it = is_file && file_id(&stat).inode == u64::from(namespace);
    is_it.then(|| File::open(held.path()).ok()).flatten()
}

/// Files that keep a namespace without a process.
fn pins(node: &NodeMounts, descriptors: &[Descriptor]) -> BTreeMap<u32, Place> {
    let mounted = namespaces::mounted(node).into_iter();
    let mut pins: BTreeMap<u32, Place> =
        mounted.map(|(namespace, (pid, point))| (namespace, (Some(pid), point.into()))).collect();
    let nsfs = super::descriptors::mount_of_namespaces();
    for open in descriptors.iter().filter(|open| Some(open.mount) == nsfs) {
        let link = PathBuf::from(format!("/proc/{}/fd/{}", open.pid, open.fd));
        let text = std::fs::read_link(&link).unwrap_or_default();
        if let Some(namespace) = namespaces::number(&text)
            && !node.tables.contains_key(&namespace)
        {
            pins.entry(namespace).or_insert((None, link.into()));
        }
    }
    pins
}

fn read_within(namespace: File, proc: impl AsFd) -> Option<Vec<u8>> {
    setns(namespace, CloneFlags::CLONE_NEWNS).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut table = File::from(openat(proc, "self/mountinfo", flags, Mode::empty()).ok()?);
    let mut text = Vec::new();
    table.read_to_end(&mut text).ok()?;
    Some(text)
}
