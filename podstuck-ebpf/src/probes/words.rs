//! Memory taken word by word.
//!
//! What the compiler makes of a copy, or of zeros that lie side by side, is often a call of `memmove` or `memset`, and
//! those take byte by byte here: 64 bytes are 600 instructions. What is volatile it leaves as it stands.

use podstuck_common::{component::NAME_WORDS, in_flight::InFlight, trail::Trail};

use super::{kernel_path::KernelPath, maps::Directory};

/// Made of words.
///
/// # Safety
/// It is made of integers, aligned as words are, and has no padding: all of its words can be read and written.
pub(crate) unsafe trait Words: Copy {}

// SAFETY: so they are.
unsafe impl Words for InFlight {}
// SAFETY: as above.
unsafe impl Words for Directory {}
// SAFETY: as above.
unsafe impl Words for Trail {}
// SAFETY: as above.
unsafe impl Words for KernelPath {}
// SAFETY: as above.
unsafe impl Words for [u64; NAME_WORDS] {}

const fn count<T: Words>() -> usize {
    assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8);
    size_of::<T>() / 8
}

/// Copies all of it.
///
/// # Safety
/// It can be read from there.
#[inline(always)]
pub(crate) unsafe fn copy<T: Words>(to: &mut T, from: *const T) {
    let to: *mut u64 = (&raw mut *to).cast();
    for word in 0..const { count::<T>() } {
        // SAFETY: a word of both, of which the caller vouches for one.
        unsafe { to.add(word).write_volatile(from.cast::<u64>().add(word).read_volatile()) };
    }
}

/// Makes it zero.
#[inline(always)]
pub(crate) fn clear<T: Words>(to: &mut T) {
    let to: *mut u64 = (&raw mut *to).cast();
    for word in 0..const { count::<T>() } {
        // SAFETY: a word of it.
        unsafe { to.add(word).write_volatile(0) };
    }
}

/// Assigns a field by itself.
#[inline(always)]
pub(crate) fn put<T: Copy>(to: &mut T, value: T) {
    let to = &raw mut *to;
    // SAFETY: it is a reference.
    unsafe { to.write_volatile(value) };
}
