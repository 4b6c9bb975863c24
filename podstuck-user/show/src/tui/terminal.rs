//! The terminal itself: raw mode, the alternate screen, keys, the clipboard, and back again, however it ends.

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

/// Colours as they were, the cursor seen, the screen from before.
const BACK: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// Where a terminal does not say how large it is.
const USUAL: Rect = Rect { x: 0, y: 0, width: 80, height: 24 };

/// What the terminal did before.
static BEFORE: OnceLock<Termios> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Signals that asked for the end.
static ASKED: AtomicU32 = AtomicU32::new(0);
static PREPARED: Once = Once::new();

/// The terminal while the screen is on it.
pub(super) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Sixteen<Stdout>>>,
}

impl Terminal {
    /// Takes the terminal. Call it before anything else listens to signals: at the second one the process ends at
    /// once, and the terminal is given back before.
    ///
    /// # Errors
    /// Fails where standard input or output is none.
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

    /// The size is another one: everything is drawn anew.
    pub(super) fn resized(&mut self) -> io::Result<()> {
        self.inner.resize(size())
    }

    /// What is typed, if anything is within this time.
    pub(super) fn event(&self, wait: Duration) -> io::Result<Option<Event>> {
        if event::poll(wait)? { event::read().map(Some) } else { Ok(None) }
    }

    /// Hands a text to the terminal's clipboard. Whether it takes it, no terminal says.
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

/// Gives the terminal back, if it was taken. It waits for nothing, takes no lock and no memory: a signal handler
/// may call it.
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

/// Ends that pass by whoever has the terminal.
fn prepare() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |told| {
        restore();
        tell(told);
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
    let told = tcgetwinsize(stdio::stdout()).ok();
    let told = told.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    told.map_or(USUAL, |size| Rect::new(0, 0, size.ws_col, size.ws_row))
}
