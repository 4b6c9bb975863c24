//! Why a call does not return, by the kernel's functions that it is in. Those of a shutdown are named
//! in `shutdown`, all others in `wait_channel`.

use std::time::Duration;

use super::causes::{
    CALL_HUNG_UNEXPLAINED, FILESYSTEM_FROZEN, FLUSH_SLOW, FUSE_DAEMON_HUNG, KERNEL_HANG,
    NFS_UNREACHABLE,
};
use crate::{
    cause::Cause,
    causes::{
        network_storage::{self, verdict::Server},
        shared::wait_channel::{self, WaitsFor, waits_for},
    },
    model::{
        call::Call,
        file_system::is_fuse,
        hung::{PATIENCE, Phase},
        stuck::StuckThread,
        time::Monotonic,
    },
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
pub(super) const FEW_SIGNS: &str = "whether it makes progress: this wait gives few signs of it";

/// A flush that was woken within so long is one that comes on.
pub(super) const LIVELY_MS: u64 = 3500;

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
    pub(super) fn lasts(&self, seen: &StuckThread, times: u32) -> bool {
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
        return super::shutdown::judge(seen, beside);
    }
    // Where the stack does not say it: a thread may wait for a lock that another one holds, which
    // waits for the server.
    if is_fuse(fs_type) {
        return by_fuse(Some(NO_STACK));
    }
    if fs_type.starts_with("nfs") {
        return nfs(seen, beside, Some(NO_STACK));
    }
    if network_storage::verdict::is_smb(fs_type) {
        return after(server, Waits::Smb, Some(NO_STACK));
    }
    if network_storage::verdict::is_ceph(fs_type) {
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

pub(super) fn functions(seen: &StuckThread) -> impl Iterator<Item = &str> + Clone {
    wait_channel::functions(&seen.stack, seen.wait_channel.as_deref())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        model::hung::{MountPoint, WaitProgress},
        testing::stuck,
    };

    const SLOW: Duration = Duration::from_secs(2);

    pub(in crate::causes::hung_call) fn judged(
        seen: &StuckThread,
        disk_works: Option<bool>,
    ) -> Option<Judged> {
        judge(seen, Beside { slow: SLOW, disk_works, answered: None })
    }

    pub(in crate::causes::hung_call) fn id(seen: &StuckThread) -> &'static str {
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
    fn without_a_stack_the_mount_speaks_less_loudly() {
        let mut seen = aged(stuck(&[]), 40);
        seen.mount = Some(MountPoint { fs_type: "fuse.s3".into(), ..MountPoint::default() });
        let judged = judged(&seen, None).unwrap();
        assert_eq!((judged.waits, judged.doubt), (Waits::Fuse, Some(NO_STACK)));
    }
}
