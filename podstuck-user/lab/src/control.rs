//! How the removal process is started and stopped: by its standard input.
//!
//! One line starts it, the end of the input stops it. Thus it stops also when the lab's process
//! dies, and no signal can hit it between two counts.

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

/// Says when to stop.
#[derive(Debug)]
pub(super) struct Control {
    stopped: Arc<AtomicBool>,
    end: Receiver<()>,
}

impl Control {
    /// Waits for the start. Without one, it has stopped already.
    pub(super) fn wait_for_start() -> Result<Self> {
        let started = io::stdin().read_line(&mut String::new()).context("cannot read stdin")? > 0;
        let stopped = Arc::new(AtomicBool::new(!started));
        let (sender, end) = channel();
        let flag = Arc::clone(&stopped);
        let reader = move || {
            // An error is an end, too.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            flag.store(true, Ordering::Relaxed);
            drop(sender);
        };
        thread::Builder::new().spawn(reader).context("cannot start a thread")?;
        Ok(Self { stopped, end })
    }

    /// Set once it is time to stop.
    pub(super) fn stopped(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Sleeps; says whether to go on.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        matches!(self.end.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}
