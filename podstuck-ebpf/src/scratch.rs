//! Room for what does not fit on the stack of 512 bytes.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use podstuck_common::{
    component::{NAME_SIZE, NAME_WORDS},
    record::{ARGUMENT_MAX, BASE_MAX, RecordHead},
};

use crate::{
    maps::{Directory, DirectoryKey},
    place::Place,
    returned::Returned,
};

/// The deepest path that is walked, in components and mounts.
pub(crate) const WALK_MAX: usize = ROUNDS * ROUNDS;

/// One component found on the way up.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Component {
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

/// State of the loops over components and bytes. It lies in a map because the verifier follows
/// every value that it can see in a register or on the stack: a counter that only some rounds
/// change multiplies the states of the loop by its values.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub(crate) part: Partial,
    /// Where in the argument.
    pub(crate) at: u32,
    pub(crate) place: Place,
    pub(crate) components: u32,
    pub(crate) mounted: u32,
    pub(crate) steps: u32,
    /// End of the names written.
    pub(crate) end: u32,
}

/// A mask that tells the verifier the bound of an offset into [`Scratch::tail`], which the code keeps
/// anyway.
pub(crate) const OFFSET_MASK: usize = 8191;

/// What a step of a loop tells the loop.
pub(crate) const GO_ON: u32 = 0;
/// The last step was taken.
pub(crate) const ARRIVED: u32 = 1;

/// Loops run in two levels of this many rounds at most. The verifier, which follows each round, has
/// 32 to follow instead of 256, and the start takes a third of the time.
pub(crate) const ROUNDS: usize = 16;

/// Which room a program uses. One for each hook and CPU is enough: the kernel never lets a program that
/// hangs on one run inside itself. Two may meet, because those on functions can be preempted.
pub(crate) mod room {
    pub(crate) const UMOUNT2: u32 = 0;
    pub(crate) const UNLINK: u32 = 1;
    pub(crate) const UNLINKAT: u32 = 2;
    pub(crate) const RMDIR: u32 = 3;
    pub(crate) const TRACEPOINT: u32 = 4;
    pub(crate) const RENAME: u32 = 5;
    pub(crate) const RENAMEAT: u32 = 6;
    pub(crate) const RENAMEAT2: u32 = 7;
    /// The first of five for the 32-bit interface.
    pub(crate) const FIRST_32: u32 = 8;
    pub(crate) const IO_URING: u32 = 13;
    pub(crate) const COUNT: usize = 14;
}

/// Room for what does not fit on the stack of 512 bytes.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) call: Returned,
    /// The answer for the directory `known`, and the value of [`crate::maps::FAILURES`] it holds
    /// for. They stay from one call to the next.
    pub(crate) directory: Directory,
    pub(crate) known: DirectoryKey,
    pub(crate) failures: u64,
    pub(crate) state: Loop,
    pub(crate) components: [Component; WALK_MAX],
    pub(crate) name: [u64; NAME_WORDS],
    pub(crate) argument: [u64; ARGUMENT_MAX / 8],
    pub(crate) head: RecordHead,
    /// Directly behind the head: both are sent as one.
    pub(crate) tail: [u8; TAIL_ROOM],
}

/// Names and argument at their longest, and room for one more name behind the last accepted.
pub(crate) const TAIL_ROOM: usize = BASE_MAX + ARGUMENT_MAX + 2 * NAME_SIZE;

const _: () = assert!(
    core::mem::offset_of!(Scratch, tail)
        == core::mem::offset_of!(Scratch, head) + size_of::<RecordHead>()
);

#[btf_map]
static SCRATCH: PerCpuArray<Scratch, { room::COUNT }> = PerCpuArray::new();

/// Room `n` of this CPU.
///
/// The larger steps find it here themselves and take and return only numbers: such functions with
/// an unmangled name are "global" to the verifier, which checks each once and by itself. Checked
/// as part of their callers, path by path, they exceed its limit of a million instructions.
///
/// A reference must not be used again after a call of such a function, which has one of its own:
/// fetch it anew. For the same reason it is never passed to a function that calls one.
#[inline(always)]
pub(crate) fn scratch(n: u32) -> Option<&'static mut Scratch> {
    let scratch = SCRATCH.get_ptr_mut(n)?;
    // SAFETY: the value lives as long as the map, and no other program uses this room.
    Some(unsafe { &mut *scratch })
}
