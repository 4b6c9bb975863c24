//! Writes what the board has due, one write at a time, and keeps in a file what was said.

use std::{path::PathBuf, time::Duration};

use tokio::task::JoinHandle;

use crate::{
    board::{Board, Memory, Outcome, Write},
    events::Events,
    memory,
};

/// A write and what came of it, with the error as text.
type Written = (Write, Outcome, Option<String>);

/// The board of a node with its way to the API server.
pub(crate) struct Reporter {
    /// The stuck pods.
    pub(crate) board: Board,
    /// Writes that failed.
    pub(crate) api_errors: u64,
    events: Option<Events>,
    directory: PathBuf,
    saved: Memory,
    writing: Option<JoinHandle<Written>>,
    last_error: Option<String>,
}

impl Reporter {
    /// For a node, with what the agent before has kept in this directory.
    pub(crate) fn new(node: &str, events: Option<Events>, directory: PathBuf) -> Self {
        Self {
            board: Board::new(node, memory::read(&directory)),
            api_errors: 0,
            events,
            directory,
            saved: Memory::default(),
            writing: None,
            last_error: None,
        }
    }

    /// Starts the write that is due, unless one is under way. Its Event is kept before it is written: an agent that
    /// is killed meanwhile is followed by one that knows of it.
    pub(crate) fn write_due(&mut self, now: Duration) {
        let Some(events) = self.events.as_ref().filter(|_| self.writing.is_none()) else { return };
        let Some(write) = self.board.due(now) else { return };
        let writing = events.clone().write(write);
        self.save();
        self.writing = Some(tokio::spawn(writing));
    }

    /// Waits for the end of the write that is under way.
    pub(crate) async fn written(&mut self) -> Option<Written> {
        let Some(writing) = &mut self.writing else { return std::future::pending().await };
        let written = writing.await.ok();
        self.writing = None;
        written
    }

    /// Processes the end of a write.
    pub(crate) fn wrote(&mut self, (write, outcome, why): Written, now: Duration) {
        self.api_errors += u64::from(why.is_some());
        // The same error is printed once, not every minute.
        if let Some(why) = why.filter(|why| self.last_error.as_ref() != Some(why)) {
            eprintln!("podstuck-agent: cannot write Events: {why}");
            self.last_error = Some(why);
        }
        self.board.done(write, outcome, now);
        self.save();
    }

    /// Saves the state for the next agent, if it has changed.
    pub(crate) fn save(&mut self) {
        let memory = self.board.memory();
        if memory == self.saved {
            return;
        }
        match memory::write(&self.directory, &memory) {
            Ok(()) => self.saved = memory,
            Err(error) => eprintln!("podstuck-agent: {error:#}"),
        }
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod fleet;
#[cfg(test)]
#[path = "reporter_tests.rs"]
mod tests;
