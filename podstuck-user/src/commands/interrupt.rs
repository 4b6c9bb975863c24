//! Ctrl-C: the first ends the work in order, the second at once.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

/// 128 + SIGINT, as shells show it.
const ABORTED: i32 = 130;

/// Says when to stop.
#[derive(Clone, Default)]
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Stop {
    /// Begins to listen to SIGINT and SIGTERM. Call it inside the runtime.
    pub(super) fn listen() -> Result<Self> {
        let stop = Self::default();
        let mut interrupt = signal(SignalKind::interrupt()).context("listening to SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("listening to SIGTERM")?;
        let mine = stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if mine.flag.swap(true, Ordering::SeqCst) {
                    process::exit(ABORTED);
                }
                mine.notify.notify_one();
            }
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

    /// The flag itself, for work that does not wait.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }
}
