//! What a report tells, whether it comes from a run, its recording or its export.

use jiff::Timestamp;
use podstuck_engine::{engine::Engine, rank};

use super::{attempts::Tried, collect::Collector};
use crate::export::{
    csv::{self, Row},
    intervals::Intervals,
    read::Export,
};
use podstuck_model::{
    call::Call,
    diagnosis::Diagnosis,
    finding::Progress,
    hung::Hung,
    series::{NamesTable, SeriesTable},
    summary::{Start, Summary},
    time::Clock,
};

/// Rows of series that a page has; the file has all.
pub(super) const ROWS: usize = 400;

/// Everything that is told.
#[derive(Debug)]
pub struct Model {
    /// What the run was.
    pub(super) start: Option<Start>,
    /// When it began.
    pub(super) begun: Timestamp,
    /// The last that is known.
    pub(super) at: Timestamp,
    /// The answer, and what was found.
    pub(super) diagnosis: Diagnosis,
    /// Counts, what may be missing, what it cost.
    pub(super) summary: Summary,
    /// The first of its series.
    pub(super) series: Vec<Row>,
    /// How many there are.
    pub(super) all_series: usize,
    /// Counts by time.
    pub(super) intervals: Intervals,
    /// What was tried, object by object; those of findings come first.
    pub(super) tried: Vec<Tried>,
    /// Turns the times of attempts into the calendar's.
    pub(super) clock: Option<Clock>,
    /// Calls that have not returned.
    pub(super) hung: Vec<Hung>,
    /// Bulk deletions, as they stood last.
    pub(super) progress: Vec<Progress>,
    /// What the source of this report does not hold, each a sentence.
    pub(super) absent: Vec<String>,
}

impl Model {
    /// Of a run as it stands, but for its series, which take longer ([`Self::with_series`]).
    pub fn of_run(engine: &Engine, collector: &Collector) -> Self {
        let start = engine.run().start.clone();
        Self::of(start, engine.diagnosis(), engine.summary(), collector)
    }

    /// The same of what the engine has said.
    pub(super) fn of(
        start: Start,
        diagnosis: Diagnosis,
        summary: Summary,
        collector: &Collector,
    ) -> Self {
        let clock = collector.clock;
        let found = diagnosis.causes.iter().chain(&diagnosis.over);
        let tried = collector.attempts.all(found.map(|finding| finding.call.path.0.as_path()));
        Self {
            start: Some(start),
            begun: clock.at(clock.started()),
            at: clock.at(collector.last),
            summary,
            series: Vec::new(),
            all_series: 0,
            intervals: collector.intervals().clone(),
            tried,
            clock: Some(clock),
            hung: collector.hung.values().cloned().collect(),
            progress: collector.progress.clone(),
            absent: Vec::new(),
            diagnosis,
        }
    }

    /// With the series of the run.
    #[must_use]
    pub fn with_series(self, series: &SeriesTable, names: &NamesTable) -> Self {
        let all_series = series.len();
        Self { series: csv::table(series, names, ROWS), all_series, ..self }
    }

    /// Of a directory.
    pub fn of_export(export: Export) -> Self {
        let mut absent = vec![
            "made from exported files: what the run was started with, attempts one by one, calls in flight, words \
             of logs that are in no finding, what parts of podstuck could not do, and what findings came to after their \
             last line are not in them; `report.html` of the same directory and a recording have these"
                .to_owned(),
        ];
        if export.intervals.is_none() {
            absent.push("the directory has no intervals.hlog, so nothing is shown by time".into());
        }
        for cause in &export.unknown {
            absent
                .push(format!("findings of the cause {cause}, which this podstuck does not know"));
        }
        let mut summary = summary(&export);
        if export.probes_missing > 0 {
            let missing =
                format!("{} of them; the export does not name them", export.probes_missing);
            summary.completeness.probes_missing.push(missing);
        }
        let window_s = export.window.as_secs_f64();
        let diagnosis =
            rank::diagnosis(None, Vec::new(), Vec::new(), window_s, export.findings.iter());
        Self {
            start: None,
            begun: export.start,
            at: export.start.checked_add(export.window).unwrap_or(export.start),
            diagnosis,
            summary,
            all_series: export.series.len(),
            series: export.series,
            intervals: export.intervals.unwrap_or_default(),
            tried: Vec::new(),
            clock: None,
            hung: Vec::new(),
            progress: Vec::new(),
            absent,
        }
    }

    /// Something that the source does not hold.
    pub fn lacks(&mut self, what: impl Into<String>) {
        self.absent.push(what.into());
    }
}

/// Counts by call and outcome, from those by series.
fn summary(export: &Export) -> Summary {
    let mut summary = Summary {
        window_s: export.window.as_secs_f64(),
        calls: 0,
        by_outcome: Call::ALL.iter().map(|call| (call.name(), Default::default())).collect(),
        completeness: export.completeness.clone(),
        cost: Default::default(),
    };
    for row in &export.series {
        // Phases around a call are none.
        let Some(call) = Call::ALL.iter().find(|call| call.name() == row.syscall) else { continue };
        let outcomes = summary.by_outcome.entry(call.name()).or_default();
        // The file may be anybody's.
        let calls: &mut u64 = outcomes.entry(row.outcome.clone()).or_default();
        *calls = calls.saturating_add(row.count);
        summary.calls = summary.calls.saturating_add(row.count);
    }
    summary
}
