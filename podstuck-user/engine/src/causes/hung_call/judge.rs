//! Why a call does not return, by the kernel functions that it is in, and whether the shutdown of a file system makes
//! progress. The functions of a shutdown are named here (fs/super.c and fs/fs-writeback.c of Linux 5.10 to 6.18), all
//! others in `wait_channel`.

use std::time::Duration;

use crate::{
    cause::Cause,
    causes::{
        hung_call::causes::{
            CALL_HUNG_UNEXPLAINED, DEVICE_SILENT, FANOTIFY_LISTENER_HUNG, FILESYSTEM_FROZEN,
            FLUSH_SLOW, FUSE_DAEMON_HUNG, KERNEL_HANG, LOCK_HELD, NFS_UNREACHABLE,
        },
        network_storage::Server,
        shared::{claim::UNKNOWN_DEVICE, kernel_lock::MAY_BE_RELEASED},
    },
    kernel_lock::is_proven,
    model::{
        call::Call,
        file_system::{is_ceph, is_fuse, is_smb},
        hung::{PATIENCE, Phase},
        stuck::StuckThread,
        time::Monotonic,
    },
    wait_channel::{self, WaitsFor, waits_for},
};

/// What a thread waits for, by the kernel functions that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Fanotify,
    Fuse,
    Frozen,
    Nfs,
    /// An NFS server whose address is on this node, where no process listens.
    Tunnel,
    Smb,
    Ceph,
    Disk,
    Flush,
    Shutdown,
    /// A lock of the kernel, whose holder is known.
    Lock,
    Unknown,
}

impl Waits {
    /// The cause that keeps the call from returning.
    pub(crate) fn cause(self) -> &'static Cause {
        match self {
            Self::Fanotify => &FANOTIFY_LISTENER_HUNG,
            Self::Fuse => &FUSE_DAEMON_HUNG,
            Self::Frozen => &FILESYSTEM_FROZEN,
            Self::Nfs => &NFS_UNREACHABLE,
            Self::Tunnel => Server::Tunnel.away(),
            Self::Smb => Server::Smb.away(),
            Self::Ceph => Server::Ceph.away(),
            Self::Disk => &DEVICE_SILENT,
            Self::Flush => &FLUSH_SLOW,
            Self::Shutdown => &KERNEL_HANG,
            Self::Lock => &LOCK_HELD,
            Self::Unknown => &CALL_HUNG_UNEXPLAINED,
        }
    }
}

/// A verdict before it is written out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) waits: Waits,
    /// What is not known, and may mean another cause.
    pub(crate) doubt: Option<&'static str>,
}

impl Judged {
    /// How certain it is, for a comparison with others.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.waits != Waits::Unknown, self.doubt.is_none())
    }
}

pub(super) const SLOW_SERVER: &str =
    "whether its server is only slow, or has lost this request: it answers others";
pub(super) const SLOW_LISTENER: &str =
    "whether the listener is only slow: a scan of a file takes some seconds";
pub(super) const SLOW_DEVICE: &str =
    "whether the device is only slow: a busy one may take some seconds";
pub(super) const NO_STACK: &str = "what the thread waits for: only its mount points to this server";
const UNNAMED_FREEZE: &str =
    "which lock the thread waits for: a freeze, or another lock of the same kind";
pub(super) const BUSY_HOLDER: &str =
    "whether the holder of the lock is only slow: it has held the lock for some seconds";
pub(super) const FEW_SIGNS: &str = "whether it makes progress: this wait gives few signs of it";

/// A flush that was woken within this time makes progress.
pub(super) const LIVELY_MS: u64 = 3500;

/// Facts about a sighting from other sources.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// The age at which a call is slow.
    pub(crate) slow: Duration,
    /// Whether the block device of its file system has completed anything since the last sighting; `None` if the
    /// device is not known.
    pub(crate) disk_works: Option<bool>,
    /// When the server was last seen to answer others while the call waited.
    pub(crate) answered: Option<Monotonic>,
    /// Whether the bytes that came from an NFS server since the last sighting are known.
    pub(crate) counted: bool,
    /// Whether a block device is proven not to answer while the call waits for one: true for that of its file system,
    /// false for one whose part in the call is not known.
    pub(crate) silent: Option<bool>,
}

impl Beside {
    pub(super) fn lasts(&self, seen: &StuckThread, times: u32) -> bool {
        seen.at.since(seen.began) >= self.slow * times
    }
}

