//! Callers, calls, and the records of the ring buffer. All types are `repr(C)` without padding.

/// System calls. `unlinkat` is split by its flag.
pub mod call {
    /// `umount2(2)`, whose tracepoint is called `umount`.
    pub const UMOUNT2: u8 = 0;
    /// `unlink(2)`
    pub const UNLINK: u8 = 1;
    /// `unlinkat(2)` without `AT_REMOVEDIR`
    pub const UNLINKAT: u8 = 2;
    /// `unlinkat(2)` with `AT_REMOVEDIR`
    pub const UNLINKAT_DIR: u8 = 3;
    /// `rmdir(2)`
    pub const RMDIR: u8 = 4;
    /// Number of the counted calls, which are those above.
    pub const COUNT: usize = 5;
    /// `rename(2)` and its variants. Not counted: afterwards a target may have another path.
    pub const RENAME: u8 = 5;
    /// Not a call: a program of the `umount` kind was executed and may call `umount2`.
    pub const EXEC: u8 = 6;
    /// Names of the counted calls in reports.
    pub const NAMES: [&str; COUNT] =
        ["umount2", "unlink", "unlinkat", "unlinkat+AT_REMOVEDIR", "rmdir"];
}

/// A process. The start time distinguishes it from a later process with the same id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// Start time in nanoseconds since boot, including suspend; 0 if unknown.
    pub started_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

impl Process {
    /// A process by its id and start time.
    #[inline(always)]
    pub const fn new(tgid: u32, started_ns: u64) -> Self {
        Self { started_ns, tgid, reserved: 0 }
    }
}

/// The caller's credentials. Bits of [`Caller::credentials`].
pub mod credential {
    /// The other bits could be read.
    pub const KNOWN: u32 = 1;
    /// All its user and group ids are 0: real, effective, saved and file system ids.
    pub const IDS_0: u32 = 1 << 1;
    /// `CAP_SYS_ADMIN` is effective.
    pub const SYS_ADMIN: u32 = 1 << 2;
    /// Its user namespace is the initial one.
    pub const FIRST_USER_NS: u32 = 1 << 3;
    /// The bits of the node's root.
    pub const ROOT: u32 = KNOWN | IDS_0 | SYS_ADMIN | FIRST_USER_NS;
}

/// The process that made a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Start time of the process in nanoseconds since boot, including suspend; 0 if unknown. Identifies the process
    /// together with its id.
    pub started_ns: u64,
    /// Id of its cgroup in the version 2 hierarchy.
    pub cgroup: u64,
    /// Thread name at the first call.
    pub comm: [u8; 16],
    /// Process id of the parent.
    pub parent: u32,
    /// Inode number of its mount namespace.
    pub mnt_ns: u32,
    /// Name of the parent's main thread.
    pub parent_comm: [u8; 16],
    /// Bits of [`credential`] at the time of the call.
    pub credentials: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

impl Caller {
    /// Whether the caller was the node's root: all ids 0, and `CAP_SYS_ADMIN` in the initial user namespace. `None`
    /// if unknown.
    pub const fn is_root(&self) -> Option<bool> {
        match self.credentials {
            0 => None,
            credentials => Some(credentials == credential::ROOT),
        }
    }
}

/// Reasons to send a ring record.
pub mod reason {
    /// The call failed in a target or in the only wanted directory, with an errno other than EISDIR and ENOENT.
    pub const FAILED: u32 = 1;
    /// The call took at least [`crate::config::Config::slow_ns`].
    pub const SLOW: u32 = 1 << 1;
    /// The path of this target was not sent to user space, or the probes have dropped the note of it. The call may be
    /// the target's rename.
    pub const FIRST: u32 = 1 << 2;
    /// The call succeeded below a mount point inside the target.
    pub const CROSSED: u32 = 1 << 3;
    /// The root directory of the target was removed.
    pub const ROOT_GONE: u32 = 1 << 4;
    /// The removal of an object succeeded after a failure.
    pub const RECOVERED: u32 = 1 << 5;
    /// The call is an unmount. Each is reported.
    pub const UNMOUNT: u32 = 1 << 6;
    /// A sample of the directories whose trail was read again, because it was not cached, was cached for more than a
    /// second, or had changed. Sent inside and outside of targets.
    pub const DIRECTORY: u32 = 1 << 7;
    /// A sample of the calls that [`super::loss::LOOK_ALIKE`] counts.
    pub const LOOK_ALIKE: u32 = 1 << 8;
}

/// Possible flaws of a record's path.
pub mod flaw {
    /// The directory is deeper than the walk goes; the start of its path is missing.
    pub const CUT: u16 = 1;
    /// The argument could not be read from the caller's memory.
    pub const NO_ARGUMENT: u16 = 1 << 1;
    /// The directory could not be determined from the descriptor.
    pub const NO_DIRECTORY: u16 = 1 << 2;
    /// The directory is in a mount without a mount namespace, or no longer below the root of its mount: the path
    /// begins there.
    pub const UNREACHABLE: u16 = 1 << 3;
}

