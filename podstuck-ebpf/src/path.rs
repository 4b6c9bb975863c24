//! The path argument of a call: where it starts, and the trail it continues.

use podstuck_common::{
    component::{ComponentEnd, mix, unaligned},
    record::InFlight,
    trail::Trail,
};

use crate::{
    argument, kernel,
    maps::config,
    place::Place,
    rename,
    scratch::{ARRIVED, GO_ON, Partial, ROUNDS, Scratch, scratch},
};

/// `AT_FDCWD` of `fcntl.h`: what the calls without a directory argument have as well.
pub(crate) const AT_FDCWD: i32 = -100;
/// How much of an argument is searched for a target. Pod volumes end within 400 bytes: kubelet's
/// root, a UID, a plugin and a volume of at most 253 characters. Each of the 256 rounds of the search
/// takes eight bytes or ends a component.
const SEARCHED: u32 = 512;

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
    if argument::read(room).is_none() {
        return 0;
    }
    room.call.followed = true;
    room.state.part = EMPTY;
    room.state.at = 0;
    for _ in 0..ROUNDS {
        if follow_some(n) == ARRIVED {
            return 0;
        }
    }
    if let Some(room) = scratch(n)
        && !room.call.trail.settled()
    {
        room.call.trail.cut = 1;
    }
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn follow_some(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return ARRIVED };
    // A pointer, because a reference must not outlive the calls of `take`.
    let room: *mut Scratch = room;
    for _ in 0..ROUNDS {
        // SAFETY: the room outlives the program, and this reference ends before `take` is called.
        let room = unsafe { &mut *room };
        if room.state.at >= SEARCHED {
            return GO_ON;
        }
        let word = next(room);
        if ComponentEnd::find(word).is_none() {
            room.state.part.hash = mix(room.state.part.hash, word);
            room.state.part.len += 8;
            room.state.at += 8;
        } else if take(n) == ARRIVED {
            return ARRIVED;
        }
    }
    GO_ON
}

const EMPTY: Partial = Partial { hash: 0, len: 0 };

/// The next eight bytes of the argument.
#[inline(always)]
fn next(room: &Scratch) -> u64 {
    let at = room.state.at;
    let index = (at as usize / 8) & (SEARCHED as usize / 8 - 1);
    unaligned(room.argument[index], room.argument[index + 1], at)
}

/// Takes the component that ends within the next eight bytes of the argument.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take(n: u32) -> u32 {
    let Some(room) = scratch(n) else { return ARRIVED };
    let Some(end) = ComponentEnd::find(next(room)) else { return ARRIVED };
    room.state.at += end.len + 1;
    let Partial { hash, len } = room.state.part;
    room.state.part = EMPTY;
    let hash = if end.len == 0 { hash } else { mix(hash, end.bytes) };
    step(&mut room.call.trail, hash, len + end.len, end.bytes);
    if end.last { ARRIVED } else { GO_ON }
}

/// Takes a whole component, of which `bytes` are the last up to seven.
#[inline(always)]
fn step(trail: &mut Trail, hash: u64, len: u32, bytes: u64) {
    const DOT: u64 = b'.' as u64;
    if len == 0 || (len == 1 && bytes == DOT) {
        return;
    }
    if len == 2 && bytes == DOT << 8 | DOT {
        // Going up would need what came before: leave the target unknown rather than wrong. Below
        // a target's root the call was counted for it, and its record agrees.
        if !trail.settled() {
            *trail = Trail { cut: 1, ..Trail::default() };
        }
        return;
    }
    trail.step(config(), mix(hash, u64::from(len)), len, false);
    rename::adopt(trail);
}
