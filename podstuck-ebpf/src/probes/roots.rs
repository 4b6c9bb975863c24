//! Directories that are proven to contain targets, and the host's root directory. On the walk up they are recognised
//! by their inode; in an argument of several components, by a path in a view that user space has proven.

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

/// The roots. Written by user space.
#[btf_map]
static ROOT_TABLE: Array<Root, { ROOTS }> = Array::new();

/// A directory that user space has passed. It is not kept open, so another directory may get the address of its inode
/// later; inode number and superblock detect that.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown {
    ino: u64,
    superblock: u64,
    index: u64,
}

/// The passed directories, by the address of their inode.
#[btf_map]
static SHOWN: HashMap<u64, Shown, 1024> = HashMap::new();

/// The paths of these directories. Written by user space.
#[btf_map]
static VIEWS: HashMap<ViewKey, u32, 8192> = HashMap::new();

/// One bit for each of these paths. Written by user space.
#[btf_map]
static VIEW_FILTER: Array<u64, { FILTER_WORDS as usize }> = Array::new();

/// The mount namespaces that user space has read. Written by user space.
#[btf_map]
static KNOWN_VIEWS: HashMap<u32, u8, 4096> = HashMap::new();

#[inline(always)]
fn root(index: u32) -> Option<&'static Root> {
    let root = ROOT_TABLE.get(index)?;
    (root.flags != 0).then_some(root)
}

/// Stores the directory behind a descriptor. If it is already stored under another index, that index stays: the new
/// index's root may not be written yet.
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

/// The root that this directory is, if any.
#[inline(always)]
pub(crate) fn at(dentry: &Dentry) -> Option<&'static Root> {
    let shown = SHOWN.get_ptr(&dentry.inode)?;
    // SAFETY: a map value. User space removes it if another directory gets its index; if it is passed again, it is
    // rewritten unchanged. Inode number and superblock are compared below.
    let shown = unsafe { *shown };
    if identity(dentry.inode)? != (shown.ino, shown.superblock) {
        return None;
    }
    root(shown.index as u32)
}

/// If the last component of an argument is such a directory, enters it.
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

/// The view of a path: the caller's mount namespace. One that user space has not read yet counts as the host's if the
/// path comes from the host's root directory and the namespace belongs to the initial user namespace. In any other
/// user namespace, an unprivileged process may have made the mounts.
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
