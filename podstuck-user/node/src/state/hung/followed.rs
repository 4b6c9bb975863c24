//! One thread that may be stuck, from the first check to the last.

use std::{cell::OnceCell, time::Duration};

use nix::libc;
use podstuck_common::record::Caller;

use super::{
    Sighting,
    anchor::{Anchor, Position},
    calls::{Argument, waits_for_child},
    object::Object,
    room::Owner,
};
use crate::state::{
    disks, kernel_locks,
    thread::{Doing, ReadThread as _},
};
use podstuck_confine::{mount_point, proc, timed_read::TimedReader};
use podstuck_model::{
    call::Call,
    hung::{PATIENCE, Phase, Since, WaitProgress},
    kernel_lock::LockHolder,
    thread::{Thread, Times},
    time::Monotonic,
};

/// Shortest and longest time between two checks. A thread that shuts a file system down is checked often, so that its
/// duration is known to a tenth of a second.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);
const LATEST_AFTER_EXIT: Duration = Duration::from_millis(100);
/// A thread that slept more often than this between two checks was not in one reading call: it repeats the same call.
/// A signal wakes it, too.
const FEW_SLEEPS: u64 = 3;

/// How often the object of a call is asked for: a node may be overloaded.
const ASKED: u32 = 5;
/// Pause before it is asked for again; twice, three times as long before the next ones.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// One thread.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) thread: Thread,
    pub(super) anchor: Anchor,
    pub(super) phase: Phase,
    pub(super) name: String,
    pub(super) object: Object,
    /// Where to ask for the rest of the object's path.
    pub(super) text: Option<u64>,
    pub(super) asked: bool,
    /// Age at which the text is asked for.
    pub(super) ask_at: Duration,
    /// How often there was no answer.
    pub(super) unanswered: u32,
    pub(super) began: Monotonic,
    pub(super) since: Since,
    pub(super) before_start: bool,
    pub(super) actor: Caller,
    /// Read when a thread must be dropped.
    pub(super) owner: OnceCell<Owner>,
    /// Age of the first report.
    pub(super) threshold: Duration,
    /// Age of the next report.
    pub(super) report_at: Duration,
    pub(super) is_reported: bool,
    pub(super) next_look: Monotonic,
    /// When it ended, while the probes' record is still to come.
    pub(super) ended: Option<Monotonic>,
    /// The times at the last check.
    pub(super) last: Option<Times>,
    /// The times at the last report, and when that was.
    pub(super) before: Option<(Times, Monotonic)>,
    /// The last check that saw that the thread had been awake; the first check where none did.
    pub(super) woken: Monotonic,
    pub(super) seen_woken: bool,
}

impl Followed {
    /// Begins to follow a thread.
    pub(super) fn new(
        thread: Thread,
        anchor: Anchor,
        name: &str,
        began: Monotonic,
        threshold: Duration,
        reader: &mut TimedReader,
    ) -> Self {
        let phase = match anchor {
            Anchor::Entry(_) | Anchor::Call(_) => Phase::InSyscall,
            Anchor::Exit => Phase::AfterExit,
            Anchor::Program => Phase::BeforeUmount,
        };
        let times = thread.times(reader);
        Self {
            thread,
            anchor,
            phase,
            name: name.to_owned(),
            object: Object::Known(None),
            text: None,
            asked: true,
            ask_at: threshold / 2,
            unanswered: 0,
            began,
            since: Since::Probe,
            before_start: false,
            actor: Caller::default(),
            owner: OnceCell::new(),
            threshold,
            report_at: threshold,
            is_reported: false,
            next_look: podstuck_confine::clock::now(),
            ended: None,
            last: times,
            before: times.map(|times| (times, podstuck_confine::clock::now())),
            woken: podstuck_confine::clock::now(),
            seen_woken: false,
        }
    }

    /// Sets where the object's path is.
    pub(super) fn about(mut self, argument: Argument, reader: &mut TimedReader) -> Self {
        (self.object, self.text) = Object::of(self.thread, argument, reader);
        self.asked = self.text.is_none();
        self
    }

    /// The object's path was not answered: it is asked for again after a while, or given up.
    pub(super) fn has_no_answer(&mut self, now: Monotonic) {
        self.unanswered += 1;
        if self.unanswered == ASKED {
            return self.object.give_up();
        }
        (self.asked, self.ask_at) = (false, self.age(now) + ASK_AGAIN * self.unanswered);
    }

    /// Its duration so far.
    pub(super) fn age(&self, now: Monotonic) -> Duration {
        now.since(self.began)
    }

    /// Checks where the thread is, and sets the time of the next check.
    pub(super) fn check(&mut self, now: Monotonic, reader: &mut TimedReader) -> Position {
        let latest = if self.anchor == Anchor::Exit { LATEST_AFTER_EXIT } else { LATEST };
        let pause = (self.age(now) / 10).clamp(SOONEST, latest);
        self.next_look = Monotonic(now.0 + pause.as_nanos() as u64);
        // The first read may have had no answer.
        if self.actor.mnt_ns == 0 && !matches!(self.anchor, Anchor::Exit) {
            self.actor = self.thread.actor(reader);
        }
        let times = self.thread.times(reader);
        if times.is_none() && proc::exists(self.thread.pid, self.thread.tid) {
            return Position::Still;
        }
        let position = self.still(self.thread.doing(reader), times);
        if let (Anchor::Call(_), Some(last), Some(times)) = (self.anchor, self.last, times)
            && times.sleeps > last.sleeps + FEW_SLEEPS
            && self.since == Since::FirstLook
        {
            self.began = now;
        }
        if self.last.zip(times).is_some_and(|(last, times)| times.sleeps != last.sleeps) {
            self.woken = now;
            self.seen_woken = true;
        }
        self.last = times.or(self.last);
        if self.age(now) >= self.threshold && times.is_some_and(|times| times.state == 'D') {
            kernel_locks::want();
        }
        position
    }

