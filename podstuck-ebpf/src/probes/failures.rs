//! Numbers of failed and recovered removals, by which a slot detects that its private copy of an answer is outdated.

use aya_ebpf::{btf_maps::Array, macros::btf_map};

use super::atomic;

/// Directories that were marked because a removal in them failed.
pub(crate) const MARKED: u32 = 0;
/// Removals that failed before their directory was reported.
pub(crate) const ELSEWHERE: u32 = 1;
/// Objects whose removal succeeded after a failure.
pub(crate) const RECOVERED: u32 = 2;

#[btf_map]
static FAILURES: Array<u64, 3> = Array::new();

#[inline(always)]
pub(crate) fn so_far(kind: u32) -> u64 {
    FAILURES.get(kind).copied().unwrap_or(0)
}

#[inline(always)]
pub(crate) fn count(kind: u32) {
    if let Some(count) = FAILURES.get_ptr_mut(kind) {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(count, 1) };
    }
}
