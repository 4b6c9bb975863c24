//! Whether the shutdown of a file system comes on, or stands still. Its functions are those of fs/super.c and
//! fs/fs-writeback.c of Linux 5.10 to 6.18.

use std::time::Duration;

use super::judge::{Beside, FEW_SIGNS, Judged, LIVELY_MS, Waits, functions};
use crate::{
    causes::shared::claim::UNKNOWN_DEVICE,
    model::{hung::PATIENCE, stuck::StuckThread},
};

/// Before, nothing is said of a flush: also one that is about to stop begins with some progress.
const FLUSH_MS: u64 = 2000;

/// One that writes is woken as parts of it are done; one whose device has stopped is woken a few times in the
/// beginning at most.
pub(super) fn judge(seen: &StuckThread, beside: Beside) -> Option<Judged> {
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

#[cfg(test)]
mod tests {
    use super::{
        super::judge::tests::{id, judged},
        *,
    };
    use crate::{
        model::{
            hung::{Phase, WaitProgress},
            thread::Times,
            time::Monotonic,
        },
        testing::stuck,
    };

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
}
