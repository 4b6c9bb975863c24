//! Ctrl-C: the first ends the work in order, the second at once.
//!
//! The flag is set, and the process ended, by the signal handlers themselves: whatever else waits for
//! a reader of standard output that has stopped, or works, the second signal counts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

/// 128 + SIGINT, as shells show it.
const ABORTED: i32 = 130;

/// A flag that SIGINT and SIGTERM set, however often they come: for work that cleans up after
/// itself, and looks at the flag now and then.
pub(super) fn patient() -> Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop)).context("listening to signals")?;
    }
    Ok(stop)
}

/// Says when to stop. The second signal ends the process.
#[derive(Clone, Default)]
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Stop {
    /// Begins to listen to SIGINT and SIGTERM. Call it inside the runtime.
    pub(super) fn listen() -> Result<Self> {
        // The wish to end is looked at before it is noted: handlers run in this order.
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, ABORTED, Arc::clone(&stop.flag))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.flag)))
                .context("listening to signals")?;
        }
        let mut interrupt = signal(SignalKind::interrupt()).context("listening to SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("listening to SIGTERM")?;
        let notify = stop.notify.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            notify.notify_one();
        });
        Ok(stop)
    }

    /// Waits for the first signal.
    pub(super) async fn requested(&self) {
        if !self.is_requested() {
            self.notify.notified().await;
        }
    }

    /// Whether it came.
    pub(super) fn is_requested(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use signal_hook::low_level::raise;
    use tokio::runtime;

    use super::*;

    /// Signals are the whole process's: each of these runs in one of its own.
    fn status_of(test: &str) -> Option<i32> {
        let name = format!("commands::interrupt::tests::{test}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name, "--ignored"]).output().unwrap().status.code()
    }

    fn in_runtime(work: impl Future<Output = ()>) {
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    }

    #[test]
    fn a_second_signal_ends_what_does_not_listen() {
        assert_eq!(status_of("is_told_twice_while_it_is_busy"), Some(ABORTED));
    }

    #[test]
    fn a_first_signal_is_told_and_more_are_borne_by_who_is_patient() {
        assert_eq!(status_of("is_told_once"), Some(0));
        assert_eq!(status_of("is_patient"), Some(0));
    }

    #[test]
    #[ignore = "run by another test"]
    fn is_told_twice_while_it_is_busy() {
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            raise(SIGINT).unwrap();
            assert!(stop.is_requested());
            raise(SIGTERM).unwrap();
        });
    }

    #[test]
    #[ignore = "run by another test"]
    fn is_told_once() {
        in_runtime(async {
            let stop = Stop::listen().unwrap();
            assert!(!stop.is_requested());
            let before = tokio::spawn({
                let stop = stop.clone();
                async move { stop.requested().await }
            });
            tokio::task::yield_now().await;
            raise(SIGTERM).unwrap();
            before.await.unwrap();
            stop.requested().await;
        });
    }

    #[test]
    #[ignore = "run by another test"]
    fn is_patient() {
        let stop = patient().unwrap();
        for _ in 0..3 {
            raise(SIGINT).unwrap();
        }
        assert!(stop.load(Ordering::SeqCst));
    }
}
