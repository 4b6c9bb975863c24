//! hung call: facts against verdicts.

use std::{sync::Arc, time::Duration};

use podstuck_common::record::reason;

use crate::{
    causes::{
        hung_call::{
            judge::{
                BUSY_HOLDER, Beside, FEW_SIGNS, Judged, NO_STACK, SLOW_DEVICE, SLOW_LISTENER,
                SLOW_SERVER, Waits, judge, waits_for_disk,
            },
            tracker::HungCalls,
        },
        shared::{claim::UNKNOWN_DEVICE, kernel_lock::MAY_BE_RELEASED},
    },
    event::What,
    model::{
        call::Call,
        disk::Disk,
        errno::Errno,
        evidence::Certainty,
        holder::{Holder, How, Through},
        hung::{DiskWork, MountPoint, NfsServer, Phase, WaitProgress},
        identity::{Component, Pod, Target},
        kernel_lock::LockHolder,
        mounts::{Device, Mounts, NodeMounts},
        node::{NodeSample, PodState},
        pod_record::PodRecord,
        said::{Report, Said},
        stuck::StuckThread,
        thread::Times,
        time::Monotonic,
    },
    query::{Answer, Fanotify, FindListener, Listening, NoAnswer},
    testing::{Alone, failed, found, holder, holder_of, lock_holder, pod_record, pod_state, stuck},
    tracker::{Claim, Subject, Tracker},
    verdict::Verdict,
};

const SLOW: Duration = Duration::from_secs(2);

pub(in crate::causes::hung_call) fn judged(
    seen: &StuckThread,
    disk_works: Option<bool>,
) -> Option<Judged> {
    judge(seen, Beside { slow: SLOW, disk_works, ..Beside::default() })
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
        (&["fanotify_handle_event", "fsnotify"], "fanotify-listener-hung", 30),
        (&["rpc_wait_bit_killable", "nfs4_proc_getattr"], "nfs-server-unreachable", 30),
        (&locked, "call-hung-unexplained", 120),
    ] {
        let before = judged(&aged(stuck(stack), from - 1), Some(false));
        let may_be_slow = before.and_then(|before| before.doubt) == Some(SLOW_LISTENER);
        assert!(before.is_none() || may_be_slow, "{cause}");
        assert_eq!(id(&aged(stuck(stack), from)), cause);
        assert_eq!(judged(&aged(stuck(stack), from), None).unwrap().doubt, None, "{cause}");
    }
    let busy = judged(&aged(stuck(&locked), 600), Some(true));
    assert_eq!(busy, None, "its device works");
}

#[test]
fn a_call_that_sleeps_for_a_lock_waits_for_its_holder() {
    let waits = |holder: &LockHolder, age| {
        let stack = ["rwsem_down_write_slowpath", "ext4_rmdir"];
        aged(StuckThread { lock: vec![holder.clone()], ..stuck(&stack) }, age)
    };
    let sleeps = lock_holder("sh", 7, &["pipe_read", "vfs_read"]);
    let judged = |holder: &LockHolder, age| judged(&waits(holder, age), Some(true));
    assert_eq!(judged(&sleeps, 9), None);
    let (early, late) = (judged(&sleeps, 10).unwrap(), judged(&sleeps, 30).unwrap());
    assert_eq!((early.waits, early.doubt), (Waits::Lock, Some(BUSY_HOLDER)));
    assert_eq!(late, Judged { waits: Waits::Lock, doubt: None });
    let reader = LockHolder { is_proven: false, ..sleeps.clone() };
    assert_eq!(judged(&reader, 30).unwrap().doubt, Some(MAY_BE_RELEASED));
    let works = LockHolder { state: 'R', ..sleeps };
    assert_eq!(judged(&works, 119), None);
    assert_eq!(judged(&works, 120).unwrap().doubt, Some(BUSY_HOLDER));
    // The holder waits for the server of the call's own file system.
    let of_server = lock_holder("sh", 7, &["request_wait_answer", "fuse_lookup"]);
    let mut seen = waits(&of_server, 30);
    assert_eq!(id(&seen), "kernel-lock-held", "of another file system's server");
    seen.mount = Some(MountPoint { fs_type: "fuse".into(), ..MountPoint::default() });
    assert_eq!(id(&seen), "fuse-daemon-hung");
}

