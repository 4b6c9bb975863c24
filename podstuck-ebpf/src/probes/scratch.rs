//! Data that does not fit on the stack of 512 bytes.

use podstuck_common::{
    component::{NAME_SIZE, NAME_WORDS},
    record::{ARGUMENT_MAX, BASE_MAX, RecordHead},
};

use super::{
    kernel_path::{Dentry, KernelPath, Mounted},
    limit::HeldBack,
    maps::Directory,
    returned::Returned,
};

/// Maximum number of components and mounts of a walked path.
pub(crate) const WALK_MAX: usize = ROUNDS * ROUNDS;

/// A component found on the walk up.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WalkedComponent {
    pub(crate) hash: u64,
    pub(crate) len: u32,
    pub(crate) mounted: u32,
}

/// A component of an argument of which some complete words were read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) hash: u64,
    pub(crate) len: u32,
}

/// The last component of an argument so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Last {
    pub(crate) hash: u64,
    /// Its bytes after the last whole word.
    pub(crate) bytes: u64,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// State of the loops over components and bytes. It is in a map because the verifier tracks each value in a register
/// or on the stack: a counter that only some rounds change multiplies the states of the loop by its values.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub(crate) part: Partial,
    /// Offset in the argument.
    pub(crate) at: u32,
    /// Offset at which the search began.
    pub(crate) from: u32,
    pub(crate) last: Last,
    pub(crate) place: KernelPath,
    pub(crate) components: u32,
    pub(crate) mounted: u32,
    pub(crate) steps: u32,
    /// End of the names written so far.
    pub(crate) end: u32,
}

/// Number of words of an argument that are kept. A longer argument of a failed call is not kept.
pub(crate) const NOTED_WORDS: usize = 8;
const _: () = assert!(NOTED_WORDS * 8 < ARGUMENT_MAX);

/// An object whose removal failed, identified by the call's arguments. They mean the same object as long as the
/// directory's answer is valid, which is a second, and no failed object was removed.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) place: KernelPath,
    pub(crate) born_ns: u64,
    pub(crate) recoveries: u64,
    pub(crate) len: u64,
    pub(crate) argument: [u64; NOTED_WORDS],
}

/// A mask that gives the verifier the bound of an offset into [`Scratch::tail`], which always holds.
pub(crate) const OFFSET_MASK: usize = 8191;

/// Results of a loop's step: continue.
pub(crate) const GO_ON: u32 = 0;
/// The loop is complete.
pub(crate) const ARRIVED: u32 = 1;

/// Loops run on two levels, each with at most this many rounds. The verifier, which follows each round, then follows
/// 32 instead of 256, and the start takes a third of the time.
pub(crate) const ROUNDS: usize = 16;

/// The memory of one [`super::slot::Slot`].
#[repr(C)]
pub(crate) struct Scratch {
    /// Number of programs that claim it: see `claim`.
    pub(crate) claims: u64,
    pub(crate) call: Returned,
    /// The answer for the directory `known`, and the value of [`super::failures::MARKED`] for which it is valid. They
    /// are kept from one call to the next.
    pub(crate) directory: Directory,
    pub(crate) known: KernelPath,
    pub(crate) failures: u64,
    /// The directory that is looked up in the cache, and the place of its mount.
    pub(crate) dentry: Dentry,
    pub(crate) mounted: Mounted,
    pub(crate) noted: Noted,
    pub(crate) held_back: HeldBack,
    pub(crate) state: Loop,
    pub(crate) components: [WalkedComponent; WALK_MAX],
    pub(crate) name: [u64; NAME_WORDS],
    /// With an extra word, so that two can be read at each offset.
    pub(crate) argument: [u64; ARGUMENT_MAX / 8 + 1],
    pub(crate) head: RecordHead,
    /// Directly after the head: both are sent as one.
    pub(crate) tail: [u8; TAIL_SIZE],
}

/// The longest names and argument, and one more name after the last accepted one.
pub(crate) const TAIL_SIZE: usize = BASE_MAX + ARGUMENT_MAX + 2 * NAME_SIZE;

const _: () = assert!(
    core::mem::offset_of!(Scratch, tail)
        == core::mem::offset_of!(Scratch, head) + size_of::<RecordHead>()
);
