//! A target that is renamed before it is deleted, to a place that belongs to no other, stays the target
//! that it was: `mv pods/<uid>/volumes/.../data /trash` and `rm -rf /trash/data` delete a pod's data.

use aya_ebpf::{
    bindings::BPF_ANY,
    btf_maps::{Array, LruHashMap},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::btf_map,
};
use podstuck_common::{
    record::{InFlight, call, reason},
    trail::{INSIDE, Trail},
};

use crate::{
    atomic, in_flight, locate::locate, maps::ANNOUNCED, returned::NOT_READ, scratch::scratch,
    tell::tell,
};

/// A target that was renamed to a place outside any.
#[repr(C)]
#[derive(Clone, Copy)]
struct Moved {
    target: u64,
    pod: u64,
}

/// Where they are now, by [`Trail::path`].
#[btf_map]
static MOVED: LruHashMap<u64, Moved, 1024> = LruHashMap::new();

/// How many there ever were: nothing is looked up while there is none.
#[btf_map]
static MOVES: Array<u64, 1> = Array::new();

/// A rename is entered: two pairs of directory and path. `number` as in [`crate::account::start`].
#[inline(always)]
pub(crate) fn start(number: u32, from: (i32, u64), to: (i32, u64)) {
    in_flight::put(&InFlight {
        thread: bpf_get_current_pid_tgid(),
        claims: 0,
        // SAFETY: no arguments.
        start_ns: unsafe { bpf_ktime_get_ns() },
        path: from.1,
        second: to.1,
        dirfd: from.0,
        flags: to.0 as u32,
        call: u32::from(call::RENAME),
        number,
    });
}

/// A rename has succeeded; the scratch room has its call. See [`scratch`] for the signature.
///
/// The directories above both names are where they were, so that the paths can still be read.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn renamed(n: u32) -> u32 {
    locate(n);
    let Some(room) = scratch(n) else { return 0 };
    let Trail { target, pod, path, .. } = room.call.trail;
    if target == 0 || target != path {
        return 0;
    }
    if ANNOUNCED.get_ptr(target).is_none() {
        tell(n, reason::FIRST);
    }
    let Some(room) = scratch(n) else { return 0 };
    room.call.entry.path = room.call.entry.second;
    room.call.entry.dirfd = room.call.entry.flags as i32;
    room.call.argument = NOT_READ;
    locate(n);
    let Some(room) = scratch(n) else { return 0 };
    let Trail { target: now, path, cut, .. } = room.call.trail;
    if now == 0
        && cut == 0
        && MOVED.insert(path, &Moved { target, pod }, u64::from(BPF_ANY)).is_ok()
        && let Some(moves) = MOVES.get_ptr_mut(0)
    {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(moves, 1) };
    }
    0
}

/// Looks whether the component just taken is where a target has moved to.
#[inline(always)]
pub(crate) fn adopt(trail: &mut Trail) {
    if trail.target != 0 || MOVES.get(0).is_none_or(|moves| *moves == 0) {
        return;
    }
    if let Some(moved) = MOVED.get_ptr(trail.path) {
        // SAFETY: a slot recycled meanwhile is another target that has moved, for one call.
        let moved = unsafe { *moved };
        trail.target = moved.target;
        trail.pod = moved.pod;
        trail.stage = INSIDE;
        trail.at_root = 1;
    }
}