/// The verdict; `None` while it is too early for one: a call that is only slow is no finding.
pub(crate) fn judge(seen: &StuckThread, beside: Beside) -> Option<Judged> {
    let [freeze, server, device] = PATIENCE;
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let after = |times, waits, doubt| beside.lasts(seen, times).then_some(Judged { waits, doubt });
    // A server that answers others is only slow. If the call waits for as long as one on a disk may, the server may have
    // lost this request.
    let by_fuse = |doubt| match beside.answered {
        Some(at) if seen.at.since(at) < beside.slow * server => {
            after(device, Waits::Fuse, Some(SLOW_SERVER))
        }
        _ => after(server, Waits::Fuse, doubt),
    };
    if let Some(judged) = by_lock(seen, beside, by_fuse) {
        return judged;
    }
    match waits_for(functions(seen)) {
        WaitsFor::Fanotify => {
            let doubt = (!beside.lasts(seen, server)).then_some(SLOW_LISTENER);
            return after(freeze, Waits::Fanotify, doubt);
        }
        WaitsFor::Fuse => return by_fuse(None),
        WaitsFor::Thaw { named } => {
            return after(freeze, Waits::Frozen, (!named).then_some(UNNAMED_FREEZE));
        }
        WaitsFor::Nfs => return nfs(seen, beside, None),
        WaitsFor::Smb => return after(server, Waits::Smb, None),
        WaitsFor::Ceph => return after(server, Waits::Ceph, None),
        // These do not show why the call waits for them.
        WaitsFor::PageFault | WaitsFor::Nvidia | WaitsFor::NetworkDisk => {}
        WaitsFor::DiskFileSystem | WaitsFor::BlockDevice | WaitsFor::Page | WaitsFor::Unknown => {}
    }
    let unmounts = seen.phase == Phase::AfterExit
        || (seen.syscall == Call::Umount2.name() && functions(seen).any(|f| f.contains("_super")));
    if unmounts {
        return shutdown(seen, beside);
    }
    // The stack may not show the server: the thread may wait for a lock whose holder waits for the
    // server.
    if is_fuse(fs_type) {
        return by_fuse(Some(NO_STACK));
    }
    if fs_type.starts_with("nfs") {
        return nfs(seen, beside, Some(NO_STACK));
    }
    if is_smb(fs_type) {
        return after(server, Waits::Smb, Some(NO_STACK));
    }
    if is_ceph(fs_type) {
        return after(server, Waits::Ceph, Some(NO_STACK));
    }
    if let Some(is_its) = beside.silent {
        let failing_over = (!beside.lasts(seen, server)).then_some(SLOW_DEVICE);
        let doubt = if is_its { failing_over } else { Some(UNKNOWN_DEVICE) };
        return after(freeze, Waits::Disk, doubt);
    }
    if beside.disk_works == Some(true) {
        return None;
    }
    after(device, Waits::Unknown, None)
}

