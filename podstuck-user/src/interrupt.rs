//! Handles Ctrl-C: the first ends the work in order, the second at once.
//!
//! SIGHUP, of a terminal that is gone, ends it in order as well, and never at once: a shell and the kernel may both
//! send it, and a session's end sends SIGTERM beside it (`SendSIGHUP=` of systemd). If it is ignored from the start
//! (nohup(1)), it stays ignored.
//!
//! The signal handlers themselves set the flag and end the process: whatever the runtime waits for, the second signal
//! counts. The kernel would deliver each signal to the first thread, even when that waits where no handler can run
//! (for a dead disk, or for a lock in `/proc`). So a thread of its own receives them, and the others block them.

use std::{
    io::Write,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Builder, Thread},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    low_level::exit,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::logging::{self, Unwaiting};
use podstuck_confine::role::Role;
use podstuck_show::tui;

/// 128 + SIGINT, as shells show it.
const ABORTED: i32 = 130;
/// Exit status of a run that lost data.
const LATE: i32 = 4;

/// Unblocks signals, which the parent process may have blocked: a run does so in the threads that start its helpers.
pub fn unblock() {
    // It fails only for signals that do not exist.
    let _ = ours().thread_unblock();
}

/// Starts threads that receive no signals.
pub(crate) fn apart<T>(start: impl FnOnce() -> T) -> T {
    let _ = ours().thread_block();
    let started = start();
    let _ = ours().thread_unblock();
    started
}

fn ours() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// Whether SIGHUP is handled: the parent process may have ignored it.
fn hears_hangup() -> bool {
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    status.is_ok_and(|status| status.sigign & (1 << (SIGHUP - 1)) == 0)
}

/// A flag that SIGINT, SIGTERM and SIGHUP set, any number of times: for work that cleans up after itself, and checks
/// the flag regularly.
pub(crate) fn patient() -> Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    let hangup = hears_hangup().then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        flag::register(signal, Arc::clone(&stop)).context("listening to signals")?;
    }
    Ok(stop)
}

/// Signals the end of a run. The user's second signal ends the process.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    notify: Arc<Notify>,
    /// The latest end of the process.
    end: Arc<OnceLock<Instant>>,
    /// Whether the end came in time.
    in_time: Arc<AtomicBool>,
    /// The thread that enforces it.
    signals: Option<Thread>,
}

impl Stop {
    /// Starts handling SIGINT, SIGTERM and SIGHUP. Call it inside the runtime; this thread, and all that it starts
    /// from now on, block them.
    pub(crate) fn listen() -> Result<Self> {
        // The request is checked before it is noted: handlers run in this order.
        let mut stop = Self::default();
        let asked = Arc::<AtomicBool>::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, ABORTED, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.flag)))
                .context("listening to signals")?;
        }
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        if hears_hangup() {
            flag::register(SIGHUP, Arc::clone(&stop.flag)).context("listening to signals")?;
            kinds.push(SignalKind::hangup());
        }
        for kind in kinds {
            let mut signals = signal(kind).context("listening to signals")?;
            let notify = stop.notify.clone();
            tokio::spawn(async move {
                signals.recv().await;
                notify.notify_one();
            });
        }
        let (end, in_time) = (stop.end.clone(), stop.in_time.clone());
        let wait = move || {
            Role::HearSignals.assume();
            watch(&end, &in_time);
        };
        let signals = Builder::new().name("signals".into()).spawn(wait);
        stop.signals = Some(signals.context("starting a thread")?.thread().clone());
        ours().thread_block().context("leaving signals to that thread")?;
        Ok(stop)
    }

    /// Ends the process after this time from now, whatever it waits for.
    pub(crate) fn end_within(&self, limit: Duration) {
        let _ = self.end.set(Instant::now() + limit);
        self.signals.iter().for_each(Thread::unpark);
    }

    /// The work has ended: the rest waits for the user.
    pub(crate) fn ended_in_time(&self) {
        self.in_time.store(true, Ordering::SeqCst);
    }

    /// Waits for the first signal.
    pub(crate) async fn requested(&self) {
        if !self.is_requested() {
            self.notify.notified().await;
        }
    }

    /// Whether the first signal came.
    pub(crate) fn is_requested(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }
}

/// Receives signals, until there is a time at which the process ends.
fn watch(end: &OnceLock<Instant>, in_time: &AtomicBool) {
    loop {
        let Some(end) = end.get().filter(|_| !in_time.load(Ordering::SeqCst)) else {
            thread::park();
            continue;
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            tui::restore();
            logging::release();
            // No lock that another thread may hold is waited for.
            let _ = Unwaiting
                .write(b"podstuck: the end of the run took too long: some output is missing\n");
            exit(LATE);
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use nix::{sys::signal::kill, unistd::Pid};
    use podstuck_testing::{again, hear_terminal, is_started_again};
    use tokio::runtime;

    use super::*;

    /// Signals are for the whole process: each of these tests runs in one of its own.
    fn status_of_this_test() -> Option<i32> {
        again().output().unwrap().status.code()
    }

    fn in_runtime(work: impl Future<Output = ()>) {
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    }

    /// Sends it to the process, as a terminal does.
    fn send(signal: Signal) {
        kill(Pid::from_raw(id().cast_signed()), signal).unwrap();
    }

    /// Blocks the runtime.
    fn wait_for(flag: &AtomicBool) {
        while !flag.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_second_signal_ends_what_does_not_listen() {
        if !is_started_again() {
            assert_eq!(status_of_this_test(), Some(ABORTED));
            return;
        }
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGTERM));
            send(Signal::SIGINT);
            wait_for(&stop.flag);
            send(Signal::SIGTERM);
            thread::sleep(Duration::from_secs(30));
        });
    }

    #[test]
    fn a_terminal_that_is_gone_ends_nothing_at_once() {
        if !is_started_again() {
            assert_eq!(status_of_this_test(), Some(0));
            return;
        }
        hear_terminal();
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            for signal in [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGHUP] {
                send(signal);
                wait_for(&stop.flag);
                thread::sleep(Duration::from_millis(50));
            }
            stop.requested().await;
        });
    }

    #[test]
    fn a_first_signal_is_reported() {
        if !is_started_again() {
            assert_eq!(status_of_this_test(), Some(0));
            return;
        }
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            assert!(!stop.is_requested());
            send(Signal::SIGTERM);
            stop.requested().await;
            wait_for(&stop.flag);
            stop.requested().await;
        });
    }

    #[test]
    fn an_end_that_takes_too_long_is_enforced() {
        if !is_started_again() {
            assert_eq!(status_of_this_test(), Some(LATE));
            return;
        }
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            stop.end_within(Duration::from_millis(50));
            thread::sleep(Duration::from_secs(30));
        });
    }

    #[test]
    fn patient_work_survives_further_signals() {
        if !is_started_again() {
            assert_eq!(status_of_this_test(), Some(0));
            return;
        }
        let stop = patient().unwrap();
        for _ in 0..3 {
            send(Signal::SIGINT);
            wait_for(&stop);
        }
    }

    #[test]
    fn threads_that_are_started_apart_block_signals() {
        let blocked = || SigSet::thread_get_mask().unwrap().contains(Signal::SIGINT);
        assert!(apart(|| thread::spawn(blocked)).join().unwrap());
        assert!(!blocked());
    }
}
