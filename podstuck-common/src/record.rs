//! Who called what, and the records that the ring carries. All are `repr(C)` without padding.

/// Which system call, with `unlinkat` split by its flag.
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
    /// How many of them are counted: those above.
    pub const COUNT: usize = 5;
    /// `rename(2)` and its younger kin. Not counted: a target may have another path afterwards.
    pub const RENAME: u8 = 5;
    /// No call: a program of the `umount` kind was executed, and may call `umount2`.
    pub const EXEC: u8 = 6;
    /// Their names, as reports show them.
    pub const NAMES: [&str; COUNT] =
        ["umount2", "unlink", "unlinkat", "unlinkat+AT_REMOVEDIR", "rmdir"];
}

/// A process. By its id alone, one that is given the same id later would be taken for it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// When it was started, nanoseconds since boot, suspend included; 0 when unknown.
    pub started_ns: u64,
    /// Its id.
    pub tgid: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

impl Process {
    /// By its id and its start.
    #[inline(always)]
    pub const fn new(tgid: u32, started_ns: u64) -> Self {
        Self { started_ns, tgid, reserved: 0 }
    }
}

/// What the caller was, by its credentials. Bits of [`Caller::credentials`].
pub mod credential {
    /// The rest could be read.
    pub const KNOWN: u32 = 1;
    /// Its user and group ids are 0: the real, the effective, the saved ones and those for the file system.
    pub const IDS_0: u32 = 1 << 1;
    /// `CAP_SYS_ADMIN` is effective.
    pub const SYS_ADMIN: u32 = 1 << 2;
    /// Its user namespace is the first one.
    pub const FIRST_USER_NS: u32 = 1 << 3;
    /// All bits that make a process the node's root.
    pub const ROOT: u32 = KNOWN | IDS_0 | SYS_ADMIN | FIRST_USER_NS;
}

/// Who made the calls of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// When the process was started, nanoseconds since boot, suspend included; 0 when unknown. With its
    /// id, this names it.
    pub started_ns: u64,
    /// Id of its cgroup in the version 2 hierarchy.
    pub cgroup: u64,
    /// Thread name at its first call.
    pub comm: [u8; 16],
    /// Parent process.
    pub parent: u32,
    /// Inode number of its mount namespace.
    pub mnt_ns: u32,
    /// Name of the parent's main thread.
    pub parent_comm: [u8; 16],
    /// Bits of [`credential`], of the time of the call.
    pub credentials: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

impl Caller {
    /// Whether it was the node's root when it called: all its ids 0, with `CAP_SYS_ADMIN` in the first user
    /// namespace. `None` where it is not known.
    pub const fn is_root(&self) -> Option<bool> {
        match self.credentials {
            0 => None,
            credentials => Some(credentials == credential::ROOT),
        }
    }
}

/// Why a ring record was sent.
pub mod reason {
    /// The call failed in a target or below the only wanted directory, and neither with EISDIR nor
    /// with ENOENT.
    pub const FAILED: u32 = 1;
    /// The call took at least [`crate::config::Config::slow_ns`].
    pub const SLOW: u32 = 1 << 1;
    /// The path of this target was not sent to user space, or so long ago that the probes have dropped
    /// the note of it. The call may be the target's rename.
    pub const FIRST: u32 = 1 << 2;
    /// The call succeeded below a mount that sits inside the target.
    pub const CROSSED: u32 = 1 << 3;
    /// The root directory of the target was removed.
    pub const ROOT_GONE: u32 = 1 << 4;
    /// An object succeeded that had failed before.
    pub const RECOVERED: u32 = 1 << 5;
    /// Every unmount is reported.
    pub const UNMOUNT: u32 = 1 << 6;
    /// A sample of a directory whose trail had to be read again: it was not cached, or for more than a
    /// second, or it has changed. Sent inside targets and elsewhere.
    pub const DIRECTORY: u32 = 1 << 7;
    /// A sample of the calls that [`super::loss::LOOK_ALIKE`] counts.
    pub const LOOK_ALIKE: u32 = 1 << 8;
}

