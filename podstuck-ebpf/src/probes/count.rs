//! Exact counts: one increment for each call, in one table entry. The minimum and maximum need compare and exchange,
//! and before Linux 5.12 no BPF instruction does that atomically. So the entry belongs to the slot of the counting
//! program, which no other program holds at that time.

use aya_ebpf::{bindings::BPF_NOEXIST, btf_maps::HashMap};
use podstuck_common::{
    count::{COUNTS, CallTotals, CountKey},
    record::loss,
};

use super::atomic;
use super::maps::{COUNTS_0, COUNTS_1, COUNTS_MADE, GENERATION, count_loss};

/// Adds a call to the lane of the caller's slot. Returns whether its key is new in this generation.
#[inline(always)]
pub(crate) fn add(key: &CountKey, duration_ns: u64) -> bool {
    let second = GENERATION.get(0).is_some_and(|generation| *generation != 0);
    if second { add_to(&COUNTS_1, key, duration_ns) } else { add_to(&COUNTS_0, key, duration_ns) }
}

#[inline(always)]
fn add_to(table: &HashMap<CountKey, CallTotals, COUNTS>, key: &CountKey, duration_ns: u64) -> bool {
    if let Some(count) = table.get_ptr_mut(key) {
        bump(count, duration_ns);
        return false;
    }
    let empty = CallTotals { calls: 0, total_ns: 0, min_ns: 0, max_ns: 0 };
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
    // A duration below the clock's resolution counts as 1 ns; 0 means that no call is counted yet.
    let ns = if duration_ns == 0 { 1 } else { duration_ns };
    // SAFETY: aligned words of map memory; only the holder of the slot writes them. User space reads them when no
    // program uses the table any more.
    unsafe {
        (*count).calls = (*count).calls.wrapping_add(1);
        (*count).total_ns = (*count).total_ns.wrapping_add(duration_ns);
        let least = (*count).min_ns;
        if least == 0 || ns < least {
            (*count).min_ns = ns;
        }
        if ns > (*count).max_ns {
            (*count).max_ns = ns;
        }
    }
}
