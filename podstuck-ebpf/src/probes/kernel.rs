//! Reads of kernel structures through the offsets of the running kernel.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, generated};
use core::arch::asm;

use podstuck_common::config::{CAST, NO_OFFSET};

use super::globals::offsets;

/// Reads a field; `None` if the address cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// Reads fields into scratch memory, since the stack is small; returns whether the address could be read.
#[inline(always)]
pub(crate) fn read_into<T>(to: &mut T, base: u64, offset: u32) -> bool {
    let from = base.wrapping_add(u64::from(offset)) as *const _;
    let to: *mut T = to;
    // SAFETY: `to` has room for the bytes, and they are integers; the helper checks the source.
    unsafe { generated::bpf_probe_read_kernel(to.cast(), size_of::<T>() as u32, from) == 0 }
}

/// Loads a field through a pointer whose type the kernel knows.
///
/// # Safety
/// `base` is an argument of the function that the program is attached to, the current task with its type, or a
/// pointer field that is reached from one of them; and `T` is the field's type.
#[inline(always)]
pub(crate) unsafe fn follow<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: the kernel checks the type when it loads the program, and reads 0 where the address
    // is not mapped.
    unsafe { base.add(offset as usize).cast::<T>().read() }
}

/// Loads words from an address; 0 if the kernel cannot read it. A helper call for a read takes some 50 ns on the
/// machine of the README's second table; this takes none. Requires a known [`Offsets::words_type`].
///
/// [`Offsets::words_type`]: podstuck_common::config::Offsets::words_type
#[inline(always)]
pub(crate) fn words<const N: usize>(address: u64) -> [u64; N] {
    let typed = cast(address, offsets().words_type);
    // SAFETY: the structure begins with words, more than are ever requested.
    core::array::from_fn(|word| unsafe { follow(typed, word as u32 * 8) })
}

#[inline(always)]
fn cast(address: u64, kind: u32) -> *const u8 {
    let typed;
    // SAFETY: the kernel replaces the call with a move; only reached if user space has inserted the function.
    unsafe {
        asm!(
            "call {function}",
            function = const CAST,
            inout("r1") address => _,
            inout("r2") u64::from(kind) => _,
            lateout("r0") typed,
            lateout("r3") _,
            lateout("r4") _,
            lateout("r5") _,
            options(pure, nomem, nostack),
        );
    }
    typed
}

/// The current task.
#[inline(always)]
pub(crate) fn task() -> u64 {
    // SAFETY: no arguments; always valid in a tracing program.
    unsafe { bpf_get_current_task() }
}

/// Whether the current process has a seccomp filter.
#[inline(always)]
pub(crate) fn has_seccomp_filter() -> bool {
    const SECCOMP_MODE_FILTER: u32 = 2;
    let o = offsets();
    o.task_seccomp != NO_OFFSET && field(task(), o.task_seccomp) == Some(SECCOMP_MODE_FILTER)
}
