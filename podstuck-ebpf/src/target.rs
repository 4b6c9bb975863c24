//! Which target a directory belongs to: the trail from the root of the mount namespace down to it,
//! remembered for each directory.

use core::hint::black_box;

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::trail::{Trail, component_hash};

use crate::{
    maps::{DIRECTORIES, config},
    memory::{failed_before, key, recall},
    place::Up,
    scratch::{Component, WALK_MAX, scratch},
};

/// Finds the trail of the call's directory, from memory or by walking up to the nearest ancestor
/// remembered.
#[inline(always)]
pub(crate) fn find() {
    let Some(room) = scratch() else { return };
    let known = recall(room.call.place, room.call.now);
    match known {
        Some(seen) => {
            room.call.trail = seen.trail;
            room.call.has_failed = seen.has_failed != 0;
        }
        None => {
            learn();
        }
    }
    let Some(room) = scratch() else { return };
    room.call.fresh = known.is_none();
    room.call.mount_depth = room.call.trail.mount_depth;
    // The directory may be a target's root; the object in it is not.
    room.call.trail.at_root = 0;
}

/// Reads the trail of the call's directory anew. See [`scratch`] for the signature.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn learn() -> u32 {
    climb();
    descend();
    let Some(room) = scratch() else { return 0 };
    let place = room.call.place;
    room.directory.parent = place.parent().unwrap_or(0);
    room.directory.hash_len = place.hash_len().unwrap_or(0);
    room.directory.inode = place.inode().unwrap_or(0);
    room.directory.has_failed = u64::from(failed_before(place));
    room.call.has_failed = room.directory.has_failed != 0;
    room.call.trail = room.directory.trail;
    // The table is LRU: an insert fails only under contention, and then the next call walks again.
    let _ = DIRECTORIES.insert(key(place), &room.directory, u64::from(BPF_ANY));
    0
}

/// Collects the components from the directory up to the root, or to an ancestor that is remembered
/// and then starts the trail.
#[inline(always)]
fn climb() {
    let Some(room) = scratch() else { return };
    room.state.place = room.call.place;
    room.state.components = 0;
    room.state.mounted = 0;
    room.directory.trail = Trail::default();
    room.directory.born_ns = room.call.now;
    for step in 0..WALK_MAX as u32 {
        if climb_one(step) == ARRIVED {
            return;
        }
    }
    // Deeper than the walk goes: what the upper part says is unknown, so nothing is claimed.
    let Some(room) = scratch() else { return };
    room.directory.trail.cut = 1;
    room.state.components = 0;
}

/// There is no way further up.
const ARRIVED: u32 = 1;
const GO_ON: u32 = 0;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn climb_one(step: u32) -> u32 {
    let Some(scratch) = scratch() else { return ARRIVED };
    let place = scratch.state.place;
    if step != 0
        && let Some(known) = recall(place, scratch.call.now)
    {
        scratch.directory.trail = known.trail;
        scratch.directory.born_ns = known.born_ns;
        if scratch.state.mounted != 0 {
            scratch.directory.trail.mount_here();
        }
        return ARRIVED;
    }
    match place.up() {
        Up::Top => ARRIVED,
        Up::Mount(on) => {
            scratch.state.mounted = 1;
            scratch.state.place = on;
            GO_ON
        }
        Up::Parent(parent) => {
            scratch.name.fill(0);
            let Some(len) = place.name(scratch.name.as_mut_ptr().cast()) else { return ARRIVED };
            let len = len as u32 - 1;
            let hash = component_hash(&scratch.name, len);
            let index = scratch.state.components;
            let Some(slot) = scratch.components.get_mut(index as usize) else { return ARRIVED };
            *slot = Component { hash, len, mounted: scratch.state.mounted };
            scratch.state.components = index + 1;
            scratch.state.mounted = 0;
            scratch.state.place = parent;
            GO_ON
        }
    }
}

/// Reads the components back from the top down.
#[inline(always)]
fn descend() {
    let Some(room) = scratch() else { return };
    let count = room.state.components;
    for i in 0..WALK_MAX as u32 {
        if i >= count {
            break;
        }
        descend_one(count - 1 - i);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn descend_one(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // A mask that the compiler cannot see through: it tells the verifier the bound that holds.
    let Some(c) = scratch.components.get(black_box(index as usize) & (WALK_MAX - 1)) else {
        return 0;
    };
    scratch.directory.trail.step(config(), c.hash, c.len, c.mounted != 0);
    0
}
