//! What does not fit on the stack of 512 bytes.

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

/// The deepest path that is walked, in components and mounts.
pub(crate) const WALK_MAX: usize = ROUNDS * ROUNDS;

/// One component found on the way up.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WalkedComponent {
    pub(crate) hash: u64,
    pub(crate) len: u32,
    pub(crate) mounted: u32,
}

/// A component of an argument of which some whole words were read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) hash: u64,
    pub(crate) len: u32,
}

/// The last component so far of an argument.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Last {
    pub(crate) hash: u64,
    /// Its bytes after the last whole word.
    pub(crate) bytes: u64,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// State of the loops over components and bytes. It lies in a map because the verifier follows
/// every value that it can see in a register or on the stack: a counter that only some rounds
/// change multiplies the states of the loop by its values.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub(crate) part: Partial,
    /// Where in the argument.
    pub(crate) at: u32,
    /// Where the search in it began.
    pub(crate) from: u32,
    pub(crate) last: Last,
    pub(crate) place: KernelPath,
    pub(crate) components: u32,
    pub(crate) mounted: u32,
    pub(crate) steps: u32,
    /// End of the names written.
    pub(crate) end: u32,
}

/// A longer argument of a call that has failed is not remembered.
pub(crate) const NOTED_WORDS: usize = 8;
const _: () = assert!(NOTED_WORDS * 8 < ARGUMENT_MAX);

/// An object whose removal has failed, by what the call said of it: it is the same for as long as the directory's answer is, which is a
/// second, and nothing that had failed was removed.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) place: KernelPath,
    pub(crate) born_ns: u64,
    pub(crate) recoveries: u64,
    pub(crate) len: u64,
    pub(crate) argument: [u64; NOTED_WORDS],
}

/// A mask that tells the verifier the bound of an offset into [`Scratch::tail`], which the code keeps
/// anyway.
pub(crate) const OFFSET_MASK: usize = 8191;

/// What a step of a loop returns to it.
pub(crate) const GO_ON: u32 = 0;
/// The last step was taken.
pub(crate) const ARRIVED: u32 = 1;

/// Loops run in two levels of this many rounds at most. The verifier, which follows each round, has
/// 32 to follow instead of 256, and the start takes a third of the time.
pub(crate) const ROUNDS: usize = 16;

/// The memory of one [`super::slot::Slot`].
#[repr(C)]
pub(crate) struct Scratch {
    /// How many want it: see `claim`.
    pub(crate) claims: u64,
    pub(crate) call: Returned,
    /// The answer for the directory `known`, and the value of [`super::failures::MARKED`] it holds
    /// for. They stay from one call to the next.
    pub(crate) directory: Directory,
    pub(crate) known: KernelPath,
    pub(crate) failures: u64,
    /// Of the directory that is looked for in the cache, and where its mount sits.
    pub(crate) dentry: Dentry,
    pub(crate) mounted: Mounted,
    pub(crate) noted: Noted,
    pub(crate) held_back: HeldBack,
    pub(crate) state: Loop,
    pub(crate) components: [WalkedComponent; WALK_MAX],
    pub(crate) name: [u64; NAME_WORDS],
    /// With a word more, so that two can be read at each.
    pub(crate) argument: [u64; ARGUMENT_MAX / 8 + 1],
    pub(crate) head: RecordHead,
    /// Directly behind the head: both are sent as one.
    pub(crate) tail: [u8; TAIL_SIZE],
}

/// Names and argument at their longest, and one more name behind the last accepted.
pub(crate) const TAIL_SIZE: usize = BASE_MAX + ARGUMENT_MAX + 2 * NAME_SIZE;

const _: () = assert!(
    core::mem::offset_of!(Scratch, tail)
        == core::mem::offset_of!(Scratch, head) + size_of::<RecordHead>()
);
