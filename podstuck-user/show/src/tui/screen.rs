//! The thread that draws and reads keys. The observing thread hands over new data and never waits for it.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use crossterm::event::{Event as Typed, KeyEvent};
use rustix::process::{Signal, getpid, kill_process};

use super::{
    choice::{Choice, Effect},
    state::State,
    terminal::{self, Terminal},
    view::{self, Ink, Look},
};
use crate::present::json::Line;
use podstuck_confine::{clock, role::Role};
use podstuck_model::{
    chain::Link,
    event::{Event, Run},
    finding::Finding,
    summary::Summary,
    time::Monotonic,
};
use podstuck_probe::source::cost;

/// The screen is drawn at most five times a second, which suits a slow line as well.
const EVERY: Duration = Duration::from_millis(200);
/// How long a terminal that accepts no output may delay the end.
const LEAVE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);

/// What the screen can show and request.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to use colours.
    pub color: bool,
    /// Whether the run exports files.
    pub exports: bool,
    /// Whether time advances between events.
    pub is_live: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Incremented with every change of the state.
    version: AtomicU64,
    close: AtomicBool,
    /// The user has left the final screen.
    is_left: AtomicBool,
    export: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of the screen.
pub struct Screen {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes over the terminal, and starts the thread.
    ///
    /// # Errors
    /// Fails when there is no terminal.
    pub fn start(state: State, options: Options) -> io::Result<Self> {
        let terminal = Terminal::enter()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            version: AtomicU64::new(1),
            close: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            export: AtomicBool::new(false),
        });
        let mine = shared.clone();
        let draw = move || {
            Role::WriteOpen.assume();
            Drawing::new(terminal, mine, options).run();
        };
        let thread = Builder::new().name("screen".into()).spawn(draw)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Takes the run's metadata.
    pub fn begin(&self, run: &Run) {
        self.shared.state().begin(run);
    }

    /// All findings, those not cleared first.
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.state().findings.clone()
    }

    /// Takes an event.
    pub fn learn(&self, event: &Event) {
        self.shared.state().learn(event);
        self.shared.version.fetch_add(1, SeqCst);
    }

    /// Takes a line of output.
    pub fn tell(&self, line: &Line<'_>) {
        self.shared.state().tell(line);
        self.shared.version.fetch_add(1, SeqCst);
    }

    /// Takes the chain of waiting components, where it is known by now.
    pub fn chain(&self, links: Vec<Link>) {
        self.shared.state().chain = links;
        self.shared.version.fetch_add(1, SeqCst);
    }

    /// Takes the summary of the run.
    pub fn end(&self, summary: &Summary) {
        self.shared.state().end(summary);
        self.shared.version.fetch_add(1, SeqCst);
    }

    /// Whether files are to be exported now: `true` once for each request.
    pub fn wants_export(&self) -> bool {
        self.shared.export.swap(false, SeqCst)
    }

    /// Waits until the user has left the final screen, or the terminal is gone.
    pub fn wait(&self, is_stopped: impl Fn() -> bool) {
        let is_there = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while is_there() && terminal::is_on() && !self.shared.is_left.load(SeqCst) && !is_stopped()
        {
            thread::sleep(NAP);
        }
    }
}

impl Drop for Screen {
    /// Restores the terminal.
    fn drop(&mut self) {
        self.shared.close.store(true, SeqCst);
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + LEAVE;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(NAP);
        }
        terminal::restore();
    }
}

/// The drawing thread.
struct Drawing {
    terminal: Terminal,
    shared: Arc<Shared>,
    options: Options,
    choice: Choice,
    /// The state shown while the screen is paused.
    held: Option<Box<State>>,
    has_asked: bool,
}

impl Drawing {
    fn new(terminal: Terminal, shared: Arc<Shared>, options: Options) -> Self {
        let choice = Choice::default();
        Self { terminal, shared, options, choice, held: None, has_asked: false }
    }

