//! The way from a directory up to the root, and the trail that its names give from the top down.

use core::hint::black_box;

use podstuck_common::{component::component_hash, trail::Trail};

use crate::{
    maps::config,
    memory,
    place::{Up, copy_name},
    rename,
    scratch::{ARRIVED, Component, GO_ON, ROUNDS, WALK_MAX, scratch},
};

/// Collects the components from the directory up to the root, or to an ancestor that is remembered
/// and then starts the trail.
#[inline(always)]
pub(crate) fn climb(n: u32) {
    let Some(room) = scratch(n) else { return };
    room.state.place = room.call.place;
    room.state.components = 0;
    room.state.mounted = 0;
    room.directory.trail = Trail::default();
    room.directory.born_ns = room.call.now;
    room.state.steps = 0;
    for _ in 0..ROUNDS {
        if climb_some(n) == ARRIVED {
            return;
        }
    }
    // Deeper than the walk goes: what the upper part says is unknown, so nothing is claimed.
    let Some(room) = scratch(n) else { return };
    room.directory.trail.cut = 1;
    room.state.components = 0;
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn climb_some(n: u32) -> u32 {
    for _ in 0..ROUNDS {
        if climb_one(n) == ARRIVED {
            return ARRIVED;
        }
    }
    GO_ON
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn climb_one(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return ARRIVED };
    let place = room.state.place;
    let Some(dentry) = place.dentry() else { return ARRIVED };
    room.state.steps += 1;
    // The first is the directory asked for.
    if room.state.steps > 1
        && let Some(known) = memory::recall(place, &dentry, room.call.now)
    {
        room.directory.trail = known.trail;
        room.directory.born_ns = known.born_ns;
        if room.state.mounted != 0 {
            room.directory.trail.mount_here();
        }
        return ARRIVED;
    }
    match place.up(&dentry) {
        Up::Top => ARRIVED,
        Up::Mount(on) => {
            room.state.mounted = 1;
            room.state.place = on;
            GO_ON
        }
        Up::Parent(parent, name) => {
            room.name.fill(0);
            let to = room.name.as_mut_ptr().cast();
            let Some(len) = copy_name(name, to) else { return ARRIVED };
            let len = len as u32 - 1;
            let hash = component_hash(&room.name, len);
            let index = room.state.components;
            let Some(slot) = room.components.get_mut(index as usize) else { return ARRIVED };
            *slot = Component { hash, len, mounted: room.state.mounted };
            room.state.components = index + 1;
            room.state.mounted = 0;
            room.state.place = parent;
            GO_ON
        }
    }
}

/// Reads the components back from the top down.
#[inline(always)]
pub(crate) fn descend(n: u32) {
    for _ in 0..ROUNDS {
        if descend_some(n) == ARRIVED {
            return;
        }
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn descend_some(n: u32) -> u32 {
    for _ in 0..ROUNDS {
        if descend_one(n) == ARRIVED {
            return ARRIVED;
        }
    }
    GO_ON
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn descend_one(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return ARRIVED };
    let Some(index) = room.state.components.checked_sub(1) else { return ARRIVED };
    room.state.components = index;
    // A mask that the compiler cannot see through: it tells the verifier the bound that holds.
    let Some(c) = room.components.get(black_box(index as usize) & (WALK_MAX - 1)) else {
        return ARRIVED;
    };
    room.directory.trail.step(config(), c.hash, c.len, c.mounted != 0);
    rename::adopt(&mut room.directory.trail);
    GO_ON
}
