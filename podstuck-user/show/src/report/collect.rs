//! Collects the data that a report needs beyond the engine's.

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

/// Limit of hung calls, and of mass deletions, that are kept.
const KEPT_MAX: usize = 256;

/// Takes the events and the output of a run.
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
    /// An empty collector.
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
            What::Operation(_) | What::Logged(_) => self.attempts.take(event),
            _ => self.intervals.take(event),
        }
    }

    /// Takes an output of the engine.
    pub fn take_output(&mut self, output: &Output) {
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

    /// Counts by interval.
    pub fn intervals(&self) -> &intervals::Intervals {
        self.intervals.intervals()
    }
}
