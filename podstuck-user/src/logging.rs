//! Log lines on standard error.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use tracing_subscriber::EnvFilter;

/// Standard error without blocking: lines for which there is no room are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Unwaiting;

/// A pipe with any room accepts this many bytes at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Lines held until the screen leaves the terminal: the newest of them.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);
const HELD_MAX: usize = 64 << 10;

/// Holds lines from now on, if they go to a terminal.
pub(crate) fn hold() {
    if io::stderr().is_terminal() {
        *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }
}

/// Writes the lines that were held.
pub(crate) fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let _ = Unwaiting.write_all(&held.unwrap_or_default());
}

impl Write for Unwaiting {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // No thread holds the lock for longer than this takes.
        if let Some(held) = &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
            held.extend_from_slice(text);
            held.drain(..held.len().saturating_sub(HELD_MAX));
            return Ok(text.len());
        }
        let out = io::stderr();
        let mut room = [PollFd::new(&out, PollFlags::OUT)];
        // A closed reader is reported by the write.
        let ready = poll(&mut room, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if !ready {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        out.lock().write(text.get(..AT_ONCE).unwrap_or(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Warnings always; more with `-v`, the probes' own lines with `-vv`. The loader's lines help only its authors.
pub fn start(verbose: u8) {
    let filter = match verbose {
        0 => "warn",
        1 => "info,aya=warn,aya_obj=warn",
        _ => "debug,aya=warn,aya_obj=warn",
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(|| Unwaiting)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        // Internal errors go to standard error as well, which panics when the terminal is gone.
        .log_internal_errors(false);
    // A second start, as in tests, keeps the first.
    let _ = subscriber.try_init();
}
