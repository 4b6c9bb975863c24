//! Why a call does not return, by the kernel's functions that it is in.
//!
//! The names are those of Linux 5.10 to 6.18: fs/fuse/dev.c, fs/super.c and
//! kernel/locking/percpu-rwsem.c (a frozen file system), net/sunrpc, fs/fs-writeback.c.

use crate::{
    model::{call::Call, hung::Phase},
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
/// The same where a flush gives no sign of life before it is over. The kernel itself complains about
/// a task after so long (`hung_task_timeout_secs`).
const LIFELESS_FLUSH_MS: u64 = 120_000;
/// Servers of remote and FUSE file systems may be slow: an object store takes seconds for a request
/// that it answers.
const SLOW_SERVER_MS: u64 = 10_000;

/// Decides; `None` while it is too early to say anything.
pub(super) fn judge(seen: &Sighting) -> Option<Judged> {
    let fs_type = seen.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    let has = |test: fn(&str) -> bool| functions(seen).any(test);
    let judged = |cause, id, confidence| Some(Judged { cause, id, confidence });
    let by_server = |cause, id, confidence| {
        judged(cause, id, if age_ms(seen) < SLOW_SERVER_MS { 0.6 } else { confidence })
    };
    if has(|f| f == "request_wait_answer" || f.starts_with("fuse_") || f.starts_with("__fuse")) {
        return by_server(Cause::Fuse, "fuse-daemon-hung", 0.95);
    }
    if has(|f| f.starts_with("percpu_rwsem_wait") || f.starts_with("__percpu_down_read")) {
        let named = has(|f| f.contains("mnt_want_write") || f.contains("sb_start_write"));
        let confidence = if named { 0.95 } else { 0.6 };
        return judged(Cause::Frozen, "filesystem-frozen", confidence);
    }
    // Shutting one down is no question to its server.
    let asks =
        |f: &str| ["rpc_", "__rpc_", "nfs_", "nfs3_", "nfs4_"].iter().any(|p| f.starts_with(p));
    if functions(seen).any(|f| asks(f) && !f.ends_with("_super")) {
        return by_server(Cause::Nfs, "nfs-server-unreachable", 0.85);
    }
    let unmounts = seen.phase == Phase::AfterExit
        || (seen.syscall == Call::Umount2.name() && has(|f| f.contains("_super")));
    if unmounts {
        return shutdown(seen);
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

/// Whether the shutdown of a file system comes on. One that writes is woken as parts of it are done;
/// one whose device has stopped is woken a few times in the beginning at most.
fn shutdown(seen: &Sighting) -> Option<Judged> {
    let quiet_ms = seen.progress?.quiet_ms;
    let age_ms = age_ms(seen);
    // Woken once, by the last page of all that the file system has to write (fs/fs-writeback.c), and
    // not as parts of it are done. Under an overlay that is the node's disk.
    if functions(seen).any(|f| f == "wb_wait_for_completion") {
        let (cause, id) = if quiet_ms < LIFELESS_FLUSH_MS {
            (Cause::Flush, "umount-flush-slow")
        } else {
            (Cause::Shutdown, "umount-kernel-hang")
        };
        return (age_ms >= LIFELESS_MS).then_some(Judged { cause, id, confidence: 0.6 });
    }
    let runs = seen.times.is_some_and(|times| times.state == 'R');
    // On a processor, or waiting for one: it may have come back long ago.
    if runs && functions(seen).next().is_none() {
        return None;
    }
    if quiet_ms >= LIFELESS_MS && !runs {
        let id = "umount-kernel-hang";
        return Some(Judged { cause: Cause::Shutdown, id, confidence: 0.85 });
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
    let confidence = if writes && age_ms >= LIFELESS_MS { 0.85 } else { 0.6 };
    Some(Judged { cause: Cause::Flush, id: "umount-flush-slow", confidence })
}

fn age_ms(seen: &Sighting) -> u64 {
    seen.at.since(seen.began).as_millis() as u64
}

fn functions(seen: &Sighting) -> impl Iterator<Item = &str> {
    seen.stack.iter().chain(&seen.wait_channel).map(String::as_str)
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
    use crate::model::{
        hung::{MountPoint, Progress},
        time::Monotonic,
    };
    use crate::state::thread::Times;

    fn id(seen: &Sighting) -> &'static str {
        judge(seen).map_or("too early", |judged| judged.id)
    }

    #[test]
    fn recorded_stacks_have_their_cause() {
        let fuse = sample(&["request_wait_answer", "__fuse_simple_request", "fuse_rmdir"]);
        assert_eq!(id(&fuse), "fuse-daemon-hung");
        let frozen = sample(&["percpu_rwsem_wait", "mnt_want_write", "do_rmdir"]);
        assert_eq!(id(&frozen), "filesystem-frozen");
        let nfs = sample(&["rpc_wait_bit_killable", "nfs4_proc_getattr"]);
        assert_eq!(id(&nfs), "nfs-server-unreachable");
        // What a slow server does not do.
        assert!(judge(&fuse).unwrap().confidence < 0.7 && judge(&nfs).unwrap().confidence < 0.7);
        let later = |seen: Sighting| Sighting { at: Monotonic(12_000_000_000), ..seen };
        assert!(judge(&later(fuse)).unwrap().confidence > 0.9);
        assert!(judge(&later(nfs)).unwrap().confidence > 0.8);
        assert_eq!(id(&sample(&["io_schedule", "__ext4_find_entry"])), "call-hung-unexplained");
    }

    #[test]
    fn a_shutdown_is_slow_as_long_as_it_comes_on() {
        let mut seen = sample(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
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
            seen.progress = Some(Progress { woken: 1, milliseconds, quiet_ms });
            assert_eq!(id(&seen), expected, "{age_ms} {quiet_ms}");
        }
        assert!((judge(&seen).unwrap().confidence - 0.85).abs() < 0.001);
    }

    #[test]
    fn a_thread_that_runs_is_in_no_shutdown_unless_something_shows_it() {
        let mut seen = sample(&[]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.progress = Some(Progress { woken: 1, milliseconds: 1000, quiet_ms: 100 });
        assert_eq!(id(&seen), "umount-flush-slow");
        seen.times = Some(Times { state: 'R', user_ticks: None, start_ticks: None, sleeps: 1 });
        assert_eq!(id(&seen), "too early");
    }

    #[test]
    fn a_flush_of_a_whole_disk_gives_no_sign_of_life() {
        let mut seen =
            sample(&["wb_wait_for_completion", "sync_inodes_sb", "ovl_sync_fs", "nfs_kill_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        for (age_ms, expected) in
            [(2000, "too early"), (60_000, "umount-flush-slow"), (121_000, "umount-kernel-hang")]
        {
            seen.at = Monotonic(seen.began.0 + age_ms * 1_000_000);
            seen.progress = Some(Progress { woken: 0, milliseconds: 1000, quiet_ms: age_ms });
            assert_eq!(id(&seen), expected, "{age_ms}");
            assert!(judge(&seen).is_none_or(|judged| judged.confidence < 0.7));
        }
    }

    #[test]
    fn without_a_stack_the_mount_speaks_less_loudly() {
        let mut seen = sample(&[]);
        seen.mount = Some(MountPoint { fs_type: "fuse.s3".into(), ..MountPoint::default() });
        assert_eq!((id(&seen), judge(&seen).unwrap().confidence), ("fuse-daemon-hung", 0.6));
    }
}
