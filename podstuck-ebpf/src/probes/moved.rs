//! Targets that were renamed to a place outside of any target, and remain the same targets.

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

/// The identity of a renamed target.
#[repr(C)]
#[derive(Clone, Copy)]
struct Moved {
    target: u64,
    pod: u64,
}

/// The renamed targets, by their present [`Trail::path`].
#[btf_map]
static MOVED: LruHashMap<u64, Moved, { lru::MOVED }> = LruHashMap::new();

/// Number of entries ever created. While it is 0, no lookup is made.
#[btf_map]
static MOVES: Array<u64, 1> = Array::new();

/// Stores the present path of the target of this trail.
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

/// If the last component is a renamed target, continues as that target.
#[inline(always)]
pub(crate) fn adopt(trail: &mut Trail) {
    // A process with its own file systems can create any path.
    if trail.target != 0
        || !trail.is_known(config())
        || MOVES.get(0).is_none_or(|moves| *moves == 0)
    {
        return;
    }
    if let Some(moved) = MOVED.get_ptr(trail.path) {
        // SAFETY: a slot that is recycled concurrently contains another renamed target, for one call.
        let moved = unsafe { *moved };
        trail.target = moved.target;
        trail.pod = moved.pod;
        trail.stage = INSIDE;
        trail.origin |= origin::PROVEN;
        trail.at_root = 1;
    }
}
