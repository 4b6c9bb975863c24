//! A run, live or replayed: events in, lines and files out.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::reporter::Reporter;
use crate::outcome::Exit;
use crate::{
    engine::{Engine, Output},
    event::{Event, Run, What},
    model::{
        deleted::DeletionsKnown,
        series::{NamesTable, SeriesTable},
        summary::NotLookedAt,
        time::Monotonic,
        totals::Totals,
    },
    query::Query,
};
use podstuck_show::{
    export::{Page, Shot, intervals_log},
    present::{
        json::Line,
        text::{self, Found},
        words,
    },
    report::{self, Collector, Model},
};

/// A firm verdict may still be followed by a better one, and a name by one from another source.
const LISTED_AFTER: Duration = Duration::from_secs(3);

/// Shows the output of the engine.
pub(crate) struct Presenter {
    engine: Engine,
    reporter: Reporter,
    /// The further data of a report, when files are exported.
    collector: Option<Collector>,
    /// Directories already reported as not watched.
    not_looked_at: Vec<String>,
}

impl Presenter {
    /// A presenter that has shown nothing yet.
    pub(crate) fn new(run: Run, reporter: Reporter) -> Self {
        reporter.begin(&run);
        let collector = reporter.exports_targets().then(|| Collector::new(&run));
        Self { engine: Engine::new(run), reporter, collector, not_looked_at: Vec::new() }
    }

    /// For a replay.
    pub(crate) fn of_replay(mut self) -> Self {
        self.engine = self.engine.of_replay();
        self
    }

    /// For a node without `xargs` or `sh`.
    pub(super) fn without_xargs(mut self) -> Self {
        self.engine = self.engine.without_xargs();
        self
    }

    /// Metadata of the run.
    pub(crate) fn run(&self) -> &Run {
        self.engine.run()
    }

    /// The monotonic time of a wall-clock time.
    pub(super) fn kernel_time(&self, time: Timestamp) -> Monotonic {
        self.engine.run().clock.when(time)
    }

    fn calendar(&self, at: Monotonic) -> Timestamp {
        self.engine.run().clock.at(at)
    }

    /// Shows the run's metadata.
    pub(crate) fn start(&self) {
        let run = self.engine.run();
        self.reporter.tell(self.calendar(run.clock.started()), &Line::Start(&run.start));
    }

