//! The names of a call's directory, for a record.

use core::hint::black_box;

use podstuck_common::{
    component::NAME_SIZE,
    record::{BASE_MAX, flaw},
};

use crate::{
    place::{Up, copy_name},
    scratch::{ARRIVED, GO_ON, OFFSET_MASK, ROUNDS, scratch},
};

/// The room could not be had.
pub(crate) const NO_NAMES: usize = usize::MAX;

/// Writes the directory's names, leaf first, each with its NUL; where they end.
#[inline(always)]
pub(crate) fn write_names(n: u32) -> usize {
    let Some(room) = scratch(n) else { return NO_NAMES };
    room.state.place = room.call.place;
    room.state.end = 0;
    let mut complete = false;
    for _ in 0..ROUNDS {
        if write_some(n) == ARRIVED {
            complete = true;
            break;
        }
    }
    let Some(room) = scratch(n) else { return NO_NAMES };
    if !complete {
        room.head.flaws |= flaw::CUT;
    }
    room.state.end as usize
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn write_some(n: u32) -> u32 {
    for _ in 0..ROUNDS {
        if write_one(n) == ARRIVED {
            return ARRIVED;
        }
    }
    GO_ON
}

/// Writes the next name. Where there is no more room the loops run on without effect.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn write_one(n: u32) -> u32 {
    let Some(scratch) = scratch(n) else { return GO_ON };
    let place = scratch.state.place;
    let Some(dentry) = place.dentry() else { return ARRIVED };
    match place.up(&dentry) {
        Up::Top => ARRIVED,
        Up::Mount(on) => {
            scratch.state.place = on;
            GO_ON
        }
        Up::Parent(parent, name) => {
            let offset = black_box(scratch.state.end as usize) & OFFSET_MASK;
            if offset > BASE_MAX - NAME_SIZE {
                return GO_ON;
            }
            // SAFETY: the check above leaves room for the longest name.
            let to = unsafe { scratch.tail.as_mut_ptr().add(offset) };
            let Some(len) = copy_name(name, to) else { return GO_ON };
            scratch.state.place = parent;
            scratch.state.end = (offset + (len & 511)) as u32;
            GO_ON
        }
    }
}
