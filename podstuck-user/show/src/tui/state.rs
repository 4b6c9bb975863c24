//! The data of the screen: findings, calls in flight, counts, attempts, as they stand. It reads no clock.

use std::{cmp::Reverse, collections::BTreeMap, path::PathBuf};

use jiff::Timestamp;
use podstuck_engine::rank;

use super::{attempts::Attempts, rates::Rates};
use crate::present::json::Line;
use podstuck_model::{
    chain::Link,
    diagnosis::Diagnosis,
    event::{Event, Run, What},
    finding::{Finding, FindingState, Progress},
    hung::Hung,
    summary::{Completeness, SelfCost, Start, Summary},
    time::{Clock, Monotonic},
};

/// Limit of findings kept: beyond it, cleared ones are dropped first, then the last in rank.
const FINDINGS: usize = 512;
/// Limit of calls in flight kept.
const FLIGHTS: usize = 512;
/// Limit of mass deletions kept.
const DELETIONS: usize = 128;

/// A call that has not returned.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) hung: Hung,
    reported: Monotonic,
}

impl Flight {
    /// Its age in seconds.
    pub(super) fn age(&self, now: Monotonic) -> f64 {
        self.hung.age_s + now.since(self.reported).as_secs_f64()
    }
}

/// The progress of a mass deletion, and the time of that report.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) progress: Progress,
    pub(super) reported: Monotonic,
}

/// Everything that can be drawn.
#[derive(Clone, Debug)]
pub struct State {
    clock: Clock,
    /// The command, as in `podstuck watch`.
    pub(super) command: &'static str,
    pub(super) start: Start,
    /// The time of the last event.
    pub(super) now: Monotonic,
    /// Ranked, with cleared ones last.
    pub(super) findings: Vec<Finding>,
    flights: BTreeMap<(u32, u32, String), Flight>,
    deletions: BTreeMap<PathBuf, Deletion>,
    pub(super) rates: Rates,
    pub(super) attempts: Attempts,
    pub(super) calls: u64,
    pub(super) completeness: Completeness,
    pub(super) cost: SelfCost,
    pub(super) answer: Option<Box<Diagnosis>>,
    /// Which component waits for which, for the pod that the run is about.
    pub(super) chain: Vec<Link>,
    /// Whether the run is over.
    pub(super) is_over: bool,
    window_ended: Option<Monotonic>,
}

impl State {
    /// An empty state.
    pub fn new(clock: Clock, command: &'static str) -> Self {
        Self {
            clock,
            command,
            start: Start::default(),
            now: clock.started(),
            findings: Vec::new(),
            flights: BTreeMap::new(),
            deletions: BTreeMap::new(),
            rates: Rates::default(),
            attempts: Attempts::default(),
            calls: 0,
            completeness: Completeness::default(),
            cost: SelfCost::default(),
            answer: None,
            chain: Vec::new(),
            is_over: false,
            window_ended: None,
        }
    }

    /// Takes the run's metadata.
    pub fn begin(&mut self, run: &Run) {
        (self.clock, self.now) = (run.clock, run.clock.started());
        self.start.clone_from(&run.start);
    }

    /// Takes an event.
    pub fn learn(&mut self, event: &Event) {
        self.now = self.now.max(event.at);
        match &event.what {
            What::Named { target_id, target } => self.rates.name(*target_id, target),
            What::Operation(op) => {
                self.rates.note(op);
                self.attempts.note(op);
            }
            What::Logged(op) => self.attempts.note(op),
            What::Said(said) => self.attempts.said(said, self.clock),
            What::Counts(counts) => {
                let second = self.seconds(event.at);
                self.calls += counts.iter().map(|count| count.calls).sum::<u64>();
                self.rates.add(second, counts);
            }
            What::Completeness(completeness) => self.completeness.clone_from(completeness),
            What::WindowEnded => self.window_ended = Some(event.at),
            What::End(cost) => self.cost.clone_from(cost),
            _ => {}
        }
    }

    /// Takes a line of output.
    pub fn tell(&mut self, line: &Line<'_>) {
        match line {
            Line::Start(start) => self.start = Start::clone(start),
            Line::Finding(finding) => self.finding(finding),
            Line::Hung(hung) => self.hung(hung),
            Line::Progress(progress) => {
                let deletion = Deletion { progress: Progress::clone(progress), reported: self.now };
                self.deletions.insert(progress.path.0.clone(), deletion);
                if self.deletions.len() > DELETIONS {
                    let oldest = self.deletions.iter().min_by_key(|(_, it)| it.reported);
                    if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                        self.deletions.remove(&path);
                    }
                }
            }
            Line::Diagnosis(answer) => {
                if let Some(pod) = answer.stages.first() {
                    self.chain.clone_from(&pod.chain);
                }
                self.answer = Some(Box::new(Diagnosis::clone(answer)));
            }
            _ => {}
        }
    }

    /// Takes the summary of the run.
    pub fn end(&mut self, summary: &Summary) {
        self.calls = summary.calls;
        self.completeness.clone_from(&summary.completeness);
        self.cost.clone_from(&summary.cost);
        self.is_over = true;
    }

    fn finding(&mut self, finding: &Finding) {
        self.findings.retain(|known| known.instance != finding.instance);
        self.findings.push(finding.clone());
        self.findings.sort_by_cached_key(|it| (is_over(it), rank::order(it)));
        self.findings.truncate(FINDINGS);
    }

    fn hung(&mut self, hung: &Hung) {
        let key = (hung.pid, hung.tid, hung.syscall.clone());
        if hung.over {
            self.flights.remove(&key);
            return;
        }
        self.flights.insert(key, Flight { hung: hung.clone(), reported: self.now });
        if self.flights.len() > FLIGHTS {
            let youngest =
                self.flights.iter().min_by(|a, b| a.1.hung.age_s.total_cmp(&b.1.hung.age_s));
            if let Some(key) = youngest.map(|(key, _)| key.clone()) {
                self.flights.remove(&key);
            }
        }
    }

    /// The second of the run at a time.
    pub(super) fn seconds(&self, at: Monotonic) -> u64 {
        at.since(self.clock.started()).as_secs()
    }

    /// How long the run has watched by now, in seconds.
    pub(super) fn window(&self, now: Monotonic) -> u64 {
        self.seconds(self.window_ended.unwrap_or(now))
    }

    /// The wall-clock time.
    pub(super) fn calendar(&self, at: Monotonic) -> Timestamp {
        self.clock.at(at)
    }

    /// Number of findings that are not cleared.
    pub(super) fn holding(&self) -> usize {
        self.findings.iter().filter(|it| !is_over(it)).count()
    }

    /// Calls that have not returned, the oldest first.
    pub(super) fn flights(&self, now: Monotonic) -> Vec<&Flight> {
        let mut all: Vec<_> = self.flights.values().collect();
        all.sort_by(|a, b| b.age(now).total_cmp(&a.age(now)));
        all
    }

    /// Mass deletions, the last reported first.
    pub(super) fn deletions(&self) -> Vec<&Deletion> {
        let mut all: Vec<_> = self.deletions.values().collect();
        all.sort_by_key(|it| (Reverse(it.reported), Reverse(it.progress.deleted)));
        all
    }
}

pub(super) fn is_over(finding: &Finding) -> bool {
    finding.state == FindingState::Cleared
}
