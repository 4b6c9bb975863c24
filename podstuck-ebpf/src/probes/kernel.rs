//! Reads of kernel structures through the offsets of the running kernel.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, generated};
use podstuck_common::config::NO_OFFSET;

use super::globals::offsets;

/// Reads a field; `None` when the address cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// Reads fields into scratch memory, since the stack is small; whether the address could be read.
#[inline(always)]
pub(crate) fn read_into<T>(to: &mut T, base: u64, offset: u32) -> bool {
    let from = base.wrapping_add(u64::from(offset)) as *const _;
    let to: *mut T = to;
    // SAFETY: there is room for as much, and what is read is made of integers; the helper checks the source.
    unsafe { generated::bpf_probe_read_kernel(to.cast(), size_of::<T>() as u32, from) == 0 }
}

/// The current task.
#[inline(always)]
pub(crate) fn task() -> u64 {
    // SAFETY: no arguments; always valid in a tracing program.
    unsafe { bpf_get_current_task() }
}

/// Whether a seccomp filter decides about the current process's calls.
#[inline(always)]
pub(crate) fn has_seccomp_filter() -> bool {
    const SECCOMP_MODE_FILTER: u32 = 2;
    let o = offsets();
    o.task_seccomp != NO_OFFSET && field(task(), o.task_seccomp) == Some(SECCOMP_MODE_FILTER)
}
