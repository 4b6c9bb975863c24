//! A call that has returned, and what was found out about its object.

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
    /// Of the object, once its argument was read; of its directory before.
    pub(crate) trail: Trail,
    pub(crate) process: Process,
    pub(crate) tid: u32,
    /// Length of the argument without NUL, or of its last component where only that counts; [`NOT_READ`] before.
    pub(crate) argument: u32,
    /// Where in the argument that component begins.
    pub(crate) last: u32,
    pub(crate) errno: u16,
    /// `Trail::mount_depth` of the directory.
    pub(crate) mount_depth: u8,
    /// The removal of an object in the directory has failed before.
    pub(crate) has_failed: bool,
    /// The directory was not in the cache.
    pub(crate) fresh: bool,
    /// The trail is the object's.
    pub(crate) followed: bool,
    /// Its path reads like a target's: [`look_alike`].
    pub(crate) look_alike: u8,
    /// `place` is the directory that the kernel has resolved: of the argument, only the last component counts.
    pub(crate) resolved: bool,
}

/// Whose call it is that only reads like one on a target.
pub(crate) mod look_alike {
    /// It does not read so.
    pub(crate) const NONE: u8 = 0;
    pub(crate) const ANYBODYS: u8 = 1;
    /// Of the node's root.
    pub(crate) const ROOTS: u8 = 2;
}

impl Returned {
    /// Whether it was made by io_uring, perhaps on a worker: a thread of its process with a name of
    /// the kernel's choice.
    #[inline(always)]
    pub(crate) fn of_io_uring(&self) -> bool {
        self.entry.entry_point == EntryPointId::IO_UNLINKAT
    }
}

/// The argument of a call was not read, or cannot be.
pub(crate) const NOT_READ: u32 = u32::MAX;
