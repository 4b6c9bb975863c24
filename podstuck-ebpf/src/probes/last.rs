//! The last component of an argument. Where the kernel has reported the directory, only that counts: links and
//! `..` before it have been followed.

use super::{
    globals::config,
    returned::{NOT_READ, Returned},
    scratch::{Last, Scratch},
    words,
};

/// How much of the end of an argument is searched: the longest component, the slash before it, and some behind.
/// With more, those of many short components would take too many rounds.
const SEARCHED: u32 = 260;

/// Where to begin in an argument of this length.
#[inline(always)]
pub(crate) fn search_from(len: u32) -> u32 {
    len.saturating_sub(SEARCHED)
}

/// Takes note of a component, which is the last one so far.
#[inline(always)]
pub(crate) fn note(scratch: &mut Scratch, component: Last) {
    if component.len != 0 {
        scratch.state.last = component;
    }
}

/// That of the argument just read. Of the kernel's own it is never `.` or `..`, and it is whole; but the
/// caller may have written to it since.
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

/// It cannot be determined. Below a target's root that changes nothing.
#[inline(always)]
pub(crate) fn not_found(call: &mut Returned) {
    call.argument = NOT_READ;
    if !call.trail.settled(config()) {
        words::clear(&mut call.trail);
        call.trail.cut = 1;
    }
}
