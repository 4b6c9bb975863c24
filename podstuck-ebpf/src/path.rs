//! The path argument of a call: where it starts, its text, and the trail it continues.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use podstuck_common::{
    record::{ARGUMENT_MAX, InFlight},
    trail::{Trail, mix},
};

use crate::{
    kernel,
    maps::config,
    place::Place,
    scratch::{NOT_READ, Partial, Scratch, scratch},
};

/// `AT_FDCWD` of `fcntl.h`: what the calls without a directory argument have as well.
pub(crate) const AT_FDCWD: i32 = -100;
/// How much of an argument is searched for a target. Pod volumes end within 400 bytes: kubelet's
/// root, a UID, a plugin and a volume of at most 253 characters.
const SEARCHED: usize = 512;

/// The first byte of the argument; `None` when the caller's memory cannot be read.
///
/// Without a directory descriptor the argument is nearly always absolute, and will be read anyway.
#[inline(always)]
pub(crate) fn first_byte(room: &mut Scratch) -> Option<u8> {
    if room.call.entry.dirfd == AT_FDCWD {
        read(room)?;
        return Some(room.argument[0]);
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(room.call.entry.path as *const u8) }.ok()
}

/// Reads the argument; `None` when the caller's memory cannot be read.
#[inline(always)]
fn read(room: &mut Scratch) -> Option<u32> {
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

/// The directory that the argument starts from, if it can be found.
#[inline(always)]
pub(crate) fn start(entry: &InFlight, first: u8) -> Option<Place> {
    let place = if first == b'/' {
        kernel::root()
    } else if entry.dirfd != AT_FDCWD {
        kernel::descriptor(entry.dirfd)
    } else {
        kernel::working_directory()
    };
    place.filter(|place| !place.is_none())
}

/// Continues the trail with the argument. See [`crate::scratch::scratch`] for the signature.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn follow(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return 0 };
    let Some(len) = read(room) else { return 0 };
    room.state.part = EMPTY;
    // A pointer instead of a reference fetched anew in each round, which would multiply the states
    // of the loop for the verifier.
    let room: *mut Scratch = room;
    for i in 0..SEARCHED {
        if i as u32 >= len {
            break;
        }
        // SAFETY: the room outlives the program, and this reference ends before `take` is called.
        let byte = unsafe { &(*room).argument }.get(i);
        match byte.copied() {
            None => break,
            Some(b'/') => {
                take(n);
            }
            // SAFETY: as above.
            Some(byte) => push(unsafe { &mut (*room).state.part }, byte),
        }
    }
    take(n);
    // SAFETY: as above.
    let trail = unsafe { &mut (*room).call.trail };
    if len as usize > SEARCHED && !trail.settled() {
        trail.cut = 1;
    }
    0
}

/// Adds a byte to a component.
#[inline(always)]
fn push(part: &mut Partial, byte: u8) {
    part.word |= u64::from(byte) << (8 * (part.len & 7));
    part.dots += u32::from(byte == b'.');
    part.len += 1;
    if part.len & 7 == 0 {
        part.hash = mix(part.hash, part.word);
        part.word = 0;
    }
}

const EMPTY: Partial = Partial { hash: 0, word: 0, len: 0, dots: 0 };

/// Ends a component: the counterpart of `trail::component_hash`, byte by byte.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return 0 };
    let trail = &mut room.call.trail;
    let Partial { hash, word, len, dots } = room.state.part;
    room.state.part = EMPTY;
    if len == 0 || (len == 1 && dots == 1) {
        return 0;
    }
    if len == 2 && dots == 2 {
        // Going up would need what came before: leave the target unknown rather than wrong. Below
        // a target's root the call was counted for it, and its record agrees.
        if !trail.settled() {
            *trail = Trail { cut: 1, ..Trail::default() };
        }
        return 0;
    }
    let hash = if len & 7 == 0 { hash } else { mix(hash, word) };
    trail.step(config(), mix(hash, u64::from(len)), len, false);
    0
}
