//! Claiming memory that several may want at once.

use super::atomic;

/// The program that counts the word up from 0 has what it stands for. Kernels before 5.12 add without returning the
/// sum, so it is read afterwards: of several that add at once at most one reads 1. If none does, none has it.
///
/// # Safety
/// An aligned word of map memory.
#[inline(always)]
pub(crate) unsafe fn claim(claims: *mut u64) -> bool {
    // SAFETY: the caller vouches for the address; read again, since others add to it.
    unsafe {
        atomic::add(claims, 1);
        let mine = claims.read_volatile() == 1;
        if !mine {
            give_back(claims);
        }
        mine
    }
}

/// Takes a claim back.
///
/// # Safety
/// As in [`claim`].
#[inline(always)]
pub(crate) unsafe fn give_back(claims: *mut u64) {
    // SAFETY: the caller vouches for the address.
    unsafe { atomic::add(claims, u64::MAX) };
}
