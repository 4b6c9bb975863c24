//! A returned call, and the data about its object.

use podstuck_common::{
    entry_point::EntryPointId, in_flight::InFlight, record::Process, trail::Trail,
};

use super::kernel_path::KernelPath;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Returned {
    pub(crate) entry: InFlight,
    pub(crate) now: u64,
    pub(crate) duration_ns: u64,
    pub(crate) place: KernelPath,
    /// The object's trail after its argument was read; the directory's before.
    pub(crate) trail: Trail,
    pub(crate) process: Process,
    pub(crate) tid: u32,
    /// Length of the argument without NUL, or of its last component if only that matters; [`NOT_READ`] before.
    pub(crate) argument: u32,
    /// Offset of that component in the argument.
    pub(crate) last: u32,
    pub(crate) errno: u16,
    /// `Trail::mount_depth` of the directory.
    pub(crate) mount_depth: u8,
    /// Whether the removal of an object in the directory failed before.
    pub(crate) has_failed: bool,
    /// Whether the directory was not in the cache.
    pub(crate) fresh: bool,
    /// Whether the trail is the object's.
    pub(crate) followed: bool,
    /// Whether its path only looks like a target's: [`look_alike`].
    pub(crate) look_alike: u8,
    /// Whether `place` is the directory that the kernel has resolved, so that only the last component of the argument
    /// matters.
    pub(crate) resolved: bool,
}

/// The kinds of callers of a look-alike call.
pub(crate) mod look_alike {
    /// Not a look-alike.
    pub(crate) const NONE: u8 = 0;
    pub(crate) const ANYBODYS: u8 = 1;
    /// By the node's root.
    pub(crate) const ROOTS: u8 = 2;
}

impl Returned {
    /// Whether io_uring made the call, perhaps on a worker: a thread of the process whose name the kernel chooses.
    #[inline(always)]
    pub(crate) fn of_io_uring(&self) -> bool {
        self.entry.entry_point == EntryPointId::IO_UNLINKAT
    }
}

/// The argument was not read or cannot be read.
pub(crate) const NOT_READ: u32 = u32::MAX;
