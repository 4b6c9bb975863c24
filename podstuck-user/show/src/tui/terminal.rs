//! The terminal: raw mode, the alternate screen, keys, the clipboard, and the restoration of all that, however the
//! process ends.

use std::{
    io::{self, Stdout, stdout},
    panic,
    sync::{
        Once, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use crossterm::{
    clipboard::CopyToClipboard,
    cursor::Hide,
    event::{self, Event},
    execute,
    terminal::EnterAlternateScreen,
};
use ratatui::{Frame, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio,
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level,
};

use super::sixteen::Sixteen;

/// Resets the colours, shows the cursor, leaves the alternate screen.
const BACK: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// The size assumed when the terminal does not report one.
const USUAL: Rect = Rect { x: 0, y: 0, width: 80, height: 24 };

/// The terminal's mode before the screen.
static BEFORE: OnceLock<Termios> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Number of signals that asked for the end.
static ASKED: AtomicU32 = AtomicU32::new(0);
static PREPARED: Once = Once::new();

/// The terminal while the screen is on it.
pub(super) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Sixteen<Stdout>>>,
}

impl Terminal {
    /// Takes over the terminal. Call it before any other signal handler is registered: the second signal ends the
    /// process at once, and the terminal must be restored before.
    ///
    /// # Errors
    /// Fails when standard input or output is no terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let mut mode = tcgetattr(stdio::stdin())?;
        let _ = BEFORE.set(mode.clone());
        PREPARED.call_once(prepare);
        mode.make_raw();
        let viewport = Viewport::Fixed(size());
        let backend = CrosstermBackend::new(Sixteen::new(stdout()));
        IS_ON.store(true, SeqCst);
        let entered = tcsetattr(stdio::stdin(), OptionalActions::Now, &mode)
            .map_err(io::Error::from)
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| ratatui::Terminal::with_options(backend, TerminalOptions { viewport }));
        match entered {
            Ok(inner) => Ok(Self { inner }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws what has changed.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.draw(render).map(drop)
    }

    /// Redraws everything after a change of size.
    pub(super) fn resized(&mut self) -> io::Result<()> {
        self.inner.resize(size())
    }

    /// The next event, if one arrives within this time.
    pub(super) fn event(&self, wait: Duration) -> io::Result<Option<Event>> {
        if event::poll(wait)? { event::read().map(Some) } else { Ok(None) }
    }

    /// Sends a text to the terminal's clipboard. No terminal reports whether it accepts it.
    pub(super) fn copy(&self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the screen is still on the terminal.
pub(super) fn is_on() -> bool {
    IS_ON.load(SeqCst)
}

/// Restores the terminal, if it was taken. It never blocks, takes no lock and allocates nothing: a signal handler may
/// call it.
pub fn restore() {
    if !IS_ON.swap(false, SeqCst) {
        return;
    }
    let out = stdio::stdout();
    let mut room = [PollFd::new(&out, PollFlags::OUT)];
    if poll(&mut room, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(out, BACK);
    }
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(stdio::stdin(), OptionalActions::Now, before);
    }
}

/// Restores the terminal on a panic, and on the second signal.
fn prepare() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        tell(info);
    }));
    for signal in [SIGINT, SIGTERM] {
        let before_the_end = || {
            if ASKED.fetch_add(1, SeqCst) > 0 {
                restore();
            }
        };
        // SAFETY: the handler makes system calls and loads and stores of atomics, and nothing else.
        let _ = unsafe { low_level::register(signal, before_the_end) };
    }
}

fn size() -> Rect {
    let reported = tcgetwinsize(stdio::stdout()).ok();
    let reported = reported.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    reported.map_or(USUAL, |size| Rect::new(0, 0, size.ws_col, size.ws_row))
}
