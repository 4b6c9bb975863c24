//! The Events about one pod or the node that the API server may have.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Number of denials after which a write counts as refused. The API server denies everything for a moment after its
/// start, until it knows who may do what.
pub(crate) const DENIALS: u8 = 4;

/// An Event in the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posted {
    /// Its name.
    pub(crate) name: String,
    /// Number of times that it was written.
    pub(crate) count: i32,
    /// Time of the last write, by the agent's own clock. `None` after a restart; then the Event is renewed.
    #[serde(skip)]
    pub(crate) at: Option<Duration>,
}

/// All Events about one pod and one cause, or about the node and one cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// The one that is there.
    pub(crate) posted: Option<Posted>,
    /// Names of those whose write has had no answer: the API server may have stored them before it was killed.
    pub(crate) unsure: Vec<String>,
    /// Name of the one that is being written.
    writing: Option<String>,
    /// Denials since the last success.
    pub(crate) denials: u8,
}

impl Said {
    /// An Event of the previous agent.
    pub(crate) fn of(posted: Posted) -> Self {
        Self { posted: Some(posted), ..Self::default() }
    }

    /// Whether no more is tried.
    pub(crate) const fn is_refused(&self) -> bool {
        self.denials >= DENIALS
    }

    /// The names of all Events that may be there.
    pub(crate) fn names(&self) -> Vec<String> {
        self.remembered().map(|posted| posted.name).collect()
    }

    /// Notes that an Event is about to be written; returns those that it replaces.
    pub(crate) fn begin(&mut self, name: &str) -> Vec<String> {
        self.writing = None;
        let others = self.names().into_iter().filter(|other| other != name).collect();
        self.writing = Some(name.into());
        others
    }

    /// Notes that the Event that was written is there, and that it has replaced all others.
    pub(crate) fn is_there(&mut self, name: String, now: Duration) {
        *self = Self::of(Posted { name, count: 1, at: Some(now) });
    }

    /// Notes that the API server has not answered.
    pub(crate) fn is_unanswered(&mut self) {
        let name = self.writing.take();
        self.unsure.extend(name.filter(|name| !self.names().contains(name)));
    }

    /// Notes that the API server has not stored it.
    pub(crate) fn is_denied(&mut self) {
        self.writing = None;
        self.denials += 1;
    }

    /// Notes that the API server will never store it.
    pub(crate) fn is_refused_for_good(&mut self) {
        (self.unsure, self.writing, self.denials) = (Vec::new(), None, DENIALS);
    }

    /// Adds an Event of the previous agent.
    pub(crate) fn add(&mut self, posted: Posted) {
        match self.posted {
            None => self.posted = Some(posted),
            Some(_) => self.unsure.push(posted.name),
        }
    }

    /// What the next agent has to know. It cannot tell the Events that may be there from those that are: it renews one
    /// of them and learns which.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = Posted> {
        let unsure = self.unsure.iter().chain(&self.writing).cloned();
        let unsure = unsure.map(|name| Posted { name, count: 1, at: None });
        self.posted.iter().cloned().chain(unsure)
    }
}
