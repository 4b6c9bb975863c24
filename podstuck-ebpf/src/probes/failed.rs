//! Objects whose removal has failed and not succeeded since, by the hashes of their paths. The first of each target have
//! places of their own, so that failures in one volume, however many, displace no other's; the rest share a table.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::Array, macros::btf_map};

use super::maps::FAILED;

/// Targets that have places of their own; two of the same place share them.
const TARGETS: u64 = 1024;
/// Objects that each has places for: one cache line on most machines.
const OBJECTS: usize = 3;

/// The first failures of a target.
#[repr(C)]
#[derive(Clone, Copy)]
struct First {
    target: u64,
    objects: [u64; OBJECTS],
}

#[btf_map]
static FAILED_FIRST: Array<First, { TARGETS as usize }> = Array::new();

#[inline(always)]
fn first(target: u64) -> Option<*mut First> {
    FAILED_FIRST.get_ptr_mut((target % TARGETS) as u32)
}

/// Whether one of a target's first is noted.
#[inline(always)]
pub(crate) fn is_any(target: u64) -> bool {
    let Some(first) = first(target) else { return false };
    // SAFETY: map memory, of which each word is whole; only a call that is under way writes meanwhile.
    let First { target: whose, objects } = unsafe { first.read() };
    whose == target && target != 0 && objects[0] | objects[1] | objects[2] != 0
}

/// Notes an object.
#[inline(always)]
pub(crate) fn note(target: u64, object: u64) {
    if let Some(first) = first(target) {
        // SAFETY: as above. Where two take one place, one of both is not noted, as if its table had forgotten it.
        unsafe {
            if (*first).target != target {
                // That of a target whose volume may be long gone.
                (*first).objects = [0; OBJECTS];
                (*first).target = target;
            }
            for at in 0..OBJECTS {
                let place = &raw mut (*first).objects[at];
                if *place == object {
                    return;
                }
                if *place == 0 {
                    *place = object;
                    return;
                }
            }
        }
    }
    // A lookup is cheap, and an insertion takes a lock and a free entry even where there is one already.
    if FAILED.get_ptr(object).is_none() {
        let _ = FAILED.insert(object, &1, u64::from(BPF_ANY));
    }
}

/// Whether an object was noted. It is not any more.
#[inline(always)]
pub(crate) fn forget(target: u64, object: u64) -> bool {
    if let Some(first) = first(target) {
        // SAFETY: as above.
        unsafe {
            if (*first).target == target {
                for at in 0..OBJECTS {
                    let place = &raw mut (*first).objects[at];
                    if *place == object {
                        *place = 0;
                        return true;
                    }
                }
            }
        }
    }
    FAILED.remove(object).is_ok()
}