#[test]
fn a_server_that_answers_others_is_slow() {
    let waits = |age| aged(stuck(&["request_wait_answer", "fuse_rmdir"]), age);
    let judged = |age, answered: Option<u64>| {
        let seen = waits(age);
        let answered = answered.map(|second| Monotonic(seen.began.0 + second * 1_000_000_000));
        judge(&seen, Beside { slow: SLOW, answered, ..Beside::default() })
    };
    assert_eq!(judged(49, Some(20)), None);
    assert_eq!(judged(50, Some(20)).unwrap().doubt, None, "silent for 30 s");
    assert_eq!(judged(119, Some(118)), None);
    assert_eq!(judged(120, Some(118)).unwrap().doubt, Some(SLOW_SERVER), "slow for 2 min");
    assert_eq!(judged(30, None).unwrap().doubt, None, "it answers no request");
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
            judge(&seen, Beside { slow: SLOW, answered, ..Beside::default() })
        };
        assert_eq!(judged(60, false).unwrap().waits, Waits::Nfs);
        assert_eq!(judged(60, true), None, "answers have come since the last sighting");
        let late = Judged { waits: Waits::Nfs, doubt: Some(SLOW_SERVER) };
        assert_eq!(judged(120, true), Some(late));
        // The call itself goes from answer to answer, as a long listing or a flush does.
        for (woken, quiet_ms, is_slow) in [(9, 100, true), (9, 20_000, false), (0, 100, false)] {
            let mut own = aged(seen.clone(), 60);
            own.progress =
                Some(WaitProgress { woken, milliseconds: 30_000, quiet_ms, seen_woken: woken > 0 });
            assert_eq!(judge(&own, Beside { slow: SLOW, ..Beside::default() }).is_none(), is_slow);
        }
    }
}

