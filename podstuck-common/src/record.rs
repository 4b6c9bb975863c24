//! Map keys, map values and ring records. All are `repr(C)` without padding.

use crate::entry_point::EntryPointId;

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

/// What is counted apart: one key for each combination that occurred.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountKey {
    /// [`crate::trail::Trail::target`]
    pub target: u64,
    /// [`Process::started_ns`] of the process that made the call.
    pub started_ns: u64,
    /// Its id.
    pub tgid: u32,
    /// Latency bucket (12 bits), lane (4 bits), errno (12 bits), call (4 bits), from the lowest bit up.
    pub what: u32,
}

const _: () = assert!(crate::bucket::BUCKETS <= CountKey::BUCKET_MASK);

impl CountKey {
    const BUCKET_MASK: u16 = 0x0fff;

    /// Packs a key, in lane 0.
    #[inline(always)]
    pub const fn new(target: u64, process: Process, call: u8, errno: u16, bucket: u16) -> Self {
        let what = bucket as u32 | (errno as u32 & 0xfff) << 16 | (call as u32) << 28;
        let Process { started_ns, tgid, .. } = process;
        Self { target, started_ns, tgid, what }
    }

    /// The same in the lane of a slot: one at a time on a CPU adds to an entry, so that none of its words needs an
    /// instruction that others cannot come between. Lanes are added up by user space.
    #[inline(always)]
    pub const fn in_lane(mut self, lane: u32) -> Self {
        self.what = self.what & !(0xf << 12) | (lane & 0xf) << 12;
        self
    }

    /// The process that made the call.
    pub const fn process(&self) -> Process {
        Process::new(self.tgid, self.started_ns)
    }

    /// The call, as in [`call`].
    pub const fn call(&self) -> u8 {
        (self.what >> 28) as u8
    }

    /// The errno, 0 for success.
    pub const fn errno(&self) -> u16 {
        (self.what >> 16) as u16 & 0xfff
    }

    /// The latency bucket.
    pub const fn bucket(&self) -> u16 {
        self.what as u16 & Self::BUCKET_MASK
    }
}

/// Entries of a table of counts. Each takes room for every CPU that there may be, so they are few, and user space
/// empties the table sooner when it fills.
pub const COUNTS: usize = 2048;

/// One CPU's share of a count.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// How many calls.
    pub calls: u64,
    /// Their summed duration in nanoseconds.
    pub total_ns: u64,
    /// The shortest of them in nanoseconds, and never 0; 0 while there is none, and where it is not known.
    pub min_ns: u64,
    /// The longest of them; 0 in the same way.
    pub max_ns: u64,
}

impl CallTotals {
    /// So many calls that took that long each.
    pub const fn of_equal(calls: u64, ns: u64) -> Self {
        // One that took no time at all took less than the clock shows.
        let ns = if ns == 0 { 1 } else { ns };
        Self { calls, total_ns: calls * ns, min_ns: ns, max_ns: ns }
    }

    /// Adds the calls of another CPU, or of another time.
    pub fn merge(&mut self, other: &Self) {
        if other.calls == 0 {
            return;
        }
        // Where it is not known of some, it is not of all.
        let is_known = (self.calls == 0 || self.min_ns != 0) && other.min_ns != 0;
        let (min_ns, max_ns) = match (is_known, self.calls) {
            (false, _) => (0, 0),
            (true, 0) => (other.min_ns, other.max_ns),
            (true, _) => (self.min_ns.min(other.min_ns), self.max_ns.max(other.max_ns)),
        };
        (self.min_ns, self.max_ns) = (min_ns, max_ns);
        self.calls += other.calls;
        self.total_ns += other.total_ns;
    }
}

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
    /// How many threads want the slot now: a free one belongs to who counts from 0 to 1.
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
    /// The directory that was resolved; none before, and where no hook tells.
    #[inline(always)]
    pub const fn resolved(&self) -> Option<Resolved> {
        if self.second == 0 || self.call == call::RENAME as u16 {
            return None;
        }
        Some(Resolved { mnt: self.mnt, dentry: self.second, inode: self.inode })
    }
}

