//! Calls that were entered and have not returned.

use crate::{entry_point::EntryPointId, record::call};

/// How many slots the table of calls in flight has: a power of two. Threads whose ids share the
/// lower bits are in one slot in turn, or in the table beside it.
pub const IN_FLIGHT_SLOTS: u32 = 1024;

/// How many names of requests of io_uring are kept at a time.
pub const IO_URING_NAMES: u32 = 1024;
/// The longest of them, its terminating NUL included.
pub const IO_URING_NAME: usize = 1024;

/// `AT_FDCWD` of `fcntl.h`: the directory argument that stands for the working directory. Noted for
/// calls without a directory argument as well.
pub const AT_FDCWD: i32 = -100;

/// A call that was entered and has not returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// The thread, as `pid_tgid`; 0 in a slot that is free.
    pub thread: u64,
    /// How many threads want the slot now: a free one belongs to the thread that counts from 0 to 1.
    pub claims: u64,
    /// When it was entered, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// User-space address of the path argument.
    pub path: u64,
    /// Of a rename that of the second path argument, whose directory argument is in `flags`; of a deletion
    /// [`Resolved::dentry`].
    pub second: u64,
    /// [`Resolved::mnt`]
    pub mnt: u64,
    /// The directory argument, or [`AT_FDCWD`].
    pub dirfd: i32,
    /// The flags argument.
    pub flags: u32,
    /// [`Resolved::inode`]
    pub inode: u32,
    /// As in [`call`].
    pub call: u16,
    /// By which way it was entered: it returns by the same.
    pub entry_point: EntryPointId,
}

/// The directory that the kernel has resolved for a deletion, as addresses of its structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// `struct vfsmount *`
    pub mnt: u64,
    /// `struct dentry *`
    pub dentry: u64,
    /// The lower half of `struct inode *`, by which the dentry is known as that directory's.
    pub inode: u32,
}

impl InFlight {
    /// The directory that was resolved; none before, and where no hook reports it.
    #[inline(always)]
    pub const fn resolved(&self) -> Option<Resolved> {
        if self.second == 0 || self.call == call::RENAME as u16 {
            return None;
        }
        Some(Resolved { mnt: self.mnt, dentry: self.second, inode: self.inode })
    }
}

#[cfg(feature = "user")]
mod pod {
    use super::InFlight;
    // SAFETY: it is `repr(C)`, made of integers without padding (asserted below), and valid for
    // every bit pattern.
    unsafe impl aya::Pod for InFlight {}
}

// A cache line, on which the array of them begins.
const _: () = assert!(size_of::<InFlight>() == 64);
