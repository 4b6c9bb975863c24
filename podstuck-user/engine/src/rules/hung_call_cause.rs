//! Why a call does not return, by the kernel's functions that it is in. Those of a shutdown are named
//! here (fs/super.c, fs/fs-writeback.c of Linux 5.10 to 6.18), all others in `wait_channel`.

pub(crate) mod causes;

use std::time::Duration;

use crate::{
    cause::Cause,
    model::{
        call::Call,
        file_system::is_fuse,
        hung::{PATIENCE, Phase},
        stuck::StuckThread,
        time::Monotonic,
    },
    rules::{
        network_storage::{self, Server},
        wait_channel::{self, WaitsFor, waits_for},
    },
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
    /// The same, where nobody listens at the server's end on this node.
    Tunnel,
    Smb,
    Ceph,
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
            Self::Tunnel => Server::Tunnel.away(),
            Self::Smb => Server::Smb.away(),
            Self::Ceph => Server::Ceph.away(),
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

const SLOW_SERVER: &str =
    "whether its server is only slow, or has lost this request: it answers others";
const NO_STACK: &str = "what the thread waits for: only its mount speaks for it";
const UNNAMED_FREEZE: &str = "which lock it is: a freeze, or another one of the same kind";
pub(crate) const UNKNOWN_DEVICE: &str =
    "whether its device or server makes progress: which one it is, is not known";
const FEW_SIGNS: &str = "whether it makes progress: this wait gives few signs of it";

/// A flush that was woken within so long is one that comes on.
const LIVELY_MS: u64 = 3500;
/// Before, nothing is said of a flush: also one that is about to stop begins with some progress.
const FLUSH_MS: u64 = 2000;

/// What is known of a sighting beside itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// The age at which a call is slow.
    pub(crate) slow: Duration,
    /// Whether the block device of its file system has completed anything since it was told last; `None`
    /// where the device is not known.
    pub(crate) disk_works: Option<bool>,
    /// When the server was seen to answer others while the call waited, the last time.
    pub(crate) answered: Option<Monotonic>,
}

impl Beside {
    fn lasts(&self, seen: &StuckThread, times: u32) -> bool {
        seen.at.since(seen.began) >= self.slow * times
    }
}

/// Decides; `None` while it is too early to say anything: a call that is slow is told, and no finding.
pub(crate) fn judge(seen: &StuckThread, beside: Beside) -> Option<Judged> {
    let [freeze, server, device] = PATIENCE;
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let after = |times, waits, doubt| beside.lasts(seen, times).then_some(Judged { waits, doubt });
    // A server that answers others is slow, until it is silent. When that lasts as long as with a disk, it may have lost
    // this request.
    let by_fuse = |doubt| match beside.answered {
        Some(at) if seen.at.since(at) < beside.slow * server => {
            after(device, Waits::Fuse, Some(SLOW_SERVER))
        }
        _ => after(server, Waits::Fuse, doubt),
    };
    match waits_for(functions(seen)) {
        WaitsFor::Fuse => return by_fuse(None),
        WaitsFor::Thaw { named } => {
            return after(freeze, Waits::Frozen, (!named).then_some(UNNAMED_FREEZE));
        }
        WaitsFor::Nfs => return nfs(seen, beside, None),
        WaitsFor::Smb => return after(server, Waits::Smb, None),
        WaitsFor::Ceph => return after(server, Waits::Ceph, None),
        // They do not tell why the call waits for them.
        WaitsFor::Nvidia | WaitsFor::NetworkDisk => {}
        WaitsFor::DiskFileSystem | WaitsFor::BlockDevice | WaitsFor::Unknown => {}
    }
    let unmounts = seen.phase == Phase::AfterExit
        || (seen.syscall == Call::Umount2.name() && functions(seen).any(|f| f.contains("_super")));
    if unmounts {
        return shutdown(seen, beside);
    }
    // Where the stack does not say it: a thread may wait for a lock that another one holds, which
    // waits for the server.
    if is_fuse(fs_type) {
        return by_fuse(Some(NO_STACK));
    }
    if fs_type.starts_with("nfs") {
        return nfs(seen, beside, Some(NO_STACK));
    }
    if network_storage::is_smb(fs_type) {
        return after(server, Waits::Smb, Some(NO_STACK));
    }
    if network_storage::is_ceph(fs_type) {
        return after(server, Waits::Ceph, Some(NO_STACK));
    }
    if beside.disk_works == Some(true) {
        return None;
    }
    after(device, Waits::Unknown, None)
}

