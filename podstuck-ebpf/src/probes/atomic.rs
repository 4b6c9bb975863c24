//! Atomic addition to shared memory. The target has no compare-and-swap, so the standard library omits all of its
//! atomic arithmetic; the instruction has existed since Linux 3.18.

use core::arch::asm;

/// Adds to a word of map memory that other programs add to as well; wraps around.
///
/// # Safety
/// `word` points to 8 aligned bytes of map memory.
#[inline(always)]
pub(crate) unsafe fn add(word: *mut u64, n: u64) {
    // SAFETY: the caller guarantees the address; nothing else is accessed.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {n}", word = in(reg) word, n = in(reg) n) };
}

/// Orders earlier reads before later reads, for the compiler.
#[inline(always)]
pub(crate) fn compiler_barrier() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
