//! Targets that were renamed to a place that belongs to no other, and stay the targets that they were.

use aya_ebpf::{
    bindings::BPF_ANY,
    btf_maps::{Array, LruHashMap},
    macros::btf_map,
};
use podstuck_common::{
    lru,
    trail::{INSIDE, Trail, origin},
};

use super::{atomic, globals::config};

/// What a target was before.
#[repr(C)]
#[derive(Clone, Copy)]
struct Moved {
    target: u64,
    pod: u64,
}

/// Where they are now, by [`Trail::path`].
#[btf_map]
static MOVED: LruHashMap<u64, Moved, { lru::MOVED }> = LruHashMap::new();

/// The number of entries ever made: nothing is looked up while it is 0.
#[btf_map]
static MOVES: Array<u64, 1> = Array::new();

/// Notes that the target of this trail is at another path now.
#[inline(always)]
pub(crate) fn note(was: &Trail, path: u64) {
    let moved = Moved { target: was.target, pod: was.pod };
    if MOVED.insert(path, &moved, u64::from(BPF_ANY)).is_ok()
        && let Some(moves) = MOVES.get_ptr_mut(0)
    {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(moves, 1) };
    }
}

/// Looks whether the component just taken is where a target has moved to.
#[inline(always)]
pub(crate) fn adopt(trail: &mut Trail) {
    // A process with a file system of its own can have any path.
    if trail.target != 0
        || !trail.is_known(config())
        || MOVES.get(0).is_none_or(|moves| *moves == 0)
    {
        return;
    }
    if let Some(moved) = MOVED.get_ptr(trail.path) {
        // SAFETY: a slot recycled meanwhile is another target that has moved, for one call.
        let moved = unsafe { *moved };
        trail.target = moved.target;
        trail.pod = moved.pod;
        trail.stage = INSIDE;
        trail.origin |= origin::PROVEN;
        trail.at_root = 1;
    }
}
