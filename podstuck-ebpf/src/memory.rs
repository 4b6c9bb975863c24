//! Answers remembered for each directory, and when they are still believed.
//!
//! The room of a program keeps the last answer: a storm stays in one directory for a while, and a
//! lookup in the shared table costs more than comparing five words.

use aya_ebpf::bindings::BPF_ANY;

use crate::{
    atomic,
    maps::{DIRECTORIES, Directory, DirectoryKey, FAILURES},
    place::{Dentry, Place},
    scratch::Scratch,
};

/// How long an answer is believed. A directory renamed above the one remembered is noticed then.
const BELIEVE_NS: u64 = 1_000_000_000;

#[inline(always)]
fn key(place: Place) -> DirectoryKey {
    DirectoryKey { mnt: place.mnt, dentry: place.dentry }
}

/// Whether an answer is young, and the dentry still the same directory of the same name.
#[inline(always)]
fn holds(answer: &Directory, dentry: &Dentry, now: u64) -> bool {
    now.wrapping_sub(answer.born_ns) <= BELIEVE_NS
        && answer.parent == dentry.parent
        && answer.hash_len == dentry.hash_len
        && answer.inode == dentry.inode
}

/// The answer of up to a second ago.
#[inline(always)]
pub(crate) fn recall(place: Place, dentry: &Dentry, now: u64) -> Option<&'static Directory> {
    let seen = DIRECTORIES.get_ptr(key(place))?;
    // SAFETY: the slot may be recycled meanwhile, which the comparison below notices or which
    // gives the answer of a moment ago; nothing is dereferenced through it.
    let seen = unsafe { &*seen };
    holds(seen, dentry, now).then_some(seen)
}

/// How many directories were marked by [`mark_failed`] so far.
#[inline(always)]
fn failures() -> u64 {
    FAILURES.get(0).copied().unwrap_or(0)
}

/// Whether the room's own answer is for this directory.
#[inline(always)]
pub(crate) fn is_last(room: &Scratch, place: Place, dentry: &Dentry) -> bool {
    room.known.mnt == place.mnt
        && room.known.dentry == place.dentry
        && room.failures == failures()
        && holds(&room.directory, dentry, room.call.now)
}

/// The room's own answer is for this directory now.
#[inline(always)]
pub(crate) fn keep(room: &mut Scratch, place: Place) {
    room.known = key(place);
    room.failures = failures();
}

/// Remembers the room's answer for all.
#[inline(always)]
pub(crate) fn share(room: &Scratch, place: Place) {
    // The table is LRU: an insert fails only under contention, and then the next call walks again.
    let _ = DIRECTORIES.insert(key(place), &room.directory, u64::from(BPF_ANY));
}

/// Whether the removal of an object in this directory failed, however long ago: the next attempt may
/// be minutes away. The inode tells the directory from another in a recycled dentry.
#[inline(always)]
pub(crate) fn failed_before(place: Place, dentry: &Dentry) -> bool {
    let Some(seen) = DIRECTORIES.get_ptr(key(place)) else { return false };
    // SAFETY: as in `recall`.
    let seen = unsafe { &*seen };
    seen.has_failed != 0 && seen.inode == dentry.inode
}

/// Notes that the removal of an object in this directory failed.
#[inline(always)]
pub(crate) fn mark_failed(place: Place) {
    let Some(seen) = DIRECTORIES.get_ptr_mut(key(place)) else { return };
    // SAFETY: an aligned word of a map value; a race marks twice.
    let mark = unsafe { &mut (*seen).has_failed };
    if *mark == 0 {
        *mark = 1;
        if let Some(count) = FAILURES.get_ptr_mut(0) {
            // SAFETY: an aligned word of map memory.
            unsafe { atomic::add(count, 1) };
        }
    }
}
