//! Where a call happened: its directory, and the trail to its object.

use podstuck_common::{record::loss, trail::Trail};

use crate::{argument, maps::lose, path, place::Place, scratch::scratch, target};

/// Finds the directory, and reads the argument where it matters.
#[inline(always)]
pub(crate) fn locate(n: u32) {
    let Some(room) = scratch(n) else { return };
    let first = argument::first_byte(room);
    let place = first.and_then(|first| path::start(&room.call.entry, first));
    if let Some(place) = place {
        room.call.place = place;
        target::find(n);
    } else {
        room.call.place = Place::NONE;
        room.call.trail = Trail::default();
        if first != Some(b'/') {
            lose(loss::PATH_UNREADABLE);
            return;
        }
    }
    // Below a target's root the name of one file more changes nothing that is counted, and is
    // needed to tell whether this object has failed before. Without the kernel's layout an absolute
    // argument still says all.
    let Some(room) = scratch(n) else { return };
    if !room.call.trail.settled() || (room.call.has_failed && room.call.errno == 0) {
        path::follow(n);
    }
    let Some(room) = scratch(n) else { return };
    if room.call.trail.cut != 0 {
        lose(loss::PATH_CUT);
    }
}
