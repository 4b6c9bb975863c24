//! The path argument of a call, which continues the directory's trail.

use core::hint::black_box;

use podstuck_common::{
    component::{ComponentEnd, mix, unaligned},
    record::ARGUMENT_MAX,
    trail::Trail,
};

use super::{
    argument,
    globals::config,
    last, moved, roots,
    scratch::{ARRIVED, GO_ON, Last, Partial, ROUNDS, Scratch},
    slot::{Slot, global_function},
    words,
};

/// How many bytes of an argument are searched for a target. Pod volumes end within 400 bytes: kubelet's root, a UID,
/// a plugin and a volume of at most 253 characters. Each of the 256 rounds ends a component or takes 128 bytes.
const SEARCHED: u32 = 512;

global_function! {
    /// Continues the trail with the argument, or with its last component if the directory is resolved.
    pub(crate) fn follow(slot) -> u32 {
        let scratch = slot.scratch();
        let Some(len) = argument::read(scratch) else {
            if scratch.call.resolved {
                last::not_found(&mut scratch.call);
            }
            return 0;
        };
        scratch.call.followed = true;
        scratch.state.part = EMPTY;
        scratch.state.from =
            if scratch.call.resolved { last::search_from(len) } else { 0 };
        scratch.state.at = scratch.state.from;
        scratch.state.last.len = 0;
        for _ in 0..ROUNDS {
            if follow_some(slot) == ARRIVED {
                arrive(slot);
                return 0;
            }
        }
        let scratch = slot.scratch();
        cut_short(&mut scratch.call.trail);
        scratch.state.last.len = 0;
        arrive(slot);
        0
    }
}

/// The argument was read to its end. If only its last component matters, takes it now.
#[inline(always)]
fn arrive(slot: &mut Slot) {
    let scratch = slot.scratch();
    if !scratch.call.resolved {
        return;
    }
    match last::found(scratch) {
        Some(Last { hash, bytes, len, .. }) => step(&mut scratch.call.trail, hash, len, bytes),
        None => last::not_found(&mut scratch.call),
    }
}

/// The argument is longer than the search.
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
    /// Reads to the end of a component and takes it.
    fn follow_one(slot) -> u32 {
        let scratch = slot.scratch();
        for _ in 0..ROUNDS {
            if scratch.state.at - scratch.state.from >= SEARCHED {
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
            let Partial { hash, len } = scratch.state.part;
            let at = scratch.state.at - len;
            scratch.state.at += end.len + 1;
            scratch.state.part = EMPTY;
            let hash = if end.len == 0 { hash } else { mix(hash, end.bytes) };
            let (len, bytes) = (len + end.len, end.bytes);
            if scratch.call.resolved {
                last::note(scratch, Last { hash, bytes, at, len });
            } else {
                step(&mut scratch.call.trail, hash, len, bytes);
            }
            return if end.last { ARRIVED } else { GO_ON };
        }
        GO_ON
    }
}

/// The next eight bytes of the argument.
#[inline(always)]
fn next(scratch: &Scratch) -> u64 {
    let at = scratch.state.at;
    // A mask that the compiler cannot analyse: it gives the verifier the bound, which always holds.
    let index = black_box(at as usize / 8) & (ARGUMENT_MAX / 8 - 1);
    unaligned(scratch.argument[index], scratch.argument[index + 1], at)
}

const EMPTY: Partial = Partial { hash: 0, len: 0 };

/// Takes a complete component; `bytes` are its last bytes, up to seven.
#[inline(always)]
fn step(trail: &mut Trail, hash: u64, len: u32, bytes: u64) {
    const DOT: u64 = b'.' as u64;
    if len == 0 || (len == 1 && bytes == DOT) {
        return;
    }
    if len == 2 && bytes == DOT << 8 | DOT {
        // A step up would need the earlier components, so the target is left unknown rather than wrong. Below a
        // target's root, the call is counted for that target, and its record agrees.
        if !trail.settled(config()) {
            words::clear(trail);
            trail.cut = 1;
        }
        return;
    }
    trail.step(config(), mix(hash, u64::from(len)), len, false);
    roots::enter(trail);
    moved::adopt(trail);
}