    fn run(&mut self) {
        let (mut shown, mut second, mut drawn) = (0, None, None::<Instant>);
        let mut is_due = true;
        while !self.shared.close.load(SeqCst) && terminal::is_on() {
            let since = drawn.map_or(EVERY, |drawn| drawn.elapsed());
            let wait = if is_due { EVERY.saturating_sub(since) } else { EVERY };
            match self.terminal.event(wait) {
                Ok(Some(Typed::Key(key))) => {
                    self.typed(&key);
                    is_due = true;
                }
                Ok(Some(Typed::Resize(..))) => {
                    let _ = self.terminal.resized();
                    is_due = true;
                }
                Ok(_) => {}
                // A terminal that is gone sends nothing: a signal informs the run.
                Err(_) => thread::sleep(EVERY),
            }
            let version = self.shared.version.load(SeqCst);
            let now = self.options.is_live.then(|| clock::now().0 / 1_000_000_000);
            is_due |= version != shown || now != second;
            if is_due && drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY) {
                if now != second {
                    self.measure();
                }
                let _ = self.draw();
                (shown, second, drawn, is_due) = (version, now, Some(Instant::now()), false);
            }
        }
    }

    /// Measures the run's cost so far.
    fn measure(&self) {
        let cost = cost::measure(None, None);
        let mut state = self.shared.state();
        if !state.is_over {
            state.cost = cost;
        }
    }

    fn now(&self, state: &State) -> Monotonic {
        match self.options.is_live && !state.is_over && self.held.is_none() {
            true => state.now.max(clock::now()),
            false => state.now,
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let ink = Ink { color: self.options.color };
        if let Some(held) = self.held.take() {
            let look = Look { now: held.now, ink };
            let choice = &mut self.choice;
            let drawn = self.terminal.draw(|frame| view::draw(frame, &held, choice, look));
            self.held = Some(held);
            return drawn;
        }
        let shared = self.shared.clone();
        let mut state = Some(shared.state());
        let look = Look { now: state.as_ref().map(|it| self.now(it)).unwrap_or_default(), ink };
        let choice = &mut self.choice;
        self.terminal.draw(|frame| {
            // The lock is released before anything is written: that may take as long as the terminal likes.
            if let Some(state) = state.take() {
                view::draw(frame, &state, choice, look);
            }
        })
    }

    fn typed(&mut self, key: &KeyEvent) {
        let shared = self.shared.clone();
        let state = shared.state();
        let now = self.now(&state);
        let effect = match &self.held {
            Some(held) => self.choice.take(key, held, held.now),
            None => self.choice.take(key, &state, now),
        };
        let is_over = state.is_over;
        match effect {
            Effect::None => {}
            Effect::Quit | Effect::Interrupt if is_over => self.shared.is_left.store(true, SeqCst),
            Effect::Quit if self.has_asked => {
                self.choice.notice = Some("the run is ending; Ctrl-C aborts it".into());
            }
            Effect::Quit | Effect::Interrupt => {
                self.has_asked = true;
                self.choice.notice = Some("the run is ending".into());
                // As for a Ctrl-C that the terminal turns into a signal: the second one aborts.
                let _ = kill_process(getpid(), Signal::INT);
            }
            Effect::Pause if self.held.is_some() => {
                (self.held, self.choice.is_paused) = (None, false);
                self.choice.notice = Some("the screen is no longer paused".into());
            }
            Effect::Pause => {
                let mut held = state.clone();
                held.now = now;
                (self.held, self.choice.is_paused) = (Some(Box::new(held)), true);
                self.choice.notice =
                    Some("the screen is paused, the run continues; p: resume".into());
            }
            Effect::Export => self.choice.notice = Some(self.export(is_over).into()),
            Effect::Copy(command) => {
                drop(state);
                self.choice.notice = Some(match self.terminal.copy(&command) {
                    Ok(()) => format!("sent to the terminal's clipboard, if it has one: {command}"),
                    Err(error) => format!("not copied: {error}"),
                });
            }
        }
    }

    fn export(&self, is_over: bool) -> &'static str {
        match (self.options.exports, is_over) {
            (false, _) => "nothing is written: the run was started without --export",
            (true, true) => "the files of --export were written at the end of the run",
            (true, false) => {
                self.shared.export.store(true, SeqCst);
                "the files of --export are written with the next counts"
            }
        }
    }
}
