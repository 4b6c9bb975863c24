//! Prints from a thread of its own: a pipe without a reader, or a paused terminal, delays the lines, and nothing
//! else.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{interrupt, standard_output::written};
use podstuck_confine::role::Role;

/// Limit of bytes that wait for a reader: an hour of a busy node.
const WAITING: usize = 16 << 20;
/// How long a reader may accept none of the last lines, and the limit for all of them.
const IDLE: Duration = Duration::from_secs(3);
const LAST: Duration = Duration::from_secs(10);
/// Interval between checks whether the reader accepted any.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The destination of lines.
pub(super) enum Printer {
    /// Directly, however long that takes.
    Here(Live),
    /// Through the thread.
    Thread {
        /// What is to be shown.
        queue: Sender<Show>,
        /// The state of the thread.
        state: Arc<State>,
    },
}

/// What is to be shown.
pub(crate) enum Show {
    Text(String),
    Live(String),
    Clear,
    Done(Sender<()>),
}

#[derive(Default)]
pub(super) struct State {
    waiting: AtomicUsize,
    left_out: AtomicU64,
    written: AtomicU64,
}

impl Printer {
    /// Prints by a thread, for a run that must not block.
    pub(crate) fn apart(self) -> io::Result<Self> {
        let Self::Here(live) = self else { return Ok(self) };
        let (queue, shows) = channel();
        let state = Arc::<State>::default();
        let mine = state.clone();
        let serve = move || {
            Role::WriteOpen.assume();
            serve(&shows, &live, &mine, &mut io::stdout());
        };
        interrupt::apart(|| thread::Builder::new().name("printer".into()).spawn(serve))?;
        Ok(Self::Thread { queue, state })
    }

    /// Prints.
    pub(crate) fn print(&self, text: String) {
        match self {
            Self::Here(live) => {
                written(live.beside(|| write(&text, &mut io::stdout(), |_| {})));
            }
            Self::Thread { queue, state } => {
                if state.waiting.load(Relaxed) + text.len() > WAITING {
                    state.left_out.fetch_add(1, Relaxed);
                    return;
                }
                state.waiting.fetch_add(text.len(), Relaxed);
                // If the thread has ended, `finish` reports it.
                let _ = queue.send(Show::Text(text));
            }
        }
    }

    /// Sets the live line.
    pub(crate) fn live(&self, message: String) {
        match self {
            Self::Here(live) => live.say(message),
            Self::Thread { queue, state } if state.waiting.load(Relaxed) == 0 => {
                let _ = queue.send(Show::Live(message));
            }
            Self::Thread { .. } => {}
        }
    }

    /// Removes the live line.
    pub(crate) fn clear(&self) {
        match self {
            Self::Here(live) => live.clear(),
            Self::Thread { queue, .. } => {
                let _ = queue.send(Show::Clear);
            }
        }
    }

    /// Number of texts left out because too many waited.
    pub(super) fn left_out(&self) -> u64 {
        match self {
            Self::Here(_) => 0,
            Self::Thread { state, .. } => state.left_out.load(Relaxed),
        }
    }

    /// Waits for the reader, for a limited time; returns whether it accepted everything.
    pub(super) fn finish(&self) -> bool {
        let Self::Thread { queue, state } = self else { return true };
        let (sender, done) = channel();
        let _ = queue.send(Show::Done(sender));
        let end = Instant::now() + LAST;
        let (mut taken, mut since) = (state.written.load(Relaxed), Instant::now());
        loop {
            match done.recv_timeout(LOOK_EVERY) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = state.written.load(Relaxed);
            if now != taken {
                (taken, since) = (now, Instant::now());
            }
            if since.elapsed() >= IDLE || Instant::now() >= end {
                return false;
            }
        }
    }
}

fn serve(shows: &Receiver<Show>, live: &Live, state: &State, out: &mut impl Write) {
    for show in shows {
        match show {
            Show::Text(text) => {
                written(live.beside(|| {
                    write(&text, out, |part| {
                        state.written.fetch_add(part as u64, Relaxed);
                    })
                }));
                state.waiting.fetch_sub(text.len(), Relaxed);
            }
            Show::Live(message) => live.say(message),
            Show::Clear => live.clear(),
            Show::Done(done) => drop(done.send(())),
        }
    }
}

/// In parts that fit a pipe with some room, so that progress of the reader is visible.
fn write(text: &str, out: &mut impl Write, wrote: impl Fn(usize)) -> io::Result<()> {
    for part in text.as_bytes().chunks(4096) {
        out.write_all(part)?;
        out.flush()?;
        wrote(part.len());
    }
    Ok(())
}

/// A live line on standard error, when that is a terminal.
pub(super) struct Live {
    wanted: bool,
    bar: OnceLock<ProgressBar>,
}

impl Live {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted, bar: OnceLock::new() }
    }

    fn say(&self, message: String) {
        if !self.wanted {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(message);
        // Once a second; a thread for it would start before privileges are dropped.
        bar.tick();
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A printer whose reader is the other end.
    fn printer() -> (Printer, UnixStream) {
        let (reader, mut out) = UnixStream::pair().unwrap();
        let (queue, shows) = channel();
        let state = Arc::<State>::default();
        let mine = state.clone();
        thread::spawn(move || serve(&shows, &Live::new(false), &mine, &mut out));
        (Printer::Thread { queue, state }, reader)
    }

    #[test]
    fn a_reader_gets_everything_in_its_order() {
        let (printer, reader) = printer();
        let reading = thread::spawn(move || io::read_to_string(reader).unwrap());
        let lines: Vec<String> = (0..100_000).map(|n| format!("{n}\n")).collect();
        lines.iter().for_each(|line| printer.print(line.clone()));
        assert!(printer.finish());
        assert_eq!(printer.left_out(), 0);
        drop(printer);
        assert_eq!(reading.join().unwrap(), lines.concat());
    }

    #[test]
    fn a_silent_reader_blocks_nothing_and_dropped_texts_are_counted() {
        let (printer, reader) = printer();
        let line = "x".repeat(1 << 20);
        (0..20).for_each(|_| printer.print(line.clone()));
        assert!(printer.left_out() >= 4, "{}", printer.left_out());
        assert!(!printer.finish());
        drop(reader);
    }

    #[test]
    fn a_reader_that_went_away_is_no_reason_to_wait() {
        let (printer, reader) = printer();
        drop(reader);
        (0..20).for_each(|_| printer.print("x".repeat(1 << 20)));
        assert!(printer.finish());
    }
}