/// What may be wrong with the path of a record.
pub mod flaw {
    /// The directory part is longer than the walk goes; its beginning is missing.
    pub const CUT: u16 = 1;
    /// The argument could not be read from the caller's memory.
    pub const NO_ARGUMENT: u16 = 1 << 1;
    /// The directory could not be found from the descriptor.
    pub const NO_DIRECTORY: u16 = 1 << 2;
    /// The directory lies in a mount that is in no mount namespace, or no longer below the root of its
    /// mount: the path begins there.
    pub const UNREACHABLE: u16 = 1 << 3;
}

/// Bytes of the directory part of a record behind which no further name is added. As many as the longest path
/// argument has, so that a directory that was named by one is there as a whole.
pub const BASE_MAX: usize = 4096;
/// Longest path argument, in bytes, its terminating NUL included (`PATH_MAX`).
pub const ARGUMENT_MAX: usize = 4096;

/// The fixed part of a ring record. `base_len` bytes of NUL-terminated names follow, from the
/// directory up to the root of the caller's mount namespace, then `argument_len` bytes of the path
/// argument as the caller passed it, without NUL; of it only the last component where the directory is the one
/// that the kernel has resolved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// When the call returned, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// [`crate::trail::Trail::target`] of the object.
    pub target: u64,
    /// [`crate::trail::Trail::path`] of the object; 0 when its argument was not read.
    pub object: u64,
    /// Inode number of the directory that holds the object (of the base, for a longer argument).
    pub dir_ino: u64,
    /// Who called.
    pub actor: Caller,
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// The flags argument.
    pub flags: u32,
    /// Bits of [`reason`].
    pub reason: u32,
    /// Device number of the directory's file system, as `super_block.s_dev` has it.
    pub dir_dev: u32,
    /// `mount.mnt_id` of the mount that the directory was reached through.
    pub mount_id: u32,
    /// Similar records held back since the last one sent.
    pub suppressed: u32,
    /// Levels of the object below the target's root (0: the root itself, or above).
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
    /// Bytes of names that follow.
    pub base_len: u16,
    /// Bytes of the argument that follow the names.
    pub argument_len: u16,
}

/// Reasons for which something was lost or left out; index into the `LOSSES` map.
pub mod loss {
    /// A call could not be counted: the table of counts was full.
    pub const COUNTS_FULL: u32 = 0;
    /// A call could not be followed: the table of calls in flight was full.
    pub const IN_FLIGHT_FULL: u32 = 1;
    /// An entry was overwritten: the thread entered again without an exit seen.
    pub const OVERWRITTEN: u32 = 2;
    /// An exit without an entry: the call began before the probes, or its entry was lost.
    pub const UNMATCHED_EXIT: u32 = 3;
    /// A record did not fit into the ring.
    pub const RING_FULL: u32 = 4;
    /// A record was held back by the limit for its kind.
    pub const RATE_LIMITED: u32 = 5;
    /// The target is unknown: the path was longer than the walk goes.
    pub const PATH_CUT: u32 = 6;
    /// The target is unknown: the argument or the directory could not be read.
    pub const PATH_UNREADABLE: u32 = 7;
    /// A call outside the wanted target. Not a loss.
    pub const NOT_WANTED: u32 = 8;
    /// A call refused by seccomp, which shows its return only. It never ran. Not a loss.
    pub const REFUSED: u32 = 9;
    /// A deletion by io_uring, which no probe counts by its outcome.
    pub const IO_URING: u32 = 10;
    /// A call on a path that reads like a target and lies below no directory that is proven to hold
    /// any. It is counted without a target. Not a loss.
    pub const LOOK_ALIKE: u32 = 11;
    /// The outcome of a call is not known: as many as there is memory for were being looked at on its CPU.
    pub const NO_SLOT: u32 = 12;
    /// How many there are.
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