#[test]
fn other_servers_are_known_by_their_clients_functions_or_by_the_mount() {
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

#[test]
fn a_shutdown_is_slow_as_long_as_it_makes_progress() {
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

/// A device that completes no request is proven within seconds, and a shutdown that waits for it needs no time of its own.
#[test]
fn a_shutdown_that_waits_for_a_silent_device_is_named_at_once() {
    let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
    (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
    seen.times = Some(Times { state: 'D', user_ticks: None, start_ticks: None, sleeps: 1 });
    seen.progress =
        Some(WaitProgress { woken: 0, milliseconds: 1000, quiet_ms: 1000, seen_woken: false });
    let judged = |seen: &StuckThread, silent| {
        let beside = Beside { slow: SLOW, silent, ..Beside::default() };
        judge(seen, beside).map(|judged| (judged.waits, judged.doubt))
    };
    let seen = aged(seen, 7);
    assert_eq!(judged(&seen, Some(true)), Some((Waits::Shutdown, None)));
    assert_eq!(judged(&seen, Some(false)), Some((Waits::Shutdown, Some(UNKNOWN_DEVICE))));
    assert_eq!(judged(&seen, None), None);
    let stack = vec!["rwsem_down_write_slowpath".into()];
    let other = StuckThread { stack, wait_channel: None, ..seen.clone() };
    assert!(waits_for_disk(&seen) && !waits_for_disk(&other), "another wait");
    let times = seen.times.map(|times| Times { state: 'R', ..times });
    let runs = StuckThread { times, ..seen };
    assert_eq!(judged(&runs, Some(true)), None);
}

/// kubernetes#90593: a call on a file system whose disk answers no more.
#[test]
fn a_call_that_waits_for_a_silent_device_is_no_slow_one() {
    let judged = |age, silent, disk_works| {
        let seen = aged(stuck(&["io_schedule", "__ext4_find_entry"]), age);
        let beside = Beside { slow: SLOW, silent, disk_works, ..Beside::default() };
        judge(&seen, beside).map(|judged| (judged.waits, judged.doubt))
    };
    assert_eq!(judged(9, Some(true), Some(false)), None);
    assert_eq!(judged(10, Some(true), Some(false)), Some((Waits::Disk, Some(SLOW_DEVICE))));
    assert_eq!(judged(30, Some(true), Some(false)), Some((Waits::Disk, None)));
    assert_eq!(judged(30, Some(false), None), Some((Waits::Disk, Some(UNKNOWN_DEVICE))));
    assert_eq!(judged(30, None, Some(false)), None, "it is not proven to be silent");
}

/// The mount point of the volume is gone from the mount table: its device is known if a sample had it before.
#[test]
fn the_silent_device_of_an_unmount_is_named() {
    let device = Device { major: 8, minor: 0 };
    let sample = |second: u64, mounts: &NodeMounts| {
        let (name, below) = ("sda".into(), Vec::new());
        let disk = Disk { name, device, in_flight: 2, done: 9, below, served_by: None };
        let at = Monotonic(second * 1_000_000_000);
        let (disks, mounts) = (vec![disk], mounts.clone());
        What::Sample(NodeSample { at, disks, mounts, ..NodeSample::default() }.into())
    };
    let found_with = |mounts: NodeMounts, functions: &[&str]| {
        let mut hung = Alone::<HungCalls>::new();
        for second in [0, 6] {
            hung.take(Monotonic(second * 1_000_000_000), sample(second, &mounts));
        }
        let mut seen = aged(stuck(functions), 7);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.times = Some(Times { state: 'D', user_ticks: None, start_ticks: None, sleeps: 1 });
        let (woken, milliseconds, quiet_ms) = (0, 1000, 1000);
        seen.progress = Some(WaitProgress { woken, milliseconds, quiet_ms, seen_woken: false });
        seen.path = Some("/k/pods/u/volumes/p/v".into());
        found(see(&mut hung, seen)).pop()
    };
    let line = "9 2 8:0 / /k/pods/u/volumes/p/v rw - ext4 /dev/sda rw\n";
    let tables = [(1, crate::testing::mounts(line).into())].into();
    let mounted = NodeMounts { tables, host: Some(1) };
    let shuts_down = ["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"];
    let likely = found_with(NodeMounts::default(), &shuts_down).unwrap();
    likely.assert_is("umount-kernel-hang", Certainty::Likely);
    assert_eq!(holder_of(&likely.held_by), "sda");
    assert!(likely.remedies[0].words().starts_with("bring back the disk sda"));
    let certain = found_with(mounted, &shuts_down).unwrap();
    certain.assert_is("umount-kernel-hang", Certainty::Firm);
    assert!(found_with(NodeMounts::default(), &["rwsem_down_write_slowpath"]).is_none());
}

#[test]
fn a_late_sighting_of_a_long_sleep_is_no_progress() {
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
    // The thread is in its next call, whose entry the probes have not reported yet.
    seen.stack =
        ["perf_syscall_enter", "trace_syscall_enter", "do_syscall_64"].map(str::to_owned).into();
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

fn seen(tid: u32, stack: &[&str], began: u64) -> StuckThread {
    let mut seen = stuck(stack);
    seen.thread.tid = tid;
    (seen.began, seen.at) = (Monotonic(began), Monotonic(200_000_000_000));
    seen
}

fn see(hung: &mut Alone<HungCalls>, seen: StuckThread) -> Vec<Verdict> {
    hung.take(seen.at, What::Stuck(Box::new(seen))).verdicts
}

/// The thread's call returns, which its operation reports.
fn returned(hung: &mut Alone<HungCalls>, tid: u32) -> Vec<Verdict> {
    let mut op = failed(Call::Unlinkat, Errno::EIO, "m", 9.0);
    (op.tid, op.reason) = (tid, reason::SLOW);
    hung.take(op.end, What::Operation(Box::new(op))).verdicts
}

fn id_of_tracker(verdicts: &[Verdict]) -> &'static str {
    match verdicts {
        [Verdict::Found(draft)] => draft.id(),
        [Verdict::Over { .. }] => "over",
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_thread_that_explains_most_is_reported_until_all_return() {
    let mut hung = Alone::new();
    let lock = ["rwsem_down_write_slowpath", "do_unlinkat"];
    assert_eq!(id_of_tracker(&see(&mut hung, seen(1, &lock, 1))), "call-hung-unexplained");
    let fuse = ["request_wait_answer", "fuse_do_getattr"];
    assert_eq!(id_of_tracker(&see(&mut hung, seen(2, &fuse, 2))), "fuse-daemon-hung");
    assert_eq!(id_of_tracker(&see(&mut hung, seen(1, &lock, 1))), "fuse-daemon-hung");
    assert_eq!(id_of_tracker(&returned(&mut hung, 2)), "call-hung-unexplained");
    let over = StuckThread { over: true, ..seen(1, &lock, 1) };
    assert_eq!(id_of_tracker(&see(&mut hung, over)), "over");
    assert!(returned(&mut hung, 1).is_empty());
}

/// Before a cause can be named, there is no finding, which does not mean that nothing is wrong.
#[test]
fn what_has_not_returned_is_named_until_its_cause_is() {
    let mut hung = Alone::<HungCalls>::new();
    let fuse = ["request_wait_answer", "fuse_do_getattr"];
    let pod = Some(Pod { uid: "u".into(), namespace: None, name: None });
    let target = Arc::new(Target { pod, ..Target::clone(&seen(1, &fuse, 0).target) });
    let aged = |second: u64| StuckThread {
        at: Monotonic(second * 1_000_000_000),
        target: target.clone(),
        ..seen(1, &fuse, 0)
    };
    assert!(see(&mut hung, aged(12)).is_empty());
    let waits = |hung: &Alone<HungCalls>, second: u64, is_asked| {
        hung.tracker.waits(Monotonic(second * 1_000_000_000), is_asked)
    };
    let all = waits(&hung, 20, false);
    assert_eq!(all.len(), 1, "{all:?}");
    let said = "has not returned for 20 s: it is inside the call, and waits for the server of a FUSE file system, in the \
        kernel function request_wait_answer. A slow device takes up to";
    assert!(all[0].contains(said) && all[0].contains("diagnose --pod-uid u"), "{all:?}");
    assert!(waits(&hung, 20, true)[0].ends_with("keep watching"), "it is what was asked");
    assert_eq!(id_of_tracker(&see(&mut hung, aged(30))), "fuse-daemon-hung");
    assert!(waits(&hung, 30, false).is_empty());
    see(&mut hung, StuckThread { over: true, ..aged(31) });
    see(&mut hung, StuckThread { began: Monotonic(40_000_000_000), ..aged(42) });
    assert_eq!(waits(&hung, 42, false).len(), 1);
    see(&mut hung, StuckThread { over: true, ..aged(43) });
    assert!(waits(&hung, 43, false).is_empty());
}

/// An unmount of `VOLUME` in its shutdown, at an age in seconds and with the work that its device has done.
fn shut_down(second: u64, done: u64) -> StuckThread {
    let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
    (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
    seen.path = Some("/k/pods/u/volumes/p/v".into());
    seen.at = Monotonic(seen.began.0 + second * 1_000_000_000);
    let quiet_ms = second * 1000;
    seen.progress =
        Some(WaitProgress { woken: 0, milliseconds: 1000, quiet_ms, seen_woken: false });
    let device = Device { major: 8, minor: 16 };
    seen.disks =
        vec![DiskWork { device, done }, DiskWork { device: Device::default(), done: second }];
    seen
}

#[test]
fn a_device_that_works_is_slow() {
    for (then, id_then) in [(7, "umount-kernel-hang"), (8, "umount-flush-slow")] {
        let mut hung = Alone::new();
        let line = b"9 2 8:16 / /k/pods/u/volumes/p/v rw - ext4 /dev/sdb rw\n";
        let all = crate::model::mountinfo::parse(line);
        let table = Mounts { all, source: String::new(), pid: 1 };
        let mounts = NodeMounts { tables: [(1, table.into())].into(), host: Some(1) };
        let sample = NodeSample { mounts, ..NodeSample::default() };
        hung.take(Monotonic(1), What::Sample(sample.into()));
        assert!(see(&mut hung, shut_down(60, 7)).is_empty());
        let op = failed(Call::Unlinkat, Errno::EIO, "", 1.0);
        let subject = Subject::of(&op);
        assert!(hung.tracker.explains(&subject, Claim::Suspicion), "slow, and a component tries");
        assert_eq!(id_of_tracker(&see(&mut hung, shut_down(130, then))), id_then);
    }
}

#[test]
fn an_unmount_that_would_wait_for_a_withheld_abort_is_withheld_with_it() {
    let table = crate::testing::mounts("9 2 0:77 / /k/pods/u/volumes/p/v rw - fuse.s3 s3 rw\n");
    for (is_seen, given) in [(false, 0), (true, 2)] {
        let mut hung = Alone::new();
        if is_seen {
            let tables = [(1, table.clone().into())].into();
            let mounts = NodeMounts { tables, host: Some(1) };
            let sample = NodeSample { mounts, ..NodeSample::default() };
            hung.take(Monotonic(1), What::Sample(sample.into()));
        }
        let mut seen = stuck(&["request_wait_answer", "fuse_rmdir"]);
        seen.at = Monotonic(seen.began.0 + 32_000_000_000);
        let point = "/k/pods/u/volumes/p/v".into();
        let (id, fs_type, minor) = (Some(9), "fuse.s3".into(), 77);
        seen.mount = Some(MountPoint { id, point, fs_type, minor, ..MountPoint::default() });
        let [Verdict::Found(draft)] = &see(&mut hung, seen)[..] else { panic!("no finding") };
        let remedies = draft.remedies.iter().cloned();
        let commands =
            remedies.filter(|it| it.clone().given(Certainty::Firm, false).command.is_some());
        assert_eq!(commands.count(), given, "{:#?}", draft.remedies);
        assert_eq!(draft.remedies.len(), 2);
    }
}

#[test]
fn a_server_that_answers_others_ends_what_was_said_of_it() {
    let mut hung = Alone::new();
    let waits = |second: u64, unanswered| {
        let mut seen = stuck(&["request_wait_answer", "fuse_rmdir"]);
        seen.at = Monotonic(seen.began.0 + second * 1_000_000_000);
        let (fs_type, unanswered) = ("fuse.s3".into(), Some(unanswered));
        seen.mount = Some(MountPoint { fs_type, unanswered, ..MountPoint::default() });
        seen
    };
    assert!(see(&mut hung, waits(16, 9)).is_empty());
    assert_eq!(id_of_tracker(&see(&mut hung, waits(32, 9))), "fuse-daemon-hung");
    assert_eq!(id_of_tracker(&see(&mut hung, waits(64, 1))), "over");
    assert!(see(&mut hung, waits(90, 1)).is_empty(), "silent for too short a time");
    assert_eq!(id_of_tracker(&see(&mut hung, waits(94, 1))), "fuse-daemon-hung");
}

#[test]
fn a_thread_id_that_is_given_to_another_process_takes_nothing_over() {
    let mut hung = Alone::new();
    let fuse = ["request_wait_answer", "fuse_do_getattr"];
    assert_eq!(id_of_tracker(&see(&mut hung, seen(1, &fuse, 1))), "fuse-daemon-hung");
    let mut another = StuckThread { thread: seen(1, &fuse, 1).thread, ..shut_down(1, 7) };
    Arc::make_mut(&mut another.actor).started = Some(99);
    assert_eq!(id_of_tracker(&see(&mut hung, another)), "over");
}

/// A call on an NFS mount with these options, `second`s after it began, with what the server has sent by then.
fn on_nfs(second: u64, address: &str, port: Option<u16>, received: u64) -> StuckThread {
    let mut seen = stuck(&["rpc_wait_bit_killable", "nfs4_proc_getattr"]);
    seen.at = Monotonic(seen.began.0 + second * 1_000_000_000);
    let server = NfsServer { address: address.into(), port, received: Some(received) };
    seen.mount = Some(MountPoint {
        id: Some(9),
        fs_type: "nfs4".into(),
        server: Some(server),
        ..MountPoint::default()
    });
    seen
}

fn listening(is_listening: bool, unread: u32) -> Answer {
    Answer::Listener(Ok(Listening { somebody: is_listening, namespaces: 3, unread }))
}

#[test]
fn a_server_on_the_node_without_a_listener_is_a_dead_tunnel() {
    let dead = NoAnswer::Deadline(std::time::Duration::from_secs(2));
    for (answer, id_then, certainty) in [
        (listening(false, 0), "efs-stunnel-dead", Certainty::Likely),
        (listening(true, 0), "nfs-server-unreachable", Certainty::Firm),
        (listening(false, 2), "nfs-server-unreachable", Certainty::Likely),
        (Answer::Listener(Err(dead)), "nfs-server-unreachable", Certainty::Likely),
    ] {
        let mut hung = Alone::<HungCalls>::new();
        let seen = on_nfs(40, "127.0.0.1", Some(20249), 0);
        let steps = hung.take(seen.at, What::Stuck(Box::new(seen.clone())));
        assert!(steps.verdicts.is_empty(), "the verdict follows with the answer: {steps:?}");
        let [query] = &steps.queries[..] else { panic!("{steps:?}") };
        let wants = FindListener { address: "127.0.0.1".into(), port: 20249 }.into();
        assert_eq!(query.wants, wants);
        let draft = hung.answer(query, answer).unwrap();
        assert_eq!((draft.id(), draft.certainty()), (id_then, certainty), "{draft:#?}");
        let is_tunnel = draft.id() == "efs-stunnel-dead";
        let has_fact = |fact: &str| draft.evidence.iter().any(|it| it.fact.contains(fact));
        assert_eq!(has_fact("no process listens on TCP port 20249 at 127.0.0.1"), is_tunnel);
        // The next sighting has the verdict at once, and asks again.
        let later = on_nfs(80, "127.0.0.1", Some(20249), 0);
        let steps = hung.take(later.at, What::Stuck(Box::new(later)));
        assert_eq!((id_of_tracker(&steps.verdicts), steps.queries.len()), (id_then, 1));
    }
}

/// AgentBaker#9089: an agent that marks kubelet's file system no longer answers.
#[test]
fn a_fanotify_listener_is_named_where_it_is_the_only_one() {
    let agent = holder(How::Fanotify, Through::Itself, None);
    let of_files = Holder { exact: false, ..agent.clone() };
    let another = Holder { pid: Some(78), ..agent.clone() };
    let (whole, part) = (Certainty::Firm, Certainty::Likely);
    for (listeners, unread, certainty, who) in [
        (vec![agent.clone()], 0, whole, "backup (pid 77)"),
        (vec![of_files.clone(), agent.clone()], 0, whole, "backup (pid 77)"),
        (vec![agent.clone()], 1, part, "backup (pid 77)"),
        (vec![agent, another], 0, part, "backup (pid 77), backup (pid 78)"),
        (vec![of_files], 0, part, "backup (pid 77)"),
        (Vec::new(), 0, part, ""),
    ] {
        let mut hung = Alone::<HungCalls>::new();
        let seen = aged(stuck(&["fanotify_handle_event", "fsnotify"]), 30);
        let steps = hung.take(seen.at, What::Stuck(Box::new(seen)));
        assert!(steps.verdicts.is_empty(), "the verdict follows with the answer: {steps:?}");
        let [query] = &steps.queries[..] else { panic!("{steps:?}") };
        let answer = Answer::Fanotify(Ok(Fanotify { listeners, unread }));
        let draft = hung.answer(query, answer).unwrap();
        draft.assert_is("fanotify-listener-hung", certainty);
        assert_eq!(holder_of(&draft.held_by), who);
        assert!(!draft.remedies.is_empty());
    }
}

#[test]
fn a_server_elsewhere_is_no_tunnel_and_needs_no_question() {
    for (address, port, certainty) in [
        ("10.0.0.5", None, Certainty::Firm),
        ("10.0.0.5", Some(20249), Certainty::Firm),
        ("", None, Certainty::Likely),
        ("127.0.0.1", None, Certainty::Likely),
    ] {
        let mut hung = Alone::<HungCalls>::new();
        let seen = on_nfs(40, address, port, 0);
        let steps = hung.take(seen.at, What::Stuck(Box::new(seen)));
        assert!(steps.queries.is_empty(), "{address}");
        let [Verdict::Found(draft)] = &steps.verdicts[..] else { panic!("{steps:?}") };
        assert_eq!(draft.id(), "nfs-server-unreachable");
        assert_eq!(draft.certainty(), certainty, "{address}: {:?}", draft.not_known());
    }
}

#[test]
fn a_server_from_which_answers_have_come_is_not_away() {
    let mut hung = Alone::<HungCalls>::new();
    let mut at = |second, received| see(&mut hung, on_nfs(second, "10.0.0.5", None, received));
    assert!(at(10, 5).is_empty());
    assert!(at(30, 900).is_empty(), "answers have come since");
    assert_eq!(id_of_tracker(&at(60, 900)), "nfs-server-unreachable");
    assert_eq!(id_of_tracker(&at(90, 1000)), "over", "they come again");
    let slow = at(130, 2000);
    assert_eq!(id_of_tracker(&slow), "nfs-server-unreachable");
    let [Verdict::Found(draft)] = &slow[..] else { panic!("{slow:?}") };
    assert_eq!(draft.certainty(), Certainty::Likely, "it answers others");
}

/// Seen with a real client: each new attempt to connect wakes the thread.
#[test]
fn a_thread_that_is_woken_while_no_byte_comes_waits_for_a_server_that_is_away() {
    let mut hung = Alone::<HungCalls>::new();
    let mut at = |second| {
        let mut seen = on_nfs(second, "10.0.0.5", None, 900);
        seen.progress =
            Some(WaitProgress { woken: 2, milliseconds: 16_000, quiet_ms: 100, seen_woken: true });
        see(&mut hung, seen)
    };
    assert!(at(31).is_empty(), "there is nothing to compare with yet");
    assert_eq!(id_of_tracker(&at(60)), "nfs-server-unreachable");
}

#[test]
fn a_finding_is_over_even_if_the_caller_cannot_be_proven_any_more() {
    let mut hung = Alone::new();
    let seen = seen(1, &["request_wait_answer", "fuse_do_getattr"], 1);
    assert_eq!(id_of_tracker(&see(&mut hung, seen.clone())), "fuse-daemon-hung");
    let mut over = StuckThread { over: true, ..seen };
    Arc::make_mut(&mut over.actor).component = Component::Workload;
    assert_eq!(id_of_tracker(&see(&mut hung, over)), "over");
}

#[test]
fn without_a_kernel_function_no_wait_is_ruled_out() {
    for (fs_type, id_then) in [
        ("fuse.s3", "fuse-daemon-hung"),
        ("nfs4", "nfs-server-unreachable"),
        ("ext4", "call-hung-unexplained"),
    ] {
        let mount = MountPoint { fs_type: fs_type.into(), ..MountPoint::default() };
        let silent = StuckThread { mount: Some(mount), ..seen(1, &[], 1) };
        let verdicts = see(&mut Alone::new(), silent);
        assert_eq!(id_of_tracker(&verdicts), id_then);
        let [Verdict::Found(draft)] = &verdicts[..] else { panic!("{verdicts:?}") };
        let by_a_function = |fact: &str| fact.contains("the thread") || fact.contains("stack");
        let facts = draft.ruled_out.iter().map(|other| other.fact.as_str());
        let wrong: Vec<&str> = facts.filter(|fact| by_a_function(fact)).collect();
        assert!(wrong.is_empty(), "{fs_type}: {wrong:?}");
    }
}

#[test]
fn what_it_is_about_must_be_known() {
    let unknown = StuckThread { path: None, ..seen(1, &["request_wait_answer"], 1) };
    assert!(see(&mut Alone::new(), unknown).is_empty());
}

/// As in kubernetes issues 90593 and 101622: kubelet reads another pod's leftovers, and does nothing for this pod.
#[test]
fn a_call_of_kubelets_on_another_pods_volume_keeps_the_pod_in_question() {
    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    let seen = || {
        let seen = aged(stuck(&["request_wait_answer", "fuse_do_getattr"]), 90);
        let mut actor = (*seen.actor).clone();
        (actor.pid, actor.component) = (42, Component::Kubelet);
        let mut of = (*seen.target).clone();
        of.pod = Some(Pod { uid: "another".into(), namespace: None, name: None });
        StuckThread { syscall: "newfstatat".into(), actor: actor.into(), target: of.into(), ..seen }
    };
    let finding = |record: PodRecord, pod: PodState, kubelets: &[u32], said: &[Report]| {
        let mut alone = Alone::<HungCalls>::new();
        alone.asked = Some(UID.into());
        let record = What::Record { record: Box::new(record), node: "n".into() };
        alone.take(Monotonic(1), record);
        for report in said {
            let at = jiff::Timestamp::from_second(50).unwrap();
            let said = Said::new(Component::Kubelet, "log", UID, at, "x");
            alone.take(Monotonic(2), What::Said(Box::new(Said { report: Some(*report), ..said })));
        }
        let (at, kubelets) = (Monotonic(80_000_000_000), kubelets.to_vec());
        let sample = NodeSample { at, kubelets, pods: vec![pod], ..NodeSample::default() };
        alone.take(at, What::Sample(sample.into()));
        let steps = alone.take(seen().at, What::Stuck(Box::new(seen())));
        found(steps.verdicts).pop()
    };
    let record =
        || PodRecord { deletion: jiff::Timestamp::from_second(40).ok(), ..pod_record(UID) };
    let runs = || PodState { populated: Some(true), ..pod_state(UID) };
    let draft = finding(record(), runs(), &[42], &[]).unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("fuse-daemon-hung", Certainty::Likely));
    assert_eq!(holder_of(&draft.held_by), "kubelet (pid 42)");
    assert_eq!(draft.target.pod.as_ref().map(|pod| pod.uid.as_str()), Some(UID));
    assert_eq!(draft.blocks_deletion, Some(true));
    assert!(draft.explanation.contains("(another)"), "{}", draft.explanation);
    let ended = PodState { populated: Some(false), ..pod_state(UID) };
    assert!(finding(record(), ended, &[42], &[]).is_none(), "kubelet has come further");
    assert!(finding(record(), runs(), &[42], &[Report::ToGo]).is_none(), "it has heard of it");
    assert!(finding(record(), runs(), &[42], &[Report::Killing]).is_none());
    assert!(finding(record(), runs(), &[42, 43], &[]).is_none(), "whose kubelet is it?");
    let early = PodRecord { deletion: jiff::Timestamp::from_second(90).ok(), ..pod_record(UID) };
    assert!(finding(early, runs(), &[42], &[]).is_none(), "its grace lasts");
    let stays = PodRecord { deletion: None, ..pod_record(UID) };
    assert!(finding(stays, runs(), &[42], &[]).is_none(), "it is not to go");
}
