//! The screen, and the log lines held while it is on the terminal.

use std::{
    io::{IsTerminal, stdin, stdout},
    ops::Deref,
};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::{cli::Output, logging};
use podstuck_confine::clock;
use podstuck_show::tui::{Options, Screen, State};

/// The screen. Dropping it restores the terminal, and then shows the log lines.
pub(super) struct OnScreen {
    screen: Screen,
    _lines: Held,
}

/// Holds log lines while it lives.
struct Held;

impl OnScreen {
    /// Whether this output format means the screen here.
    ///
    /// # Errors
    /// Fails when the screen was requested by name, and there is no terminal.
    pub(crate) fn is_wanted(output: Output) -> Result<bool> {
        let is_terminal = stdin().is_terminal() && stdout().is_terminal();
        let term = std::env::var_os("TERM");
        let can_draw = term.is_some_and(|term| !term.is_empty() && term != "dumb");
        match output {
            Output::Auto => Ok(is_terminal && can_draw),
            Output::Tui if !is_terminal => bail!(
                "--output tui needs a terminal as standard input and standard output: omit it, or use --output text"
            ),
            Output::Tui if !can_draw => bail!(
                "--output tui needs a terminal that can move its cursor, and TERM names one that cannot: \
                 set TERM, or use --output text"
            ),
            Output::Tui => Ok(true),
            Output::Text | Output::Json => Ok(false),
        }
    }

    /// Takes over the terminal.
    pub(crate) fn start(
        command: &'static str,
        color: bool,
        exports: bool,
        is_live: bool,
    ) -> Result<Self> {
        let state = State::new(clock::start(), command);
        let options = Options { color, exports, is_live };
        logging::hold();
        let lines = Held;
        let screen = interrupt::apart(|| Screen::start(state, options));
        let screen = screen.context("taking the terminal for --output tui")?;
        Ok(Self { screen, _lines: lines })
    }
}

impl Deref for OnScreen {
    type Target = Screen;

    fn deref(&self) -> &Screen {
        &self.screen
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        logging::release();
    }
}
