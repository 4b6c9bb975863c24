//! Adding to shared memory at once. The target has no compare-and-swap, for which the standard
//! library leaves out all of its atomic arithmetic; the instruction has been there since Linux 3.18.

use core::arch::asm;

/// Adds to a word of map memory that others add to as well, and wraps around.
///
/// # Safety
/// `word` points to 8 aligned bytes of map memory.
#[inline(always)]
pub(crate) unsafe fn add(word: *mut u64, n: u64) {
    // SAFETY: the caller vouches for the address; nothing else is touched.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {n}", word = in(reg) word, n = in(reg) n) };
}

/// Orders the reads before it before the reads behind it, for the compiler.
#[inline(always)]
pub(crate) fn compiler_barrier() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