/// What the caller was, by its credentials. Bits of [`Caller::credentials`].
pub mod credential {
    /// The rest could be read.
    pub const KNOWN: u32 = 1;
    /// Its effective user is 0.
    pub const USER_0: u32 = 1 << 1;
    /// `CAP_SYS_ADMIN` is effective.
    pub const SYS_ADMIN: u32 = 1 << 2;
    /// Its user namespace is the first one.
    pub const FIRST_USER_NS: u32 = 1 << 3;
    /// All that makes somebody the node's root.
    pub const ROOT: u32 = KNOWN | USER_0 | SYS_ADMIN | FIRST_USER_NS;
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
    /// Whether it was the node's root when it called: effective user 0 with `CAP_SYS_ADMIN` in the first user
    /// namespace. `None` where nobody has told.
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
    /// A sample of a directory whose trail had to be read anew: it was not cached, or for more than a
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
    use super::{CallTotals, Caller, CountKey, InFlight, Process, RecordHead};
    // SAFETY: each is `repr(C)`, made of integers without padding (asserted below), and valid for
    // every bit pattern.
    unsafe impl aya::Pod for CountKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Process {}
    // SAFETY: as above.
    unsafe impl aya::Pod for CallTotals {}
    // SAFETY: as above.
    unsafe impl aya::Pod for InFlight {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Caller {}
    // SAFETY: as above.
    unsafe impl aya::Pod for RecordHead {}
}

const _: () = assert!(size_of::<Process>() == 16);
const _: () = assert!(size_of::<CountKey>() == 24);
const _: () = assert!(size_of::<CallTotals>() == 32);
// A cache line, on which the array of them begins.
const _: () = assert!(size_of::<InFlight>() == 64);
const _: () = assert!(size_of::<Caller>() == 64);
const _: () = assert!(size_of::<RecordHead>() == 5 * 8 + 64 + 7 * 4 + 4 + 4 * 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_went_in() {
        let process = Process::new(9, 1 << 60);
        let key = CountKey::new(7, process, call::RMDIR, 116, crate::bucket::BUCKETS - 1);
        assert_eq!((key.process(), key.call(), key.errno()), (process, call::RMDIR, 116));
        assert_eq!(key.bucket(), crate::bucket::BUCKETS - 1);
        let key = CountKey::new(7, process, call::UMOUNT2, 4095, 0);
        assert_eq!((key.call(), key.errno(), key.bucket()), (call::UMOUNT2, 4095, 0));
        let last = crate::bucket::BUCKETS - 1;
        let key = CountKey::new(7, process, call::RMDIR, 4095, last);
        let other = key.in_lane(1);
        assert_eq!((other.call(), other.errno(), other.bucket()), (call::RMDIR, 4095, last));
        assert!(other != key && other.in_lane(0) == key);
    }

    #[test]
    fn the_shortest_and_the_longest_are_those_of_all_or_not_known() {
        let mut sum = CallTotals::default();
        sum.merge(&CallTotals::of_equal(2, 700));
        sum.merge(&CallTotals::default());
        sum.merge(&CallTotals { calls: 3, total_ns: 2_000, min_ns: 5, max_ns: 900 });
        assert_eq!(sum, CallTotals { calls: 5, total_ns: 3_400, min_ns: 5, max_ns: 900 });
        sum.merge(&CallTotals { calls: 1, total_ns: 1, min_ns: 0, max_ns: 0 });
        sum.merge(&CallTotals::of_equal(1, 3));
        assert_eq!((sum.calls, sum.min_ns, sum.max_ns), (7, 0, 0));
        assert_eq!(CallTotals::of_equal(1, 0).min_ns, 1);
    }

    #[test]
    fn root_is_who_has_all_of_it() {
        let is_root = |credentials| Caller { credentials, ..Caller::default() }.is_root();
        assert_eq!((is_root(0), is_root(credential::ROOT)), (None, Some(true)));
        for lacking in [credential::USER_0, credential::SYS_ADMIN, credential::FIRST_USER_NS] {
            assert_eq!(is_root(credential::ROOT & !lacking), Some(false));
        }
    }

    #[test]
    fn records_have_no_padding() {
        assert_eq!(size_of::<RecordHead>(), 144);
        assert_eq!(size_of::<RecordHead>() % 8, 0);
    }
}
