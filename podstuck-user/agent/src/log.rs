//! Forwards the watch's lines to standard output unchanged. A slow reader does not block the agent.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

/// Maximum number of queued lines.
const WAITING: usize = 1024;

/// Prints lines in a thread of its own.
pub(crate) struct Log {
    lines: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let (lines, waiting) = sync_channel::<Vec<u8>>(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let unwritten = lost.clone();
        let print = move || {
            for line in waiting {
                if io::stdout().lock().write_all(&line).is_err() {
                    unwritten.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread::Builder::new().name("log".into()).spawn(print)?;
        Ok(Self { lines, lost })
    }

    /// Queues a line, including its end. Drops it if the queue is full.
    pub(crate) fn line(&self, line: Vec<u8>) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of lines that were not printed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
