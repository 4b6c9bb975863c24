//! One run, live or replayed: events in, lines and files out.

use jiff::Timestamp;

use super::{Exit, reporter::Reporter};
use crate::{
    engine::{Engine, Output},
    event::{Event, Run, What},
    export::Shot,
    model::time::Monotonic,
    present::json::Line,
    query::Query,
};

/// Shows what comes out of the engine.
pub(super) struct Presenter {
    engine: Engine,
    reporter: Reporter,
}

impl Presenter {
    /// Has told nothing yet.
    pub(super) fn new(run: Run, reporter: Reporter) -> Self {
        Self { engine: Engine::new(run), reporter }
    }

    /// For what was recorded.
    pub(super) fn of_replay(mut self) -> Self {
        self.engine = self.engine.of_replay();
        self
    }

    /// What the run is.
    pub(super) fn run(&self) -> &Run {
        self.engine.run()
    }

    /// The kernel's time of a calendar's.
    pub(super) fn kernel_time(&self, time: Timestamp) -> Monotonic {
        self.engine.run().clock.when(time)
    }

    fn calendar(&self, at: Monotonic) -> Timestamp {
        self.engine.run().clock.at(at)
    }

    /// Tells what the run is.
    pub(super) fn start(&self) {
        let run = self.engine.run();
        self.reporter.tell(self.calendar(run.clock.started()), &Line::Start(&run.start));
    }

    /// Takes an event, tells what comes of it, and hands on what is asked.
    pub(super) fn take(&mut self, event: &Event) -> Vec<Query> {
        let mut queries = Vec::new();
        let time = self.calendar(event.at);
        for output in self.engine.take(event) {
            match output {
                Output::Finding(finding) => self.reporter.tell(time, &Line::Finding(&finding)),
                Output::Hung(hung) => self.reporter.tell(time, &Line::Hung(&hung)),
                Output::Progress(progress) => self.reporter.tell(time, &Line::Progress(&progress)),
                Output::Query(query) => queries.push(*query),
            }
        }
        match event.what {
            What::Counts(_) => {
                let (calls, found) = (self.engine.calls(), self.engine.found());
                self.reporter.live(format!("{calls} calls, {found} findings"));
            }
            // It comes whenever files are due.
            What::Completeness(_) => self.export(false),
            _ => {}
        }
        queries
    }

    /// Whether there is an answer at this time.
    pub(super) fn is_firm(&self, now: Monotonic) -> bool {
        self.engine.is_firm(now)
    }

    /// Tells the end, and says how the run ended.
    pub(super) fn end(&self, at: Monotonic, fail_on_loss: bool) -> Exit {
        self.export(true);
        let time = self.calendar(at);
        if self.engine.run().one_answer {
            self.reporter.tell(time, &Line::Diagnosis(&self.engine.diagnosis()));
        }
        let (mut summary, found) = (self.engine.summary(), self.engine.found());
        summary.completeness.degraded.extend(self.reporter.degraded());
        self.reporter.summary(time, &summary, found);
        match found {
            _ if fail_on_loss && summary.completeness.lost_data() => Exit::Lost,
            0 if self.engine.run().one_answer && self.engine.pod_may_be_left() => Exit::Unexplained,
            _ if self.engine.run().one_answer && self.engine.pod_is_to_stay() => Exit::Clean,
            0 => Exit::Clean,
            _ => Exit::Found,
        }
    }

    /// Tells the answer where nothing was traced, so that there is nothing to sum up.
    pub(super) fn answer(&self, at: Monotonic) -> Exit {
        self.export(true);
        let answer = self.engine.diagnosis();
        self.reporter.tell(self.calendar(at), &Line::Diagnosis(&answer));
        let is_clean = answer.causes.is_empty() || self.engine.pod_is_to_stay();
        if is_clean { Exit::Clean } else { Exit::Found }
    }

    /// Has the exported files renewed, if any were asked for. Waits only at the end, and not for
    /// long.
    fn export(&self, end: bool) {
        let shot = || Shot {
            series: self.engine.series(),
            findings: self.engine.findings().cloned().collect(),
            completeness: self.engine.completeness(),
            window: self.engine.window(),
            start: self.calendar(self.engine.run().clock.started()),
        };
        if end { self.reporter.last_export(shot) } else { self.reporter.export(shot) }
    }
}
