//! The names of a call's directory, for a record.

use core::hint::black_box;

use podstuck_common::record::{BASE_MAX, flaw};

use super::{
    kernel_path::{Up, copy_name},
    scratch::{ARRIVED, GO_ON, OFFSET_MASK, ROUNDS},
    slot::{Slot, global_function},
};

/// Result if the names could not be written.
pub(crate) const NO_NAMES: usize = usize::MAX;

/// Writes the directory's names, leaf first, each with its NUL; returns their end.
#[inline(always)]
pub(crate) fn write_names(slot: &mut Slot) -> usize {
    let scratch = slot.scratch();
    scratch.state.place = scratch.call.place;
    scratch.state.end = 0;
    let mut complete = false;
    for _ in 0..ROUNDS {
        if write_some(slot) == ARRIVED {
            complete = true;
            break;
        }
    }
    let scratch = slot.scratch();
    if !complete {
        scratch.head.flaws |= flaw::CUT;
    }
    scratch.state.end as usize
}

global_function! {
    fn write_some(slot) -> u32 {
        for _ in 0..ROUNDS {
            if write_one(slot) == ARRIVED {
                return ARRIVED;
            }
        }
        GO_ON
    }
}

global_function! {
    /// Writes the next name. When the space is used up, the loops continue without effect.
    fn write_one(slot) -> u32 {
        let scratch = slot.scratch();
        let place = scratch.state.place;
        let Some(dentry) = place.dentry() else { return ARRIVED };
        match place.up(&dentry) {
            Up::Top => ARRIVED,
            Up::Unreachable => {
                scratch.head.flaws |= flaw::UNREACHABLE;
                ARRIVED
            }
            Up::Mount(on) => {
                scratch.state.place = on;
                GO_ON
            }
            Up::Parent(parent, name) => {
                let offset = black_box(scratch.state.end as usize) & OFFSET_MASK;
                if offset > BASE_MAX {
                    return GO_ON;
                }
                // SAFETY: the check above leaves space for the longest name.
                let to = unsafe { scratch.tail.as_mut_ptr().add(offset) };
                let Some(len) = copy_name(name, to) else { return GO_ON };
                scratch.state.place = parent;
                scratch.state.end = (offset + (len & 511)) as u32;
                GO_ON
            }
        }
    }
}
