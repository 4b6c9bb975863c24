//! Cached data about directories, and its validity.
//!
//! Each slot keeps its latest answer: a bulk deletion stays in one directory for a while, and a lookup in the shared
//! table costs more than the comparison of a few words.

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::trail::Trail;

use super::{
    atomic, failures,
    kernel_path::KernelPath,
    maps::{DIRECTORIES, Directory},
    scratch::Scratch,
    words,
};

/// Lifetime of an answer. It bounds how long the rename of a parent directory goes unnoticed.
const VALID_NS: u64 = 1_000_000_000;

/// An answer in the shared table. Another CPU may recycle it for another directory at any time, so there is no
/// reference to it: it is copied and validated again afterwards. Its identifying fields are written first.
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

    /// Whether the answer is recent and is for the directory in question: the dentry is still the same directory with
    /// the same name, and its mount is still at the same place.
    #[inline(always)]
    pub(crate) fn is_valid(self, scratch: &Scratch) -> bool {
        let Scratch { dentry, mounted, .. } = scratch;
        let now = scratch.call.now;
        // Read from memory each time, and after the copy: see above.
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

/// The valid answer for the directory in question at this place.
#[inline(always)]
pub(crate) fn lookup(scratch: &Scratch, place: KernelPath) -> Option<Cached> {
    let cached = Cached(DIRECTORIES.get_ptr(place)?);
    cached.is_valid(scratch).then_some(cached)
}

/// Whether the slot's own answer is for this directory and valid.
#[inline(always)]
pub(crate) fn is_latest(scratch: &Scratch, place: KernelPath) -> bool {
    scratch.known.mnt == place.mnt
        && scratch.known.dentry == place.dentry
        && scratch.failures == failures::so_far(failures::MARKED)
        && Cached(&raw const scratch.directory).is_valid(scratch)
}

/// Marks the slot's own answer as being for this directory.
#[inline(always)]
pub(crate) fn set_latest(scratch: &mut Scratch, place: KernelPath) {
    scratch.known = place;
    scratch.failures = failures::so_far(failures::MARKED);
}

/// Inserts the slot's own answer into the table.
#[inline(always)]
pub(crate) fn insert(scratch: &Scratch, place: KernelPath) {
    // The table is LRU: an insertion fails only under contention, and the next call walks again.
    let _ = DIRECTORIES.insert(place, &scratch.directory, u64::from(BPF_ANY));
}

/// Whether the removal of an object in this directory failed, at any time: the next attempt may be minutes later. The
/// inode detects a recycled dentry.
#[inline(always)]
pub(crate) fn failed_before(place: KernelPath, inode: u64) -> bool {
    let Some(cached) = DIRECTORIES.get_ptr(place) else { return false };
    // SAFETY: as in `Cached`.
    unsafe { (*cached).has_failed != 0 && (*cached).inode == inode }
}

/// Marks that the removal of an object in this directory failed. If the entry is recycled concurrently, another
/// directory gets the mark; the only effect is that calls in it are examined more closely.
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

/// Counts a failed removal whose directory is unknown: only the start of its path is known.
#[inline(always)]
pub(crate) fn mark_failed_elsewhere() {
    failures::count(failures::ELSEWHERE);
}

/// Whether there was such a failure.
#[inline(always)]
pub(crate) fn has_failed_elsewhere() -> bool {
    failures::so_far(failures::ELSEWHERE) != 0
}
