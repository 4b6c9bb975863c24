//! The text of a call's path argument.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use podstuck_common::{in_flight::AT_FDCWD, record::ARGUMENT_MAX};

use super::{
    returned::{NOT_READ, Returned},
    scratch::Scratch,
};

/// The first byte of the argument; `None` if the caller's memory cannot be read.
///
/// Reads the whole argument where it will be needed: without a directory descriptor it is nearly always absolute, and
/// a failed call needs it as well.
#[inline(always)]
pub(crate) fn first_byte(scratch: &mut Scratch) -> Option<u8> {
    let Returned { entry, errno, argument, .. } = &scratch.call;
    if entry.dirfd == AT_FDCWD || *errno != 0 || *argument != NOT_READ {
        read(scratch)?;
        return Some(scratch.argument[0] as u8);
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(scratch.call.entry.path as *const u8) }.ok()
}

/// Reads the argument and returns its length; `None` if the caller's memory cannot be read.
#[inline(always)]
pub(crate) fn read(scratch: &mut Scratch) -> Option<u32> {
    if scratch.call.argument != NOT_READ {
        return Some(scratch.call.argument);
    }
    let to = scratch.argument.as_mut_ptr();
    let from = scratch.call.entry.path as *const _;
    // SAFETY: `to` points to `ARGUMENT_MAX` bytes; the helper checks the source.
    let read = unsafe { generated::bpf_probe_read_user_str(to.cast(), ARGUMENT_MAX as u32, from) };
    if read <= 0 {
        return None;
    }
    scratch.call.argument = read as u32 - 1;
    Some(read as u32 - 1)
}
