//! Finds the target of a directory: the trail from the root of the mount namespace down to it, cached for each
//! directory.

use super::{
    directory_cache,
    scratch::Scratch,
    slot::{Slot, global_function},
    walk, words,
};

/// Finds the trail of the call's directory, in the cache or by walking up to the nearest cached ancestor.
#[inline(always)]
pub(crate) fn find(slot: &mut Slot) {
    let scratch = slot.scratch();
    let place = scratch.call.place;
    if !place.read_dentry(&mut scratch.dentry) {
        words::clear(&mut scratch.call.trail);
        return;
    }
    find_read(slot);
}

/// Like [`find`], if the dentry was just read.
#[inline(always)]
pub(crate) fn find_read(slot: &mut Slot) {
    let scratch = slot.scratch();
    let place = scratch.call.place;
    if !place.read_mounted(&mut scratch.mounted) {
        words::clear(&mut scratch.call.trail);
        return;
    }
    if !directory_cache::is_latest(scratch, place) {
        learn(slot);
    }
    let scratch = slot.scratch();
    scratch.call.trail = scratch.directory.trail;
    scratch.call.has_failed = scratch.directory.has_failed != 0;
    scratch.call.mount_depth = scratch.call.trail.mount_depth;
    // The directory may be a target's root; the object in it is not.
    scratch.call.trail.at_root = 0;
}

global_function! {
    /// Takes the answer for the call's directory from the table, or reads its trail again.
    fn learn(slot) -> u32 {
        let scratch = slot.scratch();
        // The slot's answer is invalid until the following steps complete.
        words::clear(&mut scratch.known);
        if recall(scratch) {
            return 0;
        }
        scratch.call.fresh = true;
        walk::climb(slot);
        walk::descend(slot);
        let scratch = slot.scratch();
        let place = scratch.call.place;
        if !place.read_dentry(&mut scratch.dentry)
            || !place.read_mounted(&mut scratch.directory.mounted)
        {
            return 0;
        }
        scratch.directory.parent = scratch.dentry.parent;
        scratch.directory.hash_len = scratch.dentry.hash_len;
        scratch.directory.inode = scratch.dentry.inode;
        scratch.directory.has_failed =
            u64::from(directory_cache::failed_before(place, scratch.dentry.inode));
        directory_cache::insert(scratch, place);
        directory_cache::set_latest(scratch, place);
        0
    }
}

#[inline(always)]
fn recall(scratch: &mut Scratch) -> bool {
    let place = scratch.call.place;
    let Some(cached) = directory_cache::lookup(scratch, place) else { return false };
    cached.copy_to(&mut scratch.directory);
    if !cached.is_valid(scratch) {
        return false;
    }
    directory_cache::set_latest(scratch, place);
    true
}
