//! The walk from a directory up to the root, and the trail of its names from the top down.

use core::hint::black_box;

use podstuck_common::component::component_hash;

use super::{
    directory_cache,
    globals::config,
    kernel_path::{KernelPath, Up, copy_name},
    moved, roots,
    scratch::{ARRIVED, GO_ON, ROUNDS, Scratch, WALK_MAX, WalkedComponent},
    slot::{Slot, global_function},
    words,
};

/// Collects the components from the directory up to the root, or to a cached ancestor, whose trail is then the start.
#[inline(always)]
pub(crate) fn climb(slot: &mut Slot) {
    let scratch = slot.scratch();
    scratch.state.place = scratch.call.place;
    scratch.state.components = 0;
    scratch.state.mounted = 0;
    words::clear(&mut scratch.directory.trail);
    scratch.directory.born_ns = scratch.call.now;
    scratch.state.steps = 0;
    for _ in 0..ROUNDS {
        if climb_some(slot) == ARRIVED {
            return;
        }
    }
    // Deeper than the walk goes: the upper part is unknown, so the trail is marked as cut.
    let scratch = slot.scratch();
    scratch.directory.trail.cut = 1;
    scratch.state.components = 0;
}

global_function! {
    fn climb_some(slot) -> u32 {
        for _ in 0..ROUNDS {
            if climb_one(slot) == ARRIVED {
                return ARRIVED;
            }
        }
        GO_ON
    }
}

global_function! {
    fn climb_one(slot) -> u32 {
        let scratch = slot.scratch();
        let place = scratch.state.place;
        if !place.read_dentry(&mut scratch.dentry) {
            return ARRIVED;
        }
        scratch.state.steps += 1;
        // The first step is the requested directory itself.
        if scratch.state.steps > 1
            && recall(scratch, place)
        {
            if scratch.state.mounted != 0 {
                scratch.directory.trail.mount_here();
            }
            return ARRIVED;
        }
        if let Some(root) = roots::at(&scratch.dentry) {
            scratch.directory.trail.enter(root);
            return ARRIVED;
        }
        match place.up(&scratch.dentry) {
            Up::Top | Up::Unreachable => ARRIVED,
            Up::Mount(on) => {
                scratch.state.mounted = 1;
                scratch.state.place = on;
                if on.read_mounted(&mut scratch.mounted) { GO_ON } else { ARRIVED }
            }
            Up::Parent(parent, name) => {
                words::clear(&mut scratch.name);
                let to = scratch.name.as_mut_ptr().cast();
                let Some(len) = copy_name(name, to) else { return ARRIVED };
                let len = len as u32 - 1;
                let hash = component_hash(&scratch.name, len);
                let index = scratch.state.components;
                let Some(component) = scratch.components.get_mut(index as usize) else {
                    return ARRIVED;
                };
                *component = WalkedComponent { hash, len, mounted: scratch.state.mounted };
                scratch.state.components = index + 1;
                scratch.state.mounted = 0;
                scratch.state.place = parent;
                GO_ON
            }
        }
    }
}

/// Starts with the trail of an ancestor, if it is cached.
#[inline(always)]
fn recall(scratch: &mut Scratch, place: KernelPath) -> bool {
    let Some(cached) = directory_cache::lookup(scratch, place) else { return false };
    cached.trail_to(&mut scratch.directory.trail);
    scratch.directory.born_ns = cached.born_ns();
    if cached.is_valid(scratch) {
        return true;
    }
    words::clear(&mut scratch.directory.trail);
    scratch.directory.born_ns = scratch.call.now;
    false
}

/// Steps through the components from the top down.
#[inline(always)]
pub(crate) fn descend(slot: &mut Slot) {
    for _ in 0..ROUNDS {
        if descend_some(slot) == ARRIVED {
            return;
        }
    }
}

global_function! {
    fn descend_some(slot) -> u32 {
        for _ in 0..ROUNDS {
            if descend_one(slot) == ARRIVED {
                return ARRIVED;
            }
        }
        GO_ON
    }
}

global_function! {
    fn descend_one(slot) -> u32 {
        let scratch = slot.scratch();
        let Some(index) = scratch.state.components.checked_sub(1) else { return ARRIVED };
        scratch.state.components = index;
        // A mask that the compiler cannot analyse: it gives the verifier the bound, which always holds.
        let Some(c) = scratch.components.get(black_box(index as usize) & (WALK_MAX - 1)) else {
            return ARRIVED;
        };
        scratch.directory.trail.step(config(), c.hash, c.len, c.mounted != 0);
        moved::adopt(&mut scratch.directory.trail);
        GO_ON
    }
}
