//! Calls between entry and return.

use crate::{entry_point::EntryPointId, record::call};

/// Number of slots in the table of calls in flight, a power of two. Threads whose ids share the lower bits share a
/// slot; a thread that finds it in use goes to the secondary table.
pub const IN_FLIGHT_SLOTS: u32 = 1024;

/// Maximum number of stored names of io_uring requests.
pub const IO_URING_NAMES: u32 = 1024;
/// Maximum length of such a name, including its terminating NUL.
pub const IO_URING_NAME: usize = 1024;

/// `AT_FDCWD` of `fcntl.h`: the directory argument for the working directory. Also used for calls without a directory
/// argument.
pub const AT_FDCWD: i32 = -100;

/// A call between entry and return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// The thread, as `pid_tgid`; 0 in a free slot.
    pub thread: u64,
    /// Number of threads that currently claim the slot. The thread that raises it from 0 to 1 gets a free slot.
    pub claims: u64,
    /// Time of the entry, in `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// User-space address of the path argument.
    pub path: u64,
    /// For a rename, the second path argument, whose directory argument is in `flags`; for a deletion,
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
    /// The entry point of the call. It returns through the same one.
    pub entry_point: EntryPointId,
}

/// The directory that the kernel has resolved for a deletion, as addresses of kernel structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// `struct vfsmount *`
    pub mnt: u64,
    /// `struct dentry *`
    pub dentry: u64,
    /// The lower half of the address of `struct inode`, which confirms that the dentry is still that directory's.
    pub inode: u32,
}

impl InFlight {
    /// The resolved directory; `None` before it is resolved, and if no hook reports it.
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

// One cache line. The array of slots begins on a cache line as well.
const _: () = assert!(size_of::<InFlight>() == 64);
