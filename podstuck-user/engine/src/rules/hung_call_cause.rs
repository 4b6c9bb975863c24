//! Why a call does not return, by the kernel's functions that it is in. Those of a shutdown are named
//! here (fs/super.c, fs/fs-writeback.c of Linux 5.10 to 6.18), all others in `wait_channel`.

pub(crate) mod causes;

use crate::{
    cause::Cause,
    model::{call::Call, file_system::is_fuse, hung::Phase, stuck::StuckThread},
    rules::wait_channel::{self, WaitsFor, waits_for},
};
use causes::{
    CALL_HUNG_UNEXPLAINED, FILESYSTEM_FROZEN, FLUSH_SLOW, FUSE_DAEMON_HUNG, KERNEL_HANG,
    NFS_UNREACHABLE,
};

/// What a thread waits for, as far as functions of the kernel tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Fuse,
    Frozen,
    Nfs,
    Flush,
    Shutdown,
    Unknown,
}

impl Waits {
    /// The cause of its call's not returning.
    pub(crate) fn cause(self) -> &'static Cause {
        match self {
            Self::Fuse => &FUSE_DAEMON_HUNG,
            Self::Frozen => &FILESYSTEM_FROZEN,
            Self::Nfs => &NFS_UNREACHABLE,
            Self::Flush => &FLUSH_SLOW,
            Self::Shutdown => &KERNEL_HANG,
            Self::Unknown => &CALL_HUNG_UNEXPLAINED,
        }
    }
}

/// A verdict before it is written out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) waits: Waits,
    /// What else could be behind it, and what is not known of that.
    pub(crate) doubt: Option<&'static str>,
}

impl Judged {
    /// How well it is known, for a comparison with others.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.waits != Waits::Unknown, self.doubt.is_none())
    }
}

const SLOW_SERVER: &str = "whether its server is only slow";
const NO_STACK: &str = "what the thread waits for: only its mount speaks for it";
const UNNAMED_FREEZE: &str = "which lock it is: a freeze, or another one of the same kind";
const FEW_SIGNS: &str = "whether it makes progress: this wait gives few signs of it";

/// Without a sign of life for so long, a shutdown is no longer taken to be merely slow.
const LIFELESS_MS: u64 = 3500;
/// The same where a flush gives no sign of life before it is over. The kernel itself complains about
/// a task after so long (`hung_task_timeout_secs`).
const LIFELESS_FLUSH_MS: u64 = 120_000;
/// Servers of remote and FUSE file systems may be slow: an object store takes seconds for a request
/// that it answers.
const SLOW_SERVER_MS: u64 = 10_000;

/// Decides; `None` while it is too early to say anything.
pub(crate) fn judge(seen: &StuckThread) -> Option<Judged> {
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let judged = |waits, doubt| Some(Judged { waits, doubt });
    let by_server = |waits| judged(waits, (age_ms(seen) < SLOW_SERVER_MS).then_some(SLOW_SERVER));
    match waits_for(functions(seen)) {
        WaitsFor::Fuse => return by_server(Waits::Fuse),
        WaitsFor::Thaw { named } => {
            return judged(Waits::Frozen, (!named).then_some(UNNAMED_FREEZE));
        }
        WaitsFor::Nfs => return by_server(Waits::Nfs),
        // They do not tell why the call waits for them.
        WaitsFor::Nvidia | WaitsFor::NetworkDisk | WaitsFor::Smb => {}
        WaitsFor::DiskFileSystem | WaitsFor::BlockDevice | WaitsFor::Unknown => {}
    }
    let unmounts = seen.phase == Phase::AfterExit
        || (seen.syscall == Call::Umount2.name() && functions(seen).any(|f| f.contains("_super")));
    if unmounts {
        return shutdown(seen);
    }
    // Where the stack does not say it: a thread may wait for a lock that another one holds, which
    // waits for the server.
    if is_fuse(fs_type) {
        return judged(Waits::Fuse, Some(NO_STACK));
    }
    if fs_type.starts_with("nfs") {
        return judged(Waits::Nfs, Some(NO_STACK));
    }
    judged(Waits::Unknown, None)
}

/// Whether the shutdown of a file system comes on. One that writes is woken as parts of it are done;
/// one whose device has stopped is woken a few times in the beginning at most.
fn shutdown(seen: &StuckThread) -> Option<Judged> {
    let quiet_ms = seen.progress?.quiet_ms;
    let age_ms = age_ms(seen);
    // Woken once, by the last page of all that the file system has to write (fs/fs-writeback.c), and
    // not as parts of it are done. Under an overlay that is the node's disk.
    if functions(seen).any(|f| f == "wb_wait_for_completion") {
        let waits = if quiet_ms < LIFELESS_FLUSH_MS { Waits::Flush } else { Waits::Shutdown };
        return (age_ms >= LIFELESS_MS).then_some(Judged { waits, doubt: Some(FEW_SIGNS) });
    }
    let runs = seen.times.is_some_and(|times| times.state == 'R');
    // On a processor, or waiting for one: it may have come back long ago.
    if runs && functions(seen).next().is_none() {
        return None;
    }
    if quiet_ms >= LIFELESS_MS && !runs {
        return Some(Judged { waits: Waits::Shutdown, doubt: None });
    }
    if quiet_ms * 2 > age_ms && !runs {
        return None;
    }
    let writes = ["sync_", "jbd2_", "xfs_", "btrfs_", "f2fs_"];
    let writes = functions(seen).any(|f| {
        f.contains("writeback")
            || f.contains("fdatawait")
            || writes.iter().any(|p| f.starts_with(p))
    });
    let doubt = (!writes || age_ms < LIFELESS_MS).then_some(FEW_SIGNS);
    Some(Judged { waits: Waits::Flush, doubt })
}

