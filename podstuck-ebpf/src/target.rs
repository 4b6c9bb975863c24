//! Which target a directory belongs to: the trail from the root of the mount namespace down to it,
//! remembered for each directory.

use podstuck_common::trail::Trail;

use crate::{memory, scratch::scratch, walk};

/// Finds the trail of the call's directory, from memory or by walking up to the nearest ancestor
/// remembered.
#[inline(always)]
pub(crate) fn find(n: u32) {
    let Some(room) = scratch(n) else { return };
    let place = room.call.place;
    let Some(dentry) = place.dentry() else {
        room.call.trail = Trail::default();
        return;
    };
    if !memory::is_last(room, place, &dentry) {
        match memory::recall(place, &dentry, room.call.now) {
            Some(seen) => {
                room.directory = *seen;
                memory::keep(room, place);
            }
            None => {
                room.call.fresh = true;
                learn(n);
            }
        }
    }
    let Some(room) = scratch(n) else { return };
    room.call.trail = room.directory.trail;
    room.call.has_failed = room.directory.has_failed != 0;
    room.call.mount_depth = room.call.trail.mount_depth;
    // The directory may be a target's root; the object in it is not.
    room.call.trail.at_root = 0;
}

/// Reads the trail of the call's directory anew. See [`scratch`] for the signature.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn learn(n: u32) -> u32 {
    walk::climb(n);
    walk::descend(n);
    let Some(room) = scratch(n) else { return 0 };
    let place = room.call.place;
    let Some(dentry) = place.dentry() else { return 0 };
    room.directory.parent = dentry.parent;
    room.directory.hash_len = dentry.hash_len;
    room.directory.inode = dentry.inode;
    room.directory.has_failed = u64::from(memory::failed_before(place, &dentry));
    memory::share(room, place);
    memory::keep(room, place);
    0
}
