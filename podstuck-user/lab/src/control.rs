//! Starts and stops the removal process through its standard input.
//!
//! One line starts it; the end of the input stops it. So it also stops when the lab's process dies, and no signal can
//! interrupt it between a call and its count.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

/// Tells the removal when to stop.
#[derive(Debug)]
pub(super) struct Control {
    stopped: Arc<AtomicBool>,
    end: Receiver<()>,
}

impl Control {
    /// Waits for the start. If the input ends first, it is already stopped.
    pub(super) fn wait_for_start() -> Result<Self> {
        let started = io::stdin().read_line(&mut String::new()).context("cannot read stdin")? > 0;
        let stopped = Arc::new(AtomicBool::new(!started));
        let (sender, end) = channel();
        let flag = Arc::clone(&stopped);
        let reader = move || {
            // An error also counts as the end of the input.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            flag.store(true, Ordering::Relaxed);
            drop(sender);
        };
        thread::Builder::new().spawn(reader).context("cannot start a thread")?;
        Ok(Self { stopped, end })
    }

    /// Set when the removal has to stop.
    pub(super) fn stopped(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Sleeps; returns false if the removal has to stop.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        matches!(self.end.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}
