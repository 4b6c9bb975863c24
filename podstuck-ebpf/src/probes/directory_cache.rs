//! What was found out about directories, and for how long it is valid.
//!
//! A slot keeps the latest answer: a bulk delete stays in one directory for a while, and a lookup in the
//! shared table costs more than comparing a few words.

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::trail::Trail;

use super::{
    atomic, failures,
    kernel_path::KernelPath,
    maps::{DIRECTORIES, Directory},
    scratch::Scratch,
    words,
};

/// How long an answer is valid. A directory renamed above the one in the table is noticed then.
const VALID_NS: u64 = 1_000_000_000;

/// An answer in the table. It may be recycled meanwhile for another directory, by another CPU, so there is
/// no reference to it: it is copied, and checked again afterwards. What it says of itself is written first.
#[derive(Clone, Copy)]
pub(crate) struct Cached(*const Directory);

impl Cached {
    #[inline(always)]
    pub(crate) fn trail_to(self, trail: &mut Trail) {
        // SAFETY: an aligned part of a map value, which programs may read for as long as they run.
        unsafe { words::copy(trail, &raw const (*self.0).trail) };
    }

    #[inline(always)]
    pub(crate) fn born_ns(self) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.0).born_ns }
    }

    #[inline(always)]
    pub(crate) fn copy_to(self, answer: &mut Directory) {
        // SAFETY: as above.
        unsafe { words::copy(answer, self.0) };
    }

    /// Whether the answer is young, and is that for the directory in question: the dentry still the same
    /// directory of the same name, and its mount still in the same place.
    #[inline(always)]
    pub(crate) fn is_valid(self, scratch: &Scratch) -> bool {
        let Scratch { dentry, mounted, .. } = scratch;
        let now = scratch.call.now;
        // Each time from memory, and after what was copied before: see above.
        atomic::compiler_barrier();
        // SAFETY: aligned words of a map value.
        unsafe {
            now.wrapping_sub((&raw const (*self.0).born_ns).read_volatile()) <= VALID_NS
                && (&raw const (*self.0).parent).read_volatile() == dentry.parent
                && (&raw const (*self.0).hash_len).read_volatile() == dentry.hash_len
                && (&raw const (*self.0).inode).read_volatile() == dentry.inode
                && (&raw const (*self.0).mounted.parent).read_volatile() == mounted.parent
                && (&raw const (*self.0).mounted.mountpoint).read_volatile() == mounted.mountpoint
        }
    }
}

/// The valid answer for the directory in question, which is at this place.
#[inline(always)]
pub(crate) fn lookup(scratch: &Scratch, place: KernelPath) -> Option<Cached> {
    let cached = Cached(DIRECTORIES.get_ptr(place)?);
    cached.is_valid(scratch).then_some(cached)
}

/// Whether the slot's own answer is for this directory, and valid.
#[inline(always)]
pub(crate) fn is_latest(scratch: &Scratch, place: KernelPath) -> bool {
    scratch.known.mnt == place.mnt
        && scratch.known.dentry == place.dentry
        && scratch.failures == failures::so_far(failures::MARKED)
        && Cached(&raw const scratch.directory).is_valid(scratch)
}

/// The slot's own answer is for this directory now.
#[inline(always)]
pub(crate) fn set_latest(scratch: &mut Scratch, place: KernelPath) {
    scratch.known = place;
    scratch.failures = failures::so_far(failures::MARKED);
}

/// Enters the slot's own answer into the table.
#[inline(always)]
pub(crate) fn insert(scratch: &Scratch, place: KernelPath) {
    // The table is LRU: an insert fails only under contention, and then the next call walks again.
    let _ = DIRECTORIES.insert(place, &scratch.directory, u64::from(BPF_ANY));
}

/// Whether the removal of an object in this directory failed, however long ago: the next attempt may
/// be minutes away. The inode tells the directory from another in a recycled dentry.
#[inline(always)]
pub(crate) fn failed_before(place: KernelPath, inode: u64) -> bool {
    let Some(cached) = DIRECTORIES.get_ptr(place) else { return false };
    // SAFETY: as in `Cached`.
    unsafe { (*cached).has_failed != 0 && (*cached).inode == inode }
}

/// Notes that the removal of an object in this directory failed. Where the entry is recycled just now,
/// another directory has the note: calls in it are looked at more closely, and nothing else.
#[inline(always)]
pub(crate) fn mark_failed(place: KernelPath) {
    let Some(cached) = DIRECTORIES.get_ptr_mut(place) else { return };
    // SAFETY: an aligned word of a map value; a race marks twice.
    unsafe {
        if (*cached).has_failed != 0 {
            return;
        }
        (*cached).has_failed = 1;
    }
    failures::count(failures::MARKED);
}

/// Notes that a removal failed whose directory is not known: only where its path starts.
#[inline(always)]
pub(crate) fn mark_failed_elsewhere() {
    failures::count(failures::ELSEWHERE);
}

/// Whether there was any such.
#[inline(always)]
pub(crate) fn has_failed_elsewhere() -> bool {
    failures::so_far(failures::ELSEWHERE) != 0
}