/// The verdict about a thread that sleeps for a kernel lock whose holder is known: if that one waits for the server of
/// the call's own file system, that server is the cause. `None` if no holder is known.
fn by_lock(
    seen: &StuckThread,
    beside: Beside,
    by_fuse: impl FnOnce(Option<&'static str>) -> Option<Judged>,
) -> Option<Option<Judged>> {
    let last = seen.lock.last()?;
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let doubt = (!is_proven(&seen.lock)).then_some(MAY_BE_RELEASED);
    let [freeze, server, device] = PATIENCE;
    let of_holder = wait_channel::functions(&last.stack, last.wait_channel.as_deref());
    Some(match waits_for(of_holder) {
        WaitsFor::Fuse if is_fuse(fs_type) => by_fuse(doubt),
        WaitsFor::Nfs if fs_type.starts_with("nfs") => nfs(seen, beside, doubt),
        _ => {
            let is_busy = last.state == 'R' || !beside.lasts(seen, server);
            let times = if last.state == 'R' { device } else { freeze };
            let doubt = doubt.or(is_busy.then_some(BUSY_HOLDER));
            beside.lasts(seen, times).then_some(Judged { waits: Waits::Lock, doubt })
        }
    })
}

/// Whether a thread that waits for an NFS server was woken lately, if the bytes from the server are not known: an answer
/// wakes it. So does each attempt of the client to connect to a silent server again.
pub(crate) fn may_be_answered(seen: &StuckThread, counted: bool) -> bool {
    !counted
        && seen.progress.is_some_and(|progress| progress.woken > 0 && progress.quiet_ms < LIVELY_MS)
}

/// A server that answers other calls on the file system is reachable: then this call is slow, and gets the time that a
/// device gets.
pub(super) fn nfs(
    seen: &StuckThread,
    beside: Beside,
    doubt: Option<&'static str>,
) -> Option<Judged> {
    let [_, server, device] = PATIENCE;
    let (times, doubt) =
        match beside.answered == Some(seen.at) || may_be_answered(seen, beside.counted) {
            true => (device, Some(SLOW_SERVER)),
            false => (server, doubt),
        };
    beside.lasts(seen, times).then_some(Judged { waits: Waits::Nfs, doubt })
}

pub(super) fn functions(seen: &StuckThread) -> impl Iterator<Item = &str> + Clone {
    wait_channel::functions(&seen.stack, seen.wait_channel.as_deref())
}

/// Whether the functions are those of a wait for a block device, or for pages that are written to one. A device that has
/// a request in flight need not be waited for: drivers are known that leave one in the counters of an idle device.
pub(crate) fn waits_for_disk(seen: &StuckThread) -> bool {
    use WaitsFor::{BlockDevice, DiskFileSystem, Page};
    // A thread that sleeps for a lock may be in any function of its file system.
    if !seen.lock.is_empty() {
        return false;
    }
    matches!(waits_for(functions(seen)), BlockDevice | DiskFileSystem | Page)
        || functions(seen).any(|f| f == "wb_wait_for_completion")
}

/// Minimum age of a flush with a verdict: one that is about to stop begins with some progress, too.
const FLUSH_MS: u64 = 2000;

/// A shutdown that writes is woken as parts of it complete; one whose device has stopped is woken at most a few times
/// in the beginning.
fn shutdown(seen: &StuckThread, beside: Beside) -> Option<Judged> {
    let [_, _, device] = PATIENCE;
    let progress = seen.progress?;
    let quiet = Duration::from_millis(progress.quiet_ms);
    let lively = Duration::from_millis(LIVELY_MS);
    let runs = seen.times.is_some_and(|times| times.state == 'R');
    // The thread may have been woken a few times in the beginning.
    let is_still = beside.lasts(seen, device) && quiet >= beside.slow * device / 2 && !runs;
    if let Some(is_its) = beside.silent {
        let doubt = (!is_its).then_some(UNKNOWN_DEVICE);
        let sleeps = seen.times.is_some_and(|times| times.state == 'D');
        return sleeps.then_some(Judged { waits: Waits::Shutdown, doubt });
    }
    // The thread is woken once, by the last page that the file system has to write (fs/fs-writeback.c), and
    // not as parts complete. Under an overlay that is the node's disk.
    if functions(seen).any(|f| f == "wb_wait_for_completion") {
        let (waits, doubt) = match beside.disk_works {
            Some(true) => (Waits::Flush, None),
            _ if is_still => (Waits::Shutdown, Some(FEW_SIGNS)),
            // Nothing was written since the last sighting, and it is too early to call that a standstill.
            Some(false) => return None,
            None => (Waits::Flush, Some(FEW_SIGNS)),
        };
        return (seen.at.since(seen.began) >= lively).then_some(Judged { waits, doubt });
    }
    // A running thread outside these functions may have returned long ago.
    if runs && !functions(seen).any(|f| f == "task_work_run" || f.contains("_super")) {
        return None;
    }
    match beside.disk_works {
        Some(false) if is_still => return Some(Judged { waits: Waits::Shutdown, doubt: None }),
        None if is_still => {
            return Some(Judged { waits: Waits::Shutdown, doubt: Some(UNKNOWN_DEVICE) });
        }
        Some(true) if quiet >= lively => {
            return Some(Judged { waits: Waits::Flush, doubt: None });
        }
        _ => {}
    }
    let age = seen.at.since(seen.began);
    if age < Duration::from_millis(FLUSH_MS) || quiet * 2 > age && !runs {
        return None;
    }
    // A run that starts late has seen only the end of a long sleep.
    if !progress.seen_woken && !runs {
        return None;
    }
    let writes = ["sync_", "jbd2_", "xfs_", "btrfs_", "f2fs_"];
    let writes = functions(seen).any(|f| {
        f.contains("writeback")
            || f.contains("fdatawait")
            || writes.iter().any(|p| f.starts_with(p))
    });
    let doubt = (!writes || age < lively).then_some(FEW_SIGNS);
    Some(Judged { waits: Waits::Flush, doubt })
}
