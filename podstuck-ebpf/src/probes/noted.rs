//! The failure that a slot stored last. A process that cannot remove an object often retries at once; its path need
//! not be found and stored each time.

use super::{
    failures::{RECOVERED, so_far},
    returned::NOT_READ,
    scratch::{NOTED_WORDS, Scratch},
};

/// Whether the failed call concerns that object.
#[inline(always)]
pub(crate) fn is_noted(scratch: &Scratch) -> bool {
    let Scratch { noted, call, directory, argument, .. } = scratch;
    let len = u64::from(call.argument);
    if noted.len != len
        || len >= (NOTED_WORDS * 8) as u64
        || noted.born_ns != directory.born_ns
        || noted.place.mnt != call.place.mnt
        || noted.place.dentry != call.place.dentry
        || noted.recoveries != so_far(RECOVERED)
    {
        return false;
    }
    for (word, (noted, now)) in noted.argument.iter().zip(argument).enumerate() {
        let rest = len.saturating_sub(word as u64 * 8);
        if rest == 0 {
            break;
        }
        let difference = noted ^ now;
        // The bytes after the argument are left over from another one.
        let behind = if rest < 8 { 64 - rest * 8 } else { 0 };
        if difference << behind != 0 {
            return false;
        }
    }
    true
}

/// Stores the failed call's object.
#[inline(always)]
pub(crate) fn note(scratch: &mut Scratch) {
    let Scratch { noted, call, directory, argument, .. } = scratch;
    if call.argument == NOT_READ {
        return;
    }
    noted.place = call.place;
    noted.born_ns = directory.born_ns;
    noted.recoveries = so_far(RECOVERED);
    noted.len = u64::from(call.argument);
    noted.argument.copy_from_slice(&argument[..NOTED_WORDS]);
}
