//! Directories that are proven to hold targets, and the host's root directory: by the object itself on the
//! way up, and by a path in a view that user space has proven where a call says more than a name.

use aya_ebpf::{
    bindings::BPF_ANY,
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use podstuck_common::{
    config::NO_OFFSET,
    root::{FILTER_WORDS, HOST_VIEW, ROOTS, Root, ViewKey, filter_bit},
    trail::{Trail, origin},
};

use super::{
    globals::offsets,
    kernel::{field, task},
    kernel_path::Dentry,
    process,
};

/// What they are. Written by user space.
#[btf_map]
static ROOT_TABLE: Array<Root, { ROOTS }> = Array::new();

/// A directory that was shown. It is not kept open, so another may have the address of its inode some day:
/// number and file system tell.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown {
    ino: u64,
    superblock: u64,
    index: u64,
}

/// Directories that were shown, by the address of their inode.
#[btf_map]
static SHOWN: HashMap<u64, Shown, 1024> = HashMap::new();

/// Paths of such directories. Written by user space.
#[btf_map]
static VIEWS: HashMap<ViewKey, u32, 8192> = HashMap::new();

/// A bit for each of these paths. Written by user space.
#[btf_map]
static VIEW_FILTER: Array<u64, { FILTER_WORDS as usize }> = Array::new();

/// Mount namespaces that user space has read. Written by user space.
#[btf_map]
static KNOWN_VIEWS: HashMap<u32, u8, 4096> = HashMap::new();

#[inline(always)]
fn root(index: u32) -> Option<&'static Root> {
    let root = ROOT_TABLE.get(index)?;
    (root.flags != 0).then_some(root)
}

/// Takes note of the directory behind a descriptor. One that is known by another index keeps it: what this one
/// stands for may not be written yet.
#[inline(always)]
pub(crate) fn show(fd: i32, index: u32) -> Option<()> {
    let dentry = process::descriptor(fd)?.dentry()?;
    if at(&dentry).is_some() {
        return None;
    }
    let (ino, superblock) = identity(dentry.inode)?;
    let shown = Shown { ino, superblock, index: u64::from(index) };
    SHOWN.insert(&dentry.inode, &shown, u64::from(BPF_ANY)).ok()
}

#[inline(always)]
fn identity(inode: u64) -> Option<(u64, u64)> {
    let o = offsets();
    Some((field(inode, o.inode_ino)?, field(inode, o.inode_sb)?))
}

/// What is known of a directory.
#[inline(always)]
pub(crate) fn at(dentry: &Dentry) -> Option<&'static Root> {
    let shown = SHOWN.get_ptr(&dentry.inode)?;
    // SAFETY: a map value; user space removes one where another directory gets its index, and one that is
    // shown again is written as it was. Its number and file system tell.
    let shown = unsafe { *shown };
    if identity(dentry.inode)? != (shown.ino, shown.superblock) {
        return None;
    }
    root(shown.index as u32)
}

/// Looks whether the component just taken from an argument is such a directory.
#[inline(always)]
pub(crate) fn enter(trail: &mut Trail) {
    let (word, bit) = filter_bit(trail.path);
    if trail.cut != 0 || VIEW_FILTER.get(word).is_none_or(|bits| *bits & bit == 0) {
        return;
    }
    let Some(view) = view(trail) else { return };
    let key = ViewKey { path: trail.path, view, reserved: 0 };
    let Some(index) = VIEWS.get_ptr(&key) else { return };
    // SAFETY: an aligned word of a map value.
    if let Some(root) = root(unsafe { *index }) {
        trail.enter(root);
    }
}

/// The view in which the path is to be understood: the caller's mount namespace. One that user space has not
/// read yet is taken for the host's if the path comes from the host's root directory and the
/// namespace belongs to the first user namespace: in any other, an unprivileged process may have mounted it.
#[inline(always)]
fn view(trail: &Trail) -> Option<u32> {
    let o = offsets();
    let namespaces: u64 = field(task(), o.task_nsproxy)?;
    let mounts: u64 = field(namespaces, o.nsproxy_mnt_ns)?;
    let number: u32 = field(mounts, o.mnt_ns_inum)?;
    if KNOWN_VIEWS.get_ptr(&number).is_some() {
        return Some(number);
    }
    if trail.origin & origin::HOST == 0 || o.mnt_ns_owner == NO_OFFSET {
        return None;
    }
    let owner: u64 = field(mounts, o.mnt_ns_owner)?;
    let level: i32 = field(owner, o.user_ns_level)?;
    (level == 0).then_some(HOST_VIEW)
}
