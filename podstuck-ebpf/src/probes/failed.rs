//! Objects whose removal failed and has not succeeded since, by the hashes of their paths. The first ones of each
//! target have places of their own, so that any number of failures in one volume does not displace those of others;
//! the rest share a table.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::Array, macros::btf_map};

use super::maps::FAILED;

/// Number of targets with places of their own. Targets with the same index share them.
const TARGETS: u64 = 1024;
/// Number of places per target: with the target's hash, half a cache line on most machines.
const OBJECTS: usize = 3;

/// The first failed objects of a target.
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

/// Whether one of a target's first objects is stored.
#[inline(always)]
pub(crate) fn is_any(target: u64) -> bool {
    let Some(first) = first(target) else { return false };
    // SAFETY: map memory whose words are each read as a whole; only a concurrent call writes them.
    let First { target: whose, objects } = unsafe { first.read() };
    whose == target && target != 0 && objects[0] | objects[1] | objects[2] != 0
}

/// Stores an object.
#[inline(always)]
pub(crate) fn note(target: u64, object: u64) {
    if let Some(first) = first(target) {
        // SAFETY: as above. If two calls take one place, one object is not stored, as if the table had evicted it.
        unsafe {
            if (*first).target != target {
                // The places belong to another target, whose volume may be long gone.
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
    // A lookup is cheap; an insertion takes a lock and a free entry even if the key exists.
    if FAILED.get_ptr(object).is_none() {
        let _ = FAILED.insert(object, &1, u64::from(BPF_ANY));
    }
}

/// Removes an object; returns whether it was stored.
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
