//! What a report needs of a run beside what the engine keeps.

use std::collections::BTreeMap;

use podstuck_engine::{
    engine::Output,
    event::{Event, Run, What},
    model::{
        finding::Progress,
        hung::Hung,
        path::JsonPath,
        time::{Clock, Monotonic},
    },
};

use super::attempts::Attempts;
use crate::export::intervals;

/// Calls that hang, and bulk deletions, that are kept.
const KEPT_MAX: usize = 256;

/// Takes what a run learns and tells.
#[derive(Debug)]
pub struct Collector {
    pub(super) clock: Clock,
    pub(super) intervals: intervals::Collector,
    pub(super) attempts: Attempts,
    /// By thread.
    pub(super) hung: BTreeMap<(u32, u32), Hung>,
    pub(super) progress: Vec<Progress>,
    /// The time of the last event.
    pub(super) last: Monotonic,
}

impl Collector {
    /// Has seen nothing yet.
    pub fn new(run: &Run) -> Self {
        Self {
            clock: run.clock,
            intervals: intervals::Collector::new(run),
            attempts: Attempts::default(),
            hung: BTreeMap::new(),
            progress: Vec::new(),
            last: run.clock.started(),
        }
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        self.last = self.last.max(event.at);
        match &event.what {
            What::Operation(_) | What::Told(_) => self.attempts.take(event),
            _ => self.intervals.take(event),
        }
    }

    /// Takes what the engine made of it.
    pub fn told(&mut self, output: &Output) {
        match output {
            Output::Hung(hung) => {
                let thread = (hung.pid, hung.tid);
                if hung.over {
                    self.hung.remove(&thread);
                } else if self.hung.len() < KEPT_MAX || self.hung.contains_key(&thread) {
                    self.hung.insert(thread, Hung::clone(hung));
                }
            }
            Output::Progress(progress) => {
                let JsonPath(path) = &progress.path;
                self.progress.retain(|known| known.path.0 != *path);
                if self.progress.len() < KEPT_MAX {
                    self.progress.push(Progress::clone(progress));
                }
            }
            Output::Finding(_) | Output::Gone(_) | Output::Query(_) => {}
        }
    }

    /// Counts by time.
    pub fn intervals(&self) -> &intervals::Intervals {
        self.intervals.intervals()
    }
}
