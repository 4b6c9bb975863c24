//! The last component of an argument. If the kernel has reported the directory, only this component matters: links
//! and `..` before it are already resolved.

use super::{
    globals::config,
    returned::{NOT_READ, Returned},
    scratch::{Last, Scratch},
    words,
};

/// How many bytes at the end of an argument are searched: the longest component, the slash before it, and some after
/// it. More bytes could contain too many short components for the rounds.
const SEARCHED: u32 = 260;

/// The start of the search in an argument of this length.
#[inline(always)]
pub(crate) fn search_from(len: u32) -> u32 {
    len.saturating_sub(SEARCHED)
}

/// Stores a component as the last one so far.
#[inline(always)]
pub(crate) fn note(scratch: &mut Scratch, component: Last) {
    if component.len != 0 {
        scratch.state.last = component;
    }
}

/// The last component of the argument. In the argument that the kernel has read, it is never `.` or `..` and is
/// complete, but the caller may have changed the memory since.
#[inline(always)]
pub(crate) fn found(scratch: &mut Scratch) -> Option<Last> {
    const DOT: u64 = b'.' as u64;
    let last = scratch.state.last;
    let is_dots = match last.len {
        0 => true,
        1 => last.bytes == DOT,
        2 => last.bytes == DOT << 8 | DOT,
        _ => false,
    };
    let is_part = last.at == scratch.state.from && last.at != 0;
    if is_dots || is_part {
        return None;
    }
    scratch.call.last = last.at;
    scratch.call.argument = last.len;
    Some(last)
}

/// The component cannot be determined. Below a target's root this does not matter.
#[inline(always)]
pub(crate) fn not_found(call: &mut Returned) {
    call.argument = NOT_READ;
    if !call.trail.settled(config()) {
        words::clear(&mut call.trail);
        call.trail.cut = 1;
    }
}
