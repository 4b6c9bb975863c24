//! Why a call does not return, by the kernel's functions that it is in.
//!
//! The names are those of Linux 5.10 to 6.18: fs/fuse/dev.c, fs/super.c and
//! kernel/locking/percpu-rwsem.c (a frozen file system), net/sunrpc, fs/fs-writeback.c.

use crate::{
    model::{
        call::Call,
        hung::{Phase, Progress},
    },
    state::{mount_point::is_fuse, stuck::Sighting},
};

/// A cause that can be told from functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Fuse,
    Frozen,
    Nfs,
    Flush,
    Shutdown,
    Unknown,
}

/// A verdict before it is written out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) cause: Cause,
    pub(super) id: &'static str,
    pub(super) confidence: f64,
}

/// Without a sign of life for so long, a shutdown is no longer taken to be merely slow.
const LIFELESS_MS: u64 = 3500;

/// Decides.
pub(super) fn judge(seen: &Sighting) -> Judged {
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let has = |test: fn(&str) -> bool| functions(seen).any(test);
    let judged = |cause, id, confidence| Judged { cause, id, confidence };
    if has(|f| f == "request_wait_answer" || f.starts_with("fuse_") || f.starts_with("__fuse")) {
        return judged(Cause::Fuse, "fuse-daemon-hung", 0.95);
    }
    if has(|f| f.starts_with("percpu_rwsem_wait") || f.starts_with("__percpu_down_read")) {
        let named = has(|f| f.contains("mnt_want_write") || f.contains("sb_start_write"));
        let confidence = if named { 0.95 } else { 0.6 };
        return judged(Cause::Frozen, "filesystem-frozen", confidence);
    }
    if has(|f| ["rpc_", "__rpc_", "nfs_", "nfs3_", "nfs4_"].iter().any(|p| f.starts_with(p))) {
        return judged(Cause::Nfs, "nfs-server-unreachable", 0.85);
    }
    let unmounts = seen.phase == Phase::AfterExit
        || (seen.syscall == Call::Umount2.name() && has(|f| f.contains("_super")));
    if unmounts {
        return match seen.progress {
            Some(Progress { woken: 0, milliseconds }) if !runs(seen) => {
                let confidence = if milliseconds >= LIFELESS_MS { 0.85 } else { 0.6 };
                judged(Cause::Shutdown, "umount-kernel-hang", confidence)
            }
            Some(_) => judged(Cause::Flush, "umount-flush-slow", 0.85),
            None => judged(Cause::Flush, "umount-flush-slow", 0.4),
        };
    }
    // Where the stack does not say it: a thread may wait for a lock that another one holds, which
    // waits for the server.
    if is_fuse(fs_type) {
        return judged(Cause::Fuse, "fuse-daemon-hung", 0.6);
    }
    if fs_type.starts_with("nfs") {
        return judged(Cause::Nfs, "nfs-server-unreachable", 0.6);
    }
    judged(Cause::Unknown, "call-hung-unexplained", 0.3)
}

fn functions(seen: &Sighting) -> impl Iterator<Item = &str> {
    seen.stack.iter().chain(&seen.wait_channel).map(String::as_str)
}

fn runs(seen: &Sighting) -> bool {
    seen.times.is_some_and(|times| times.state == 'R')
}

/// A thread in these functions, for tests.
#[cfg(test)]
pub(super) fn sample(stack: &[&str]) -> Sighting {
    use crate::{
        model::{hung::Since, time::Monotonic},
        state::thread::Thread,
    };
    Sighting {
        thread: Thread { pid: 42, tid: 42 },
        phase: Phase::InSyscall,
        syscall: "unlinkat".into(),
        path: Some(super::sample::VOLUME.into()),
        mount: None,
        began: Monotonic(1_000_000_000),
        since: Since::Probe,
        before_start: false,
        at: Monotonic(4_000_000_000),
        over: false,
        actor: podstuck_common::record::Actor::default(),
        times: None,
        wait_channel: stack.first().map(|f| (*f).to_owned()),
        stack: stack.iter().map(|f| (*f).to_owned()).collect(),
        progress: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::hung::MountPoint;

    fn id(seen: &Sighting) -> &'static str {
        judge(seen).id
    }

    #[test]
    fn recorded_stacks_have_their_cause() {
        let fuse = sample(&["request_wait_answer", "__fuse_simple_request", "fuse_rmdir"]);
        assert_eq!(id(&fuse), "fuse-daemon-hung");
        let frozen = sample(&["percpu_rwsem_wait", "mnt_want_write", "do_rmdir"]);
        assert_eq!(id(&frozen), "filesystem-frozen");
        assert_eq!(
            id(&sample(&["rpc_wait_bit_killable", "nfs4_proc_getattr"])),
            "nfs-server-unreachable"
        );
        assert_eq!(id(&sample(&["io_schedule", "__ext4_find_entry"])), "call-hung-unexplained");
    }

    #[test]
    fn a_shutdown_is_slow_as_long_as_it_comes_on() {
        let mut seen = sample(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        for (woken, milliseconds, expected, confidence) in [
            (3, 2000, "umount-flush-slow", 0.85),
            (0, 2000, "umount-kernel-hang", 0.6),
            (0, 4000, "umount-kernel-hang", 0.85),
        ] {
            seen.progress = Some(Progress { woken, milliseconds });
            let judged = judge(&seen);
            assert_eq!((judged.id, judged.confidence), (expected, confidence));
        }
    }

    #[test]
    fn without_a_stack_the_mount_speaks_less_loudly() {
        let mut seen = sample(&[]);
        seen.mount = Some(MountPoint { fs_type: "fuse.s3".into(), ..MountPoint::default() });
        assert_eq!((id(&seen), judge(&seen).confidence), ("fuse-daemon-hung", 0.6));
    }
}
