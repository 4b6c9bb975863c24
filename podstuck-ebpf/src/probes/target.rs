//! Which target a directory belongs to: the trail from the root of the mount namespace down to it,
//! cached for each directory.

use podstuck_common::trail::Trail;

use super::{
    directory_cache,
    kernel_path::{Dentry, KernelPath},
    scratch::Scratch,
    slot::{Slot, global_function},
    walk,
};

/// Finds the trail of the call's directory, in the cache or by walking up to the nearest ancestor that is
/// there.
#[inline(always)]
pub(crate) fn find(slot: &mut Slot) {
    let Some(scratch) = slot.scratch() else { return };
    let place = scratch.call.place;
    let Some(dentry) = place.dentry() else {
        scratch.call.trail = Trail::default();
        return;
    };
    if !place.read_mounted(&mut scratch.mounted) {
        scratch.call.trail = Trail::default();
        return;
    }
    if !directory_cache::is_latest(scratch, place, &dentry) {
        // What follows may end half-way.
        scratch.known = KernelPath::NONE;
        if !recall(scratch, place, &dentry) {
            scratch.call.fresh = true;
            learn(slot);
        }
    }
    let Some(scratch) = slot.scratch() else { return };
    scratch.call.trail = scratch.directory.trail;
    scratch.call.has_failed = scratch.directory.has_failed != 0;
    scratch.call.mount_depth = scratch.call.trail.mount_depth;
    // The directory may be a target's root; the object in it is not.
    scratch.call.trail.at_root = 0;
}

/// Takes the answer for the call's directory from the table, if it is there.
#[inline(always)]
fn recall(scratch: &mut Scratch, place: KernelPath, dentry: &Dentry) -> bool {
    let now = scratch.call.now;
    let Some(cached) = directory_cache::lookup(place, dentry, &scratch.mounted, now) else {
        return false;
    };
    cached.copy_to(&mut scratch.directory);
    if !cached.is_valid(dentry, &scratch.mounted, now) {
        return false;
    }
    directory_cache::set_latest(scratch, place);
    true
}

global_function! {
    /// Reads the trail of the call's directory anew.
    fn learn(slot) -> u32 {
        walk::climb(slot);
        walk::descend(slot);
        let Some(scratch) = slot.scratch() else { return 0 };
        let place = scratch.call.place;
        let Some(dentry) = place.dentry() else { return 0 };
        if !place.read_mounted(&mut scratch.directory.mounted) {
            return 0;
        }
        scratch.directory.parent = dentry.parent;
        scratch.directory.hash_len = dentry.hash_len;
        scratch.directory.inode = dentry.inode;
        scratch.directory.has_failed =
            u64::from(directory_cache::failed_before(place, &dentry));
        directory_cache::insert(scratch, place);
        directory_cache::set_latest(scratch, place);
        0
    }
}
