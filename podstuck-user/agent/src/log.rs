//! Standard output: the lines of the watch as they are. Who does not read them keeps nothing back.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

/// Lines that may wait.
const WAITING: usize = 1024;

/// Prints on a thread of its own.
pub(crate) struct Log {
    lines: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// To standard output.
    ///
    /// # Errors
    /// Fails where no thread can be started.
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

    /// Prints a line, with its end, when there is room.
    pub(crate) fn line(&self, line: Vec<u8>) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were not printed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