    fn still(&self, doing: Doing, times: Option<Times>) -> Position {
        let Some(times) = times.filter(|times| !['Z', 'X'].contains(&times.state)) else {
            return Position::Over;
        };
        // Its ids belong to another thread now.
        if self.last.is_some_and(|last| differ(last.start_ticks, times.start_ticks)) {
            return Position::Over;
        }
        let here = match (self.anchor, doing) {
            (_, Doing::Gone) => false,
            (Anchor::Program, Doing::Call { number, .. }) if waits_for_child(number) => {
                return Position::ForChild;
            }
            (Anchor::Program, Doing::Call { number, .. }) => number != libc::SYS_umount2,
            (Anchor::Program, _) => true,
            (Anchor::Entry(entry), Doing::Call { arguments, .. }) => {
                arguments.contains(&entry.path)
            }
            (Anchor::Call(then), now @ Doing::Call { .. }) => then == now,
            (Anchor::Exit, Doing::Call { number, .. }) => number == libc::SYS_umount2,
            // The kernel may be busy in the call; after the return, the thread uses user time.
            (_, Doing::Running) => {
                self.last.is_none_or(|last| !differ(last.user_ticks, times.user_ticks))
            }
            // A thread that has not slept again since is in the same wait.
            (_, Doing::Unreported) => self.last.is_none_or(|last| last.sleeps == times.sleeps),
            (_, Doing::Elsewhere) => false,
        };
        if here { Position::Still } else { Position::Over }
    }

    /// Whether a report is due, and the object is known.
    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.age(now) >= self.report_at && matches!(self.object, Object::Known(_))
    }

    /// The report of this moment. The next one is due at twice the age.
    pub(super) fn sight(
        &mut self,
        now: Monotonic,
        over: bool,
        reader: &mut TimedReader,
    ) -> Sighting {
        let mut seen = self.describe(now, over, reader);
        if !over {
            let times = self.last.or(seen.times);
            if let (Some((before, when)), Some(times)) = (self.before, times) {
                seen.progress = Some(WaitProgress {
                    woken: times.sleeps.saturating_sub(before.sleeps),
                    milliseconds: now.since(when).as_millis() as u64,
                    quiet_ms: now.since(self.woken).as_millis() as u64,
                    seen_woken: self.seen_woken,
                });
            }
            self.before = times.map(|times| (times, now));
            self.is_reported = true;
            self.report_at = next_report(self.age(now), self.threshold);
        }
        seen
    }

    fn describe(&self, now: Monotonic, over: bool, reader: &mut TimedReader) -> Sighting {
        let thread = self.thread;
        let path = self.object.path().map(ToOwned::to_owned);
        let live = !over;
        // After the exit nothing is mounted at the path any more.
        let mounted = live && self.phase != Phase::AfterExit;
        let times = if live { thread.times(reader) } else { None };
        Sighting {
            thread,
            phase: self.phase,
            syscall: self.name.clone(),
            mount: path
                .as_deref()
                .filter(|_| mounted)
                .and_then(|path| mount_point::of(thread.pid, path)),
            path,
            began: self.began,
            since: self.since,
            before_start: self.before_start,
            at: now,
            over,
            actor: self.actor,
            times,
            wait_channel: if live { thread.wait_channel(reader) } else { None },
            stack: if live { thread.stack(reader) } else { Vec::new() },
            progress: None,
            disks: if live && self.may_wait_for_disk(times) {
                disks::that_worked()
            } else {
                Vec::new()
            },
            lock: if live { self.lock(reader) } else { Vec::new() },
        }
    }

    fn lock(&self, reader: &mut TimedReader) -> Vec<LockHolder> {
        let mut holders = kernel_locks::holders(self.thread.tid);
        holders.iter_mut().for_each(|it| it.stack = it.thread.stack(reader));
        holders
    }

    /// Whether it may wait for a block device: it shuts a file system down, or is in uninterruptible sleep.
    fn may_wait_for_disk(&self, times: Option<Times>) -> bool {
        let in_kernel = times.is_some_and(|times| times.state == 'D');
        in_kernel || self.phase == Phase::AfterExit || self.name == Call::Umount2.name()
    }
}

/// The age of the next report: twice this age, or that of the next verdict where it is lower.
fn next_report(age: Duration, threshold: Duration) -> Duration {
    let mut verdicts = PATIENCE.iter().map(|times| threshold * *times);
    verdicts.find(|verdict| *verdict > age).map_or(age * 2, |verdict| verdict.min(age * 2))
}

/// Whether two numbers are known to differ.
fn differ(a: Option<u64>, b: Option<u64>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a != b)
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
