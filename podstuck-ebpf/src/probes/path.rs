//! The path argument of a call: where it starts, and the trail it continues.

use core::hint::black_box;

use podstuck_common::{
    component::{ComponentEnd, mix, unaligned},
    record::{AT_FDCWD, InFlight},
    trail::Trail,
};

use super::{
    argument,
    globals::config,
    kernel_path::KernelPath,
    moved, process, roots,
    scratch::{ARRIVED, GO_ON, Partial, ROUNDS, Scratch},
    slot::global_function,
};

/// How much of an argument is searched for a target. Pod volumes end within 400 bytes: kubelet's
/// root, a UID, a plugin and a volume of at most 253 characters. Each of the 256 rounds of the search
/// ends a component, or takes 128 bytes.
const SEARCHED: u32 = 512;

/// The directory that the argument starts from, if it can be found.
#[inline(always)]
pub(crate) fn start(entry: &InFlight, first: u8) -> Option<KernelPath> {
    let place = if first == b'/' {
        process::root()
    } else if entry.dirfd != AT_FDCWD {
        process::descriptor(entry.dirfd)
    } else {
        process::working_directory()
    };
    place.filter(|place| !place.is_none())
}

global_function! {
    /// Continues the trail with the argument.
    pub(crate) fn follow(slot) -> u32 {
        let Some(scratch) = slot.scratch() else { return 0 };
        if argument::read(scratch).is_none() {
            return 0;
        }
        scratch.call.followed = true;
        scratch.state.part = EMPTY;
        scratch.state.at = 0;
        for _ in 0..ROUNDS {
            if follow_some(slot) == ARRIVED {
                return 0;
            }
        }
        if let Some(scratch) = slot.scratch() {
            cut_short(&mut scratch.call.trail);
        }
        0
    }
}

/// The argument goes on.
#[inline(always)]
fn cut_short(trail: &mut Trail) {
    if !trail.settled(config()) {
        trail.cut = 1;
    }
}

global_function! {
    fn follow_some(slot) -> u32 {
        for _ in 0..ROUNDS {
            if follow_one(slot) == ARRIVED {
                return ARRIVED;
            }
        }
        GO_ON
    }
}

global_function! {
    /// Reads up to the end of a component, and takes it.
    fn follow_one(slot) -> u32 {
        let Some(scratch) = slot.scratch() else { return ARRIVED };
        for _ in 0..ROUNDS {
            if scratch.state.at >= SEARCHED {
                cut_short(&mut scratch.call.trail);
                return ARRIVED;
            }
            let word = next(scratch);
            let Some(end) = ComponentEnd::find(word) else {
                scratch.state.part.hash = mix(scratch.state.part.hash, word);
                scratch.state.part.len += 8;
                scratch.state.at += 8;
                continue;
            };
            scratch.state.at += end.len + 1;
            let Partial { hash, len } = scratch.state.part;
            scratch.state.part = EMPTY;
            let hash = if end.len == 0 { hash } else { mix(hash, end.bytes) };
            step(&mut scratch.call.trail, hash, len + end.len, end.bytes);
            return if end.last { ARRIVED } else { GO_ON };
        }
        GO_ON
    }
}

/// The next eight bytes of the argument.
#[inline(always)]
fn next(scratch: &Scratch) -> u64 {
    let at = scratch.state.at;
    // A mask that the compiler cannot see through: it tells the verifier the bound that holds.
    let index = black_box(at as usize / 8) & (SEARCHED as usize / 8 - 1);
    unaligned(scratch.argument[index], scratch.argument[index + 1], at)
}

const EMPTY: Partial = Partial { hash: 0, len: 0 };

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
        if !trail.settled(config()) {
            *trail = Trail { cut: 1, ..Trail::default() };
        }
        return;
    }
    trail.step(config(), mix(hash, u64::from(len)), len, false);
    roots::enter(trail);
    moved::adopt(trail);
}