/// Length of a record's directory part after which no name is added, in bytes. Equal to the longest path argument, so
/// that a directory that was named by an argument fits completely.
pub const BASE_MAX: usize = 4096;
/// Longest path argument, in bytes, its terminating NUL included (`PATH_MAX`).
pub const ARGUMENT_MAX: usize = 4096;

/// The fixed part of a ring record. `base_len` bytes of NUL-terminated names follow, from the directory up to the
/// root of the caller's mount namespace, then `argument_len` bytes of the path argument as the caller passed it,
/// without NUL. If the directory is the one that the kernel has resolved, the argument is only its last component.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// When the call returned, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Duration of the call, in nanoseconds.
    pub duration_ns: u64,
    /// [`crate::trail::Trail::target`] of the object.
    pub target: u64,
    /// [`crate::trail::Trail::path`] of the object; 0 when its argument was not read.
    pub object: u64,
    /// Inode number of the directory that holds the object (of the base, for a longer argument).
    pub dir_ino: u64,
    /// The caller.
    pub actor: Caller,
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// The flags argument of the call.
    pub flags: u32,
    /// Bits of [`reason`].
    pub reason: u32,
    /// Device number of the directory's file system, as `super_block.s_dev` has it.
    pub dir_dev: u32,
    /// `mount.mnt_id` of the mount that the directory was reached through.
    pub mount_id: u32,
    /// Number of similar records that were suppressed since the last one that was sent.
    pub suppressed: u32,
    /// Number of levels from the target's root to the object (0: the root itself, or above it).
    pub depth: u8,
    /// See [`crate::trail::Trail::mount_depth`].
    pub mount_depth: u8,
    /// As in [`call`].
    pub call: u8,
    /// Padding, always 0.
    pub reserved: u8,
    /// The errno, 0 for success.
    pub errno: u16,
    /// Bits of [`flaw`].
    pub flaws: u16,
    /// Length of the names that follow, in bytes.
    pub base_len: u16,
    /// Length of the argument that follows the names, in bytes.
    pub argument_len: u16,
}

/// Losses and omissions; index into the `LOSSES` map.
pub mod loss {
    /// A call could not be counted: the table of counts was full.
    pub const COUNTS_FULL: u32 = 0;
    /// A call could not be tracked: the table of calls in flight was full.
    pub const IN_FLIGHT_FULL: u32 = 1;
    /// An entry was overwritten: the thread entered again without an observed exit.
    pub const OVERWRITTEN: u32 = 2;
    /// An exit without an entry: the call began before the probes, or its entry was lost.
    pub const UNMATCHED_EXIT: u32 = 3;
    /// A record did not fit into the ring.
    pub const RING_FULL: u32 = 4;
    /// A record was suppressed by the rate limit of its kind.
    pub const RATE_LIMITED: u32 = 5;
    /// The target is unknown: the path is longer than the walk goes.
    pub const PATH_CUT: u32 = 6;
    /// The target is unknown: the argument or the directory could not be read.
    pub const PATH_UNREADABLE: u32 = 7;
    /// A call outside the wanted target. Not a loss.
    pub const NOT_WANTED: u32 = 8;
    /// A call that seccomp refused, for which only the return is visible. It was never executed. Not a loss.
    pub const REFUSED: u32 = 9;
    /// A deletion by io_uring whose outcome no probe counts.
    pub const IO_URING: u32 = 10;
    /// A call on a path that looks like a target's but is below no proven directory. It is counted without a target.
    /// Not a loss.
    pub const LOOK_ALIKE: u32 = 11;
    /// The outcome of a call is unknown: all slots of its CPU were in use.
    pub const NO_SLOT: u32 = 12;
    /// Number of reasons.
    pub const COUNT: u32 = 13;
}

#[cfg(feature = "user")]
mod pod {
    use super::{Caller, Process, RecordHead};
    // SAFETY: each is `repr(C)`, made of integers without padding (asserted below), and valid for
    // every bit pattern.
    unsafe impl aya::Pod for Process {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Caller {}
    // SAFETY: as above.
    unsafe impl aya::Pod for RecordHead {}
}

const _: () = assert!(size_of::<Process>() == 16);
const _: () = assert!(size_of::<Caller>() == 64);
const _: () = assert!(size_of::<RecordHead>() == 5 * 8 + 64 + 7 * 4 + 4 + 4 * 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_who_has_all_of_it() {
        let is_root = |credentials| Caller { credentials, ..Caller::default() }.is_root();
        assert_eq!((is_root(0), is_root(credential::ROOT)), (None, Some(true)));
        for lacking in [credential::IDS_0, credential::SYS_ADMIN, credential::FIRST_USER_NS] {
            assert_eq!(is_root(credential::ROOT & !lacking), Some(false));
        }
    }

    #[test]
    fn records_have_no_padding() {
        assert_eq!(size_of::<RecordHead>(), 144);
        assert_eq!(size_of::<RecordHead>() % 8, 0);
    }
}
