//! The text of a call's path argument.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use podstuck_common::record::ARGUMENT_MAX;

use crate::{path::AT_FDCWD, returned::NOT_READ, scratch::Scratch};

/// The first byte of the argument; `None` when the caller's memory cannot be read.
///
/// Without a directory descriptor the argument is nearly always absolute, and will be read anyway.
#[inline(always)]
pub(crate) fn first_byte(room: &mut Scratch) -> Option<u8> {
    if room.call.entry.dirfd == AT_FDCWD || room.call.argument != NOT_READ {
        read(room)?;
        return Some(room.argument[0] as u8);
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(room.call.entry.path as *const u8) }.ok()
}

/// Reads the argument; `None` when the caller's memory cannot be read.
#[inline(always)]
pub(crate) fn read(room: &mut Scratch) -> Option<u32> {
    if room.call.argument != NOT_READ {
        return Some(room.call.argument);
    }
    let to = room.argument.as_mut_ptr();
    let from = room.call.entry.path as *const _;
    // SAFETY: `to` has room for `ARGUMENT_MAX` bytes; the helper checks the source.
    let read = unsafe { generated::bpf_probe_read_user_str(to.cast(), ARGUMENT_MAX as u32, from) };
    if read <= 0 {
        return None;
    }
    room.call.argument = read as u32 - 1;
    Some(read as u32 - 1)
}