    /// Takes an event, shows its results, and returns the engine's queries.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<Query> {
        let mut queries = Vec::new();
        let time = self.calendar(event.at);
        self.reporter.learn(event);
        if let Some(collector) = &mut self.collector {
            collector.take(event);
        }
        for output in self.engine.take(event) {
            if let Some(collector) = &mut self.collector {
                collector.take_output(&output);
            }
            match output {
                Output::Finding(finding) => self.reporter.tell(time, &Line::Finding(&finding)),
                Output::Hung(hung) => self.reporter.tell(time, &Line::Hung(&hung)),
                Output::Progress(progress) => self.reporter.tell(time, &Line::Progress(&progress)),
                Output::Gone(gone) => self.reporter.tell(time, &Line::Gone(&gone)),
                Output::Query(query) => queries.push(*query),
            }
        }
        match event.what {
            What::Counts(_) => {
                if self.reporter.lists() && self.engine.window() >= LISTED_AFTER {
                    self.reporter.list(&self.engine.deleted(), time);
                }
                self.so_far();
                if self.reporter.wants_export() {
                    self.export(false);
                }
            }
            // It comes whenever files are due.
            What::Completeness(ref completeness) => {
                self.not_looked_at(&completeness.not_looked_at);
                self.export(false);
            }
            _ => {}
        }
        queries
    }

    /// Shows a waiting user what is known so far.
    fn so_far(&self) {
        if !self.reporter.has_audience() {
            return;
        }
        if self.reporter.lists() {
            self.reporter.live(format!("examining the node, {} so far", pods(&self.engine)));
        } else if self.engine.run().one_answer {
            self.reporter.so_far(&self.engine.diagnosis());
        } else {
            let (calls, found) = (self.engine.calls(), self.engine.found());
            self.reporter.live(format!("{calls} calls, {found} findings"));
        }
    }

    /// Whether there is an answer at this time, or none will come.
    pub(super) fn is_answered(&self, now: Monotonic) -> bool {
        self.engine.is_firm(now) || self.engine.is_exhausted(now)
    }

    /// Continues the node's counts of processes before this one.
    pub(super) fn inherit(&mut self, totals: Totals) {
        self.engine.inherit(totals);
    }

    /// The counts of the node.
    pub(super) fn totals(&self) -> &Totals {
        self.engine.totals()
    }

    /// Whether a pod is to be deleted, and the run's single answer is about it.
    pub(super) fn asks_about(&self, uid: &str) -> bool {
        self.engine.run().one_answer && self.engine.is_to_go(uid)
    }

    /// The pods that are being deleted, by any source, or that something holds.
    pub(super) fn going(&self) -> Vec<crate::model::identity::Pod> {
        self.engine.deleted().into_iter().map(|it| it.pod).collect()
    }

    /// Reports at once each directory that is not watched, once.
    fn not_looked_at(&mut self, all: &[NotLookedAt]) {
        let is_new = |it: &&NotLookedAt| !self.not_looked_at.contains(&it.root);
        let new: Vec<NotLookedAt> = all.iter().filter(is_new).cloned().collect();
        self.not_looked_at.extend(new.iter().map(|it| it.root.clone()));
        self.reporter.not_looked_at(&new);
    }

    /// Shows the end of the run; returns its exit status.
    pub(crate) fn end(&self, at: Monotonic, fail_on_loss: bool) -> Exit {
        if self.reporter.lists() {
            return self.list(at);
        }
        self.export(true);
        let time = self.calendar(at);
        if self.engine.run().one_answer {
            self.reporter.tell(time, &Line::Diagnosis(&self.engine.diagnosis()));
        }
        let (mut summary, found) = (self.engine.summary(), self.engine.found());
        summary.completeness.degraded.extend(self.reporter.degraded());
        let is_left = self.engine.run().one_answer && self.engine.target_may_be_left();
        let verdict = match found {
            0 if is_left => Found::NoCause,
            0 => Found::Nothing,
            _ => Found::Findings(found),
        };
        self.reporter.summary(time, &summary, verdict);
        match found {
            _ if fail_on_loss && summary.completeness.lost_data() => Exit::Lost,
            0 if summary.completeness.is_open() => Exit::Unexplained,
            0 if is_left => Exit::Unexplained,
            _ if self.engine.run().one_answer && self.engine.pod_is_to_stay() => Exit::Clean,
            _ if self.engine.run().one_answer && self.engine.has_gone() => Exit::Clean,
            0 => Exit::Clean,
            _ => Exit::Found,
        }
    }

    /// Lists the pods of the node that are being deleted, one line each.
    fn list(&self, at: Monotonic) -> Exit {
        let pods = self.engine.deleted();
        let saw_all = self.engine.saw_all_pods();
        let heard = self.engine.heard_of_deletions();
        let list = text::ListEnd {
            pods: &pods,
            beside: self.engine.beside_deleted(&pods),
            api: self.engine.run().start.api.as_deref(),
            saw_all,
            heard,
            degraded: &self.engine.completeness().degraded,
            options: "",
        };
        self.reporter.list_end(&list, self.calendar(at));
        match (pods.is_empty(), pods.iter().any(|pod| pod.cause.is_some()), list.beside) {
            (_, true, _) | (true, false, 1..) => Exit::Found,
            (true, false, 0) if saw_all && heard == DeletionsKnown::All => Exit::Clean,
            _ => Exit::Unexplained,
        }
    }

    /// Whether the list of pods is final.
    pub(super) fn knows_pods(&self) -> bool {
        self.engine.knows_deleted()
    }

    /// Waits until the user has left the final screen, if there is a screen.
    pub(crate) fn leave(&self, is_stopped: impl Fn() -> bool) {
        self.reporter.leave(is_stopped);
    }

    /// Shows the answer when nothing was traced, so that there is no summary.
    pub(crate) fn answer(&self, at: Monotonic) -> Exit {
        self.export(true);
        let answer = self.engine.diagnosis();
        self.reporter.tell(self.calendar(at), &Line::Diagnosis(&answer));
        match answer.causes.is_empty() {
            true if self.engine.target_may_be_left() => Exit::Unexplained,
            false if !self.engine.pod_is_to_stay() => Exit::Found,
            _ => Exit::Clean,
        }
    }

    /// Replaces the exported files, if an export was requested. Waits only at the end, for a limited time.
    fn export(&self, end: bool) {
        let shot = || {
            let by_target = self
                .reporter
                .exports_targets()
                .then(|| (Arc::new(self.engine.series()), Arc::new(self.engine.target_names())));
            let collected = self.collector.as_ref().zip(by_target.clone());
            let pages = collected.map(|(it, tables)| pages(&self.engine, it, tables));
            Shot {
                by_target,
                totals: self.engine.totals().clone(),
                findings: self.engine.findings().cloned().collect(),
                completeness: self.engine.completeness(),
                window: self.engine.window(),
                start: self.calendar(self.engine.run().clock.started()),
                pages: pages.unwrap_or_default(),
            }
        };
        if end { self.reporter.last_export(shot) } else { self.reporter.export(shot) }
    }
}

fn pods(engine: &Engine) -> String {
    words::plural(engine.deleted().len() as u64, "pod", "pods")
}

/// The counts by time, and the report. Their data is taken now, and rendered on a thread that no other one waits for.
fn pages(
    engine: &Engine,
    collector: &Collector,
    (series, names): (Arc<SeriesTable>, Arc<NamesTable>),
) -> Vec<Page> {
    let start = engine.run().clock.at(engine.run().clock.started());
    let intervals = collector.intervals().clone();
    let model = Model::of_run(engine, collector);
    let page = move || Ok(report::page(&model.with_series(&series, &names)).into_bytes());
    vec![
        (intervals_log::FILE, Box::new(move || intervals_log::log(start, &intervals))),
        (report::FILE, Box::new(page)),
    ]
}
