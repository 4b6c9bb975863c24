//! In which call on which descriptor the threads of a process wait.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::libc::{self, c_long};
use podstuck_confine::{proc, silent};

use crate::state::thread::{Doing, doing};

/// Threads of a process that are looked at.
const THREADS: usize = 256;

/// What a thread waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A read from a descriptor.
    Reads(u64),
    /// A write to one.
    Writes(u64),
    /// A lock on one.
    Locks(u64),
    /// The end of a child; `None` for whichever ends first.
    Child(Option<u32>),
    /// Another call on one.
    Uses(u64),
}

impl Blocked {
    /// The descriptor that the call is on.
    pub(super) fn descriptor(self) -> Option<u64> {
        match self {
            Self::Reads(of) | Self::Writes(of) | Self::Locks(of) | Self::Uses(of) => Some(of),
            Self::Child(_) => None,
        }
    }
}

/// Each thread that waits in such a call.
pub(super) fn threads(pid: u32) -> Vec<(u32, Blocked)> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let found = proc::threads(pid).take(THREADS).filter_map(|tid| {
        let file = format!("task/{tid}/syscall");
        let text = silent::read(&process, |process| fs::read_to_string(process.join(file)).ok())?;
        let Doing::Call { number, arguments } = doing(text.trim_end())? else { return None };
        Some((tid, of(number, arguments, |descriptor| child(&process, descriptor))?))
    });
    found.collect()
}

/// What a call waits for; `child` says which process a descriptor is about (pidfd_open(2)).
fn of(
    number: c_long,
    arguments: [u64; 6],
    child: impl FnOnce(u64) -> Option<u32>,
) -> Option<Blocked> {
    const WAIT_LOCK: [libc::c_int; 2] = [libc::F_SETLKW, libc::F_OFD_SETLKW];
    let [first, second, ..] = arguments;
    Some(match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => {
            Blocked::Reads(first)
        }
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => {
            Blocked::Writes(first)
        }
        libc::SYS_flock => Blocked::Locks(first),
        libc::SYS_fcntl if WAIT_LOCK.iter().any(|it| u64::try_from(*it) == Ok(second)) => {
            Blocked::Locks(first)
        }
        // 0 and negative numbers stand for groups of processes, or for any child.
        libc::SYS_wait4 => {
            let pid = u32::try_from(first).ok();
            Blocked::Child(pid.filter(|pid| pid.cast_signed() > 0))
        }
        libc::SYS_waitid if first == u64::from(libc::P_PID) => {
            Blocked::Child(Some(u32::try_from(second).ok()?))
        }
        libc::SYS_waitid if first == u64::from(libc::P_PIDFD) => {
            Blocked::Child(Some(child(second)?))
        }
        libc::SYS_waitid => Blocked::Child(None),
        libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync_file_range
        | libc::SYS_syncfs
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_getdents64
        | libc::SYS_fstat
        | libc::SYS_ioctl => Blocked::Uses(first),
        _ => return None,
    })
}

fn child(process: &Path, descriptor: u64) -> Option<u32> {
    let file = format!("fdinfo/{descriptor}");
    let text = silent::read(process, |process| fs::read_to_string(process.join(file)).ok())?;
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_for_another_are_known_by_their_arguments() {
        let of = |number, arguments: [u64; 2]| {
            let all = [arguments[0], arguments[1], 0, 0, 0, 0];
            super::of(number, all, |descriptor| (descriptor == 9).then_some(77))
        };
        let minus_one = u64::from(u32::MAX);
        for (found, expected) in [
            (of(libc::SYS_recvmsg, [5, 0]), Some(Blocked::Reads(5))),
            (of(libc::SYS_write, [6, 0]), Some(Blocked::Writes(6))),
            (of(libc::SYS_fcntl, [7, 7]), Some(Blocked::Locks(7))),
            (of(libc::SYS_fcntl, [7, 3]), None),
            (of(libc::SYS_wait4, [42, 0]), Some(Blocked::Child(Some(42)))),
            (of(libc::SYS_wait4, [minus_one, 0]), Some(Blocked::Child(None))),
            (of(libc::SYS_wait4, [u64::MAX, 0]), Some(Blocked::Child(None))),
            (of(libc::SYS_waitid, [1, 43]), Some(Blocked::Child(Some(43)))),
            (of(libc::SYS_waitid, [3, 9]), Some(Blocked::Child(Some(77)))),
            (of(libc::SYS_waitid, [3, 8]), None),
            (of(libc::SYS_fsync, [8, 0]), Some(Blocked::Uses(8))),
            (of(libc::SYS_futex, [1, 2]), None),
        ] {
            assert_eq!(found, expected);
        }
    }
}
