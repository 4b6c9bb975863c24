//! Memory access word by word.
//!
//! The compiler often turns a copy, or adjacent zeros, into a call of `memmove` or `memset`, which go byte by byte
//! here: 64 bytes are 600 instructions. Volatile accesses are left unchanged.

use podstuck_common::{component::NAME_WORDS, in_flight::InFlight, trail::Trail};

use super::{kernel_path::KernelPath, maps::Directory};

/// Types that consist of words.
///
/// # Safety
/// The type consists of integers, is aligned to 8 bytes and has no padding, so that all of its words can be read and
/// written.
pub(crate) unsafe trait Words: Copy {}

// SAFETY: integers without padding, aligned to 8 bytes.
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

/// Copies the whole value.
///
/// # Safety
/// `from` is valid for reads of a `T`.
#[inline(always)]
pub(crate) unsafe fn copy<T: Words>(to: &mut T, from: *const T) {
    let to: *mut u64 = (&raw mut *to).cast();
    for word in 0..const { count::<T>() } {
        // SAFETY: a word of both; the caller guarantees `from`.
        unsafe { to.add(word).write_volatile(from.cast::<u64>().add(word).read_volatile()) };
    }
}

/// Sets the whole value to zero.
#[inline(always)]
pub(crate) fn clear<T: Words>(to: &mut T) {
    let to: *mut u64 = (&raw mut *to).cast();
    for word in 0..const { count::<T>() } {
        // SAFETY: a word of the value.
        unsafe { to.add(word).write_volatile(0) };
    }
}

/// Assigns a single field with a volatile write.
#[inline(always)]
pub(crate) fn put<T: Copy>(to: &mut T, value: T) {
    let to = &raw mut *to;
    // SAFETY: the pointer comes from a reference.
    unsafe { to.write_volatile(value) };
}