/// Whether a thread that waits for an NFS server was woken lately. Such a wait ends with an answer, or by SIGKILL.
pub(crate) fn is_answered(seen: &StuckThread) -> bool {
    seen.progress.is_some_and(|progress| progress.woken > 0 && progress.quiet_ms < LIVELY_MS)
}

/// A server from which answers have come meanwhile, to other calls on the file system, is there: then it is this
/// call that is slow, and it needs the patience that a device has.
fn nfs(seen: &StuckThread, beside: Beside, doubt: Option<&'static str>) -> Option<Judged> {
    let [_, server, device] = PATIENCE;
    let (times, doubt) = match beside.answered == Some(seen.at) || is_answered(seen) {
        true => (device, Some(SLOW_SERVER)),
        false => (server, doubt),
    };
    beside.lasts(seen, times).then_some(Judged { waits: Waits::Nfs, doubt })
}

/// Whether the shutdown of a file system comes on. One that writes is woken as parts of it are done;
/// one whose device has stopped is woken a few times in the beginning at most.
fn shutdown(seen: &StuckThread, beside: Beside) -> Option<Judged> {
    let [_, _, device] = PATIENCE;
    let progress = seen.progress?;
    let quiet = Duration::from_millis(progress.quiet_ms);
    let lively = Duration::from_millis(LIVELY_MS);
    let runs = seen.times.is_some_and(|times| times.state == 'R');
    // It may have been woken a few times in the beginning.
    let is_still = beside.lasts(seen, device) && quiet >= beside.slow * device / 2 && !runs;
    // Woken once, by the last page of all that the file system has to write (fs/fs-writeback.c), and
    // not as parts of it are done. Under an overlay that is the node's disk.
    if functions(seen).any(|f| f == "wb_wait_for_completion") {
        let (waits, doubt) = match beside.disk_works {
            Some(true) => (Waits::Flush, None),
            _ if is_still => (Waits::Shutdown, Some(FEW_SIGNS)),
            // Nothing was written since it was told last, and it is too early to say that nothing will be.
            Some(false) => return None,
            None => (Waits::Flush, Some(FEW_SIGNS)),
        };
        return (seen.at.since(seen.began) >= lively).then_some(Judged { waits, doubt });
    }
    // On a processor, or waiting for one, and not in there: it may have come back long ago.
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
    // Who comes late has seen only the end of a long sleep.
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
        },
        testing::stuck,
    };

    const SLOW: Duration = Duration::from_secs(2);

    fn judged(seen: &StuckThread, disk_works: Option<bool>) -> Option<Judged> {
        judge(seen, Beside { slow: SLOW, disk_works, answered: None })
    }

    fn id(seen: &StuckThread) -> &'static str {
        judged(seen, Some(false)).map_or("too early", |judged| judged.waits.cause().id.as_str())
    }

    fn aged(mut seen: StuckThread, seconds: u64) -> StuckThread {
        seen.at = Monotonic(seen.began.0 + seconds * 1_000_000_000);
        seen
    }

    #[test]
    fn a_call_is_slow_before_it_hangs() {
        let locked = ["io_schedule", "__ext4_find_entry"];
        for (stack, cause, from) in [
            (&["request_wait_answer", "__fuse_simple_request"], "fuse-daemon-hung", 30),
            (&["percpu_rwsem_wait", "mnt_want_write"], "filesystem-frozen", 10),
            (&["rpc_wait_bit_killable", "nfs4_proc_getattr"], "nfs-server-unreachable", 30),
            (&locked, "call-hung-unexplained", 120),
        ] {
            assert_eq!(id(&aged(stuck(stack), from - 1)), "too early", "{cause}");
            assert_eq!(id(&aged(stuck(stack), from)), cause);
            assert_eq!(judged(&aged(stuck(stack), from), None).unwrap().doubt, None, "{cause}");
        }
        let busy = judged(&aged(stuck(&locked), 600), Some(true));
        assert_eq!(busy, None, "its device works");
    }

    #[test]
    fn a_server_that_answers_others_is_slow() {
        let waits = |age| aged(stuck(&["request_wait_answer", "fuse_rmdir"]), age);
        let judged = |age, answered: Option<u64>| {
            let seen = waits(age);
            let answered = answered.map(|second| Monotonic(seen.began.0 + second * 1_000_000_000));
            judge(&seen, Beside { slow: SLOW, disk_works: None, answered })
        };
        assert_eq!(judged(49, Some(20)), None);
        assert_eq!(judged(50, Some(20)).unwrap().doubt, None, "silent for 30 s");
        assert_eq!(judged(119, Some(118)), None);
        assert_eq!(judged(120, Some(118)).unwrap().doubt, Some(SLOW_SERVER), "slow for 2 min");
        assert_eq!(judged(30, None).unwrap().doubt, None, "it answers nobody");
    }

    #[test]
    fn an_nfs_server_that_answers_others_is_slow_and_not_away() {
        let stack = ["rpc_wait_bit_killable", "nfs4_proc_getattr"];
        let on_nfs = MountPoint { fs_type: "nfs4".into(), ..MountPoint::default() };
        let mut without_stack = stuck(&[]);
        without_stack.mount = Some(on_nfs);
        for seen in [stuck(&stack), without_stack] {
            let judged = |second, server_answers| {
                let seen = aged(seen.clone(), second);
                let answered = Some(seen.at).filter(|_| server_answers);
                judge(&seen, Beside { slow: SLOW, disk_works: None, answered })
            };
            assert_eq!(judged(60, false).unwrap().waits, Waits::Nfs);
            assert_eq!(judged(60, true), None, "answers have come since it was told last");
            let late = Judged { waits: Waits::Nfs, doubt: Some(SLOW_SERVER) };
            assert_eq!(judged(120, true), Some(late));
            // Its own call goes from answer to answer, as a long listing or a flush does.
            for (woken, quiet_ms, is_slow) in [(9, 100, true), (9, 20_000, false), (0, 100, false)]
            {
                let mut own = aged(seen.clone(), 60);
                own.progress = Some(WaitProgress {
                    woken,
                    milliseconds: 30_000,
                    quiet_ms,
                    seen_woken: woken > 0,
                });
                assert_eq!(
                    super::judge(&own, Beside { slow: SLOW, ..Beside::default() }).is_none(),
                    is_slow
                );
            }
        }
    }

    #[test]
    fn other_servers_are_told_by_their_clients_functions_or_by_the_mount() {
        for (stack, fs_type, waits) in [
            (&["wait_for_response [cifs]", "cifs_statfs"][..], "", Waits::Smb),
            (&["ceph_mdsc_wait_request [ceph]"], "", Waits::Ceph),
            (&[], "cifs", Waits::Smb),
            (&["rwsem_down_write_slowpath"], "ceph", Waits::Ceph),
        ] {
            let mut seen = stuck(stack);
            let mount = MountPoint { fs_type: fs_type.into(), ..MountPoint::default() };
            seen.mount = (!fs_type.is_empty()).then_some(mount);
            assert_eq!(judged(&aged(seen.clone(), 29), None), None, "{stack:?}");
            let judged = judged(&aged(seen, 30), None).unwrap();
            let doubt = (!fs_type.is_empty()).then_some(NO_STACK);
            assert_eq!((judged.waits, judged.doubt), (waits, doubt), "{stack:?}");
        }
    }

    #[test]
    fn a_shutdown_is_slow_as_long_as_it_comes_on() {
        let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        for (age_ms, quiet_ms, disk_works, expected) in [
            (1900, 100, Some(false), "too early"),
            (2000, 1900, Some(false), "too early"),
            (2000, 300, Some(false), "umount-flush-slow"),
            (4000, 3900, Some(false), "too early"),
            (4000, 1000, Some(false), "umount-flush-slow"),
            (60_000, 50_000, Some(false), "too early"),
            (60_000, 50_000, Some(true), "umount-flush-slow"),
            (130_000, 120_000, Some(true), "umount-flush-slow"),
            (130_000, 50_000, Some(false), "umount-flush-slow"),
            (130_000, 60_000, Some(false), "umount-kernel-hang"),
            (130_000, 120_000, None, "umount-kernel-hang"),
        ] {
            seen.at = Monotonic(seen.began.0 + age_ms * 1_000_000);
            let milliseconds = age_ms / 2;
            let seen_woken = true;
            seen.progress = Some(WaitProgress { woken: 1, milliseconds, quiet_ms, seen_woken });
            let found = judged(&seen, disk_works);
            let id = found.map_or("too early", |judged| judged.waits.cause().id.as_str());
            assert_eq!(id, expected, "{age_ms} {quiet_ms} {disk_works:?}");
        }
        assert_eq!(judged(&seen, Some(false)).unwrap().doubt, None);
        assert_eq!(judged(&seen, None).unwrap().doubt, Some(UNKNOWN_DEVICE));
    }

    #[test]
    fn a_late_look_at_a_long_sleep_is_no_progress() {
        let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.at = Monotonic(seen.began.0 + 3_600_000_000_000);
        for (quiet_ms, seen_woken, expected) in [
            (300, false, "too early"),
            (300, true, "umount-flush-slow"),
            (50_000, false, "too early"),
            (60_000, false, "umount-kernel-hang"),
        ] {
            let woken = u64::from(seen_woken);
            seen.progress = Some(WaitProgress { woken, milliseconds: 300, quiet_ms, seen_woken });
            assert_eq!(id(&seen), expected, "{quiet_ms} {seen_woken}");
        }
    }

    #[test]
    fn a_thread_that_runs_is_in_no_shutdown_unless_something_shows_it() {
        let mut seen = stuck(&[]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.progress =
            Some(WaitProgress { woken: 1, milliseconds: 1000, quiet_ms: 100, seen_woken: true });
        assert_eq!(id(&seen), "umount-flush-slow");
        seen.times = Some(Times { state: 'R', user_ticks: None, start_ticks: None, sleeps: 1 });
        assert_eq!(id(&seen), "too early");
        // In its next call, whose entry probes have not told yet.
        seen.stack = ["perf_syscall_enter", "trace_syscall_enter", "do_syscall_64"]
            .map(str::to_owned)
            .into();
        assert_eq!(id(&seen), "too early");
        seen.stack =
            ["submit_bio", "deactivate_locked_super", "task_work_run"].map(str::to_owned).into();
        assert_eq!(id(&seen), "umount-flush-slow");
    }

    #[test]
    fn a_flush_of_a_whole_disk_gives_no_sign_of_life() {
        let mut seen =
            stuck(&["wb_wait_for_completion", "sync_inodes_sb", "ovl_sync_fs", "nfs_kill_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        let (early, slow, hang) = ("too early", "umount-flush-slow", "umount-kernel-hang");
        for (age_ms, of_idle_disk, of_unknown_disk) in
            [(2000, early, early), (60_000, early, slow), (121_000, hang, hang)]
        {
            seen.at = Monotonic(seen.began.0 + age_ms * 1_000_000);
            seen.progress = Some(WaitProgress {
                woken: 0,
                milliseconds: 1000,
                quiet_ms: age_ms,
                seen_woken: false,
            });
            assert_eq!(id(&seen), of_idle_disk, "{age_ms}");
            let found = judged(&seen, None);
            let id = found.map_or(early, |judged| judged.waits.cause().id.as_str());
            assert_eq!(id, of_unknown_disk, "{age_ms}");
            assert!(found.is_none_or(|judged| judged.doubt == Some(FEW_SIGNS)));
        }
        let works = judged(&seen, Some(true)).unwrap();
        assert_eq!((works.waits, works.doubt), (Waits::Flush, None));
    }

    #[test]
    fn without_a_stack_the_mount_speaks_less_loudly() {
        let mut seen = aged(stuck(&[]), 40);
        seen.mount = Some(MountPoint { fs_type: "fuse.s3".into(), ..MountPoint::default() });
        let judged = judged(&seen, None).unwrap();
        assert_eq!((judged.waits, judged.doubt), (Waits::Fuse, Some(NO_STACK)));
    }
}
