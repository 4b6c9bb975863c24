//! Claims of memory that several programs may request at once.

use super::atomic;

/// Claims the resource behind the word: the program that counts it up from 0 gets it. Kernels before 5.12 add without
/// returning the sum, so it is read afterwards: of several concurrent programs at most one reads 1. If none does,
/// none gets it.
///
/// # Safety
/// `claims` is an aligned word of map memory.
#[inline(always)]
pub(crate) unsafe fn claim(claims: *mut u64) -> bool {
    // SAFETY: the caller guarantees the address; volatile, since others add to it.
    unsafe {
        atomic::add(claims, 1);
        let mine = claims.read_volatile() == 1;
        if !mine {
            give_back(claims);
        }
        mine
    }
}

/// Releases a claim.
///
/// # Safety
/// As in [`claim`].
#[inline(always)]
pub(crate) unsafe fn give_back(claims: *mut u64) {
    // SAFETY: the caller guarantees the address.
    unsafe { atomic::add(claims, u64::MAX) };
}