fn age_ms(seen: &StuckThread) -> u64 {
    seen.at.since(seen.began).as_millis() as u64
}

fn functions(seen: &StuckThread) -> impl Iterator<Item = &str> + Clone {
    wait_channel::functions(&seen.stack, seen.wait_channel.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            hung::{MountPoint, WaitProgress},
            thread::Times,
            time::Monotonic,
        },
        testing::stuck,
    };

    fn id(seen: &StuckThread) -> &'static str {
        judge(seen).map_or("too early", |judged| judged.waits.cause().id.as_str())
    }

    fn doubt(seen: &StuckThread) -> Option<&'static str> {
        judge(seen).unwrap().doubt
    }

    #[test]
    fn recorded_stacks_have_their_cause() {
        let fuse = stuck(&["request_wait_answer", "__fuse_simple_request", "fuse_rmdir"]);
        assert_eq!(id(&fuse), "fuse-daemon-hung");
        let frozen = stuck(&["percpu_rwsem_wait", "mnt_want_write", "do_rmdir"]);
        assert_eq!(id(&frozen), "filesystem-frozen");
        let nfs = stuck(&["rpc_wait_bit_killable", "nfs4_proc_getattr"]);
        assert_eq!(id(&nfs), "nfs-server-unreachable");
        // What a slow server does not do.
        assert_eq!([doubt(&fuse), doubt(&nfs)], [Some(SLOW_SERVER); 2]);
        let later = |seen: StuckThread| StuckThread { at: Monotonic(12_000_000_000), ..seen };
        assert_eq!([doubt(&later(fuse)), doubt(&later(nfs))], [None; 2]);
        assert_eq!(id(&stuck(&["io_schedule", "__ext4_find_entry"])), "call-hung-unexplained");
    }

    #[test]
    fn a_shutdown_is_slow_as_long_as_it_comes_on() {
        let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        for (age_ms, quiet_ms, expected) in [
            (2000, 1900, "too early"),
            (2000, 300, "umount-flush-slow"),
            (4000, 3900, "umount-kernel-hang"),
            (4000, 1000, "umount-flush-slow"),
            (60_000, 5000, "umount-kernel-hang"),
        ] {
            seen.at = Monotonic(seen.began.0 + age_ms * 1_000_000);
            let milliseconds = age_ms / 2;
            seen.progress = Some(WaitProgress { woken: 1, milliseconds, quiet_ms });
            assert_eq!(id(&seen), expected, "{age_ms} {quiet_ms}");
        }
        assert_eq!(doubt(&seen), None);
    }

    #[test]
    fn a_thread_that_runs_is_in_no_shutdown_unless_something_shows_it() {
        let mut seen = stuck(&[]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.progress = Some(WaitProgress { woken: 1, milliseconds: 1000, quiet_ms: 100 });
        assert_eq!(id(&seen), "umount-flush-slow");
        seen.times = Some(Times { state: 'R', user_ticks: None, start_ticks: None, sleeps: 1 });
        assert_eq!(id(&seen), "too early");
    }

    #[test]
    fn a_flush_of_a_whole_disk_gives_no_sign_of_life() {
        let mut seen =
            stuck(&["wb_wait_for_completion", "sync_inodes_sb", "ovl_sync_fs", "nfs_kill_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        for (age_ms, expected) in
            [(2000, "too early"), (60_000, "umount-flush-slow"), (121_000, "umount-kernel-hang")]
        {
            seen.at = Monotonic(seen.began.0 + age_ms * 1_000_000);
            seen.progress = Some(WaitProgress { woken: 0, milliseconds: 1000, quiet_ms: age_ms });
            assert_eq!(id(&seen), expected, "{age_ms}");
            assert!(judge(&seen).is_none_or(|judged| judged.doubt == Some(FEW_SIGNS)));
        }
    }

    #[test]
    fn without_a_stack_the_mount_speaks_less_loudly() {
        let mut seen = stuck(&[]);
        seen.mount = Some(MountPoint { fs_type: "fuse.s3".into(), ..MountPoint::default() });
        assert_eq!((id(&seen), doubt(&seen)), ("fuse-daemon-hung", Some(NO_STACK)));
    }
}
