//! Answers remembered for each directory, and when they are still believed.

use crate::{
    maps::{DIRECTORIES, Directory, DirectoryKey},
    place::Place,
};

/// How long an answer is believed. A directory renamed above the one remembered is noticed then.
const BELIEVE_NS: u64 = 1_000_000_000;

#[inline(always)]
pub(crate) fn key(place: Place) -> DirectoryKey {
    DirectoryKey { mnt: place.mnt, dentry: place.dentry }
}

/// The answer of up to a second ago, if the dentry still is the same directory of the same name.
#[inline(always)]
pub(crate) fn recall(place: Place, now: u64) -> Option<&'static Directory> {
    let seen = DIRECTORIES.get_ptr(key(place))?;
    // SAFETY: the slot may be recycled meanwhile, which the comparison below notices or which
    // gives the answer of a moment ago; nothing is dereferenced through it.
    let seen = unsafe { &*seen };
    if now.wrapping_sub(seen.born_ns) > BELIEVE_NS {
        return None;
    }
    let same = place.parent()? == seen.parent
        && place.hash_len()? == seen.hash_len
        && place.inode()? == seen.inode;
    same.then_some(seen)
}

/// Whether the removal of an object in this directory failed, however long ago: the next attempt may
/// be minutes away. The inode tells the directory from another in a recycled dentry.
#[inline(always)]
pub(crate) fn failed_before(place: Place) -> bool {
    let Some(seen) = DIRECTORIES.get_ptr(key(place)) else { return false };
    // SAFETY: as in `recall`.
    let seen = unsafe { &*seen };
    seen.has_failed != 0 && place.inode() == Some(seen.inode)
}

/// Notes that the removal of an object in this directory failed.
#[inline(always)]
pub(crate) fn mark_failed(place: Place) {
    if let Some(seen) = DIRECTORIES.get_ptr_mut(key(place)) {
        // SAFETY: an aligned store of one word into a map value; a race loses only the mark.
        unsafe { (*seen).has_failed = 1 };
    }
}
