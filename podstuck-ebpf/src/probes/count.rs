//! Exact counts: one increment for each call, in this CPU's share of one table entry.

use aya_ebpf::{bindings::BPF_NOEXIST, btf_maps::PerCpuHashMap};
use podstuck_common::record::{COUNTS, CallTotals, CountKey, loss};

use super::atomic;
use super::globals::config;
use super::maps::{COUNTS_0, COUNTS_1, COUNTS_MADE, GENERATION, count_loss};

/// Adds a call; whether its key is new in this generation.
#[inline(always)]
pub(crate) fn add(key: &CountKey, duration_ns: u64) -> bool {
    let second = GENERATION.get(0).is_some_and(|generation| *generation != 0);
    if second { add_to(&COUNTS_1, key, duration_ns) } else { add_to(&COUNTS_0, key, duration_ns) }
}

#[inline(always)]
fn add_to(
    table: &PerCpuHashMap<CountKey, CallTotals, COUNTS>,
    key: &CountKey,
    duration_ns: u64,
) -> bool {
    if let Some(count) = table.get_ptr_mut(key) {
        bump(count, duration_ns);
        return false;
    }
    // Another CPU may insert the same key now; its entry serves as well, so the result of the
    // insert does not matter for the count, only whether there is an entry afterwards.
    let empty = CallTotals { calls: 0, total_ns: 0 };
    if table.insert(key, &empty, u64::from(BPF_NOEXIST)).is_ok()
        && let Some(made) = COUNTS_MADE.get_ptr_mut(0)
    {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(made, 1) };
    }
    match table.get_ptr_mut(key) {
        Some(count) => bump(count, duration_ns),
        None => count_loss(loss::COUNTS_FULL),
    }
    true
}

#[inline(always)]
fn bump(count: *mut CallTotals, duration_ns: u64) {
    // SAFETY: aligned words of this CPU's map memory.
    unsafe {
        add_here(&raw mut (*count).calls, 1);
        add_here(&raw mut (*count).total_ns, duration_ns);
    }
}

/// Adds to a word of this CPU's own. A program on a function can be preempted by another that adds to the same; one
/// on a tracepoint cannot, and takes a plain addition: see [`super::slot`].
///
/// # Safety
/// As [`atomic::add`].
#[inline(always)]
pub(crate) unsafe fn add_here(word: *mut u64, n: u64) {
    // SAFETY: the caller vouches for the address.
    unsafe {
        if config().one_slot != 0 {
            *word = (*word).wrapping_add(n);
        } else {
            atomic::add(word, n);
        }
    }
}
