//! Where a call happened: its directory, and the trail to its object.

use podstuck_common::{record::loss, trail::Trail};

use super::{
    argument, globals::config, kernel_path::KernelPath, maps::count_loss, path, slot::Slot, target,
};

/// Finds the directory, and reads the argument where it matters.
#[inline(always)]
pub(crate) fn locate(slot: &mut Slot) {
    let Some(scratch) = slot.scratch() else { return };
    let first = argument::first_byte(scratch);
    let place = first.and_then(|first| path::start(&scratch.call.entry, first));
    if let Some(place) = place {
        scratch.call.place = place;
        target::find(slot);
    } else {
        scratch.call.place = KernelPath::NONE;
        scratch.call.trail = Trail::default();
        if first != Some(b'/') {
            count_loss(loss::PATH_UNREADABLE);
            return;
        }
    }
    // Below a target's root the name of one file more changes nothing that is counted, and is
    // needed to tell whether this object has failed before. Without the kernel's layout an absolute
    // argument still says all.
    let Some(scratch) = slot.scratch() else { return };
    let call = &scratch.call;
    if !call.trail.settled(config()) || (call.has_failed && call.errno == 0) {
        path::follow(slot);
    }
    let Some(scratch) = slot.scratch() else { return };
    if scratch.call.trail.cut != 0 {
        count_loss(loss::PATH_CUT);
    }
}
