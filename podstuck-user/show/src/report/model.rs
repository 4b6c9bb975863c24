//! The data of a report, from a run, its recording or its export.

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

/// Limit of series in a page; the file has all.
pub(super) const ROWS: usize = 400;

/// The data of a report.
#[derive(Debug)]
pub struct Model {
    /// Metadata of the run.
    pub(super) start: Option<Start>,
    /// Start of the run.
    pub(super) begun: Timestamp,
    /// Time of the last event.
    pub(super) at: Timestamp,
    /// The answer and the findings.
    pub(super) diagnosis: Diagnosis,
    /// Counts, what may be missing, and the tool's own cost.
    pub(super) summary: Summary,
    /// The first series.
    pub(super) series: Vec<Row>,
    /// Number of all series.
    pub(super) all_series: usize,
    /// Counts by interval.
    pub(super) intervals: Intervals,
    /// Attempts by object; those of findings come first.
    pub(super) tried: Vec<Tried>,
    /// Converts the times of attempts to the wall clock.
    pub(super) clock: Option<Clock>,
    /// Calls that have not returned.
    pub(super) hung: Vec<Hung>,
    /// The last progress of each mass deletion.
    pub(super) progress: Vec<Progress>,
    /// What the source of this report lacks, a sentence each.
    pub(super) absent: Vec<String>,
}

impl Model {
    /// The model of a run as it stands, without its series, which take longer ([`Self::with_series`]).
    pub fn of_run(engine: &Engine, collector: &Collector) -> Self {
        let start = engine.run().start.clone();
        Self::of(start, engine.diagnosis(), engine.summary(), collector)
    }

    /// The model from the engine's output.
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

    /// Adds the series of the run.
    #[must_use]
    pub fn with_series(self, series: &SeriesTable, names: &NamesTable) -> Self {
        let all_series = series.len();
        Self { series: csv::table(series, names, ROWS), all_series, ..self }
    }

    /// The model of an export directory.
    pub fn of_export(export: Export) -> Self {
        let mut absent = vec![
            "made from exported files, which lack the start of the run, single attempts, calls in flight, log \
             messages that are in no finding, failures of podstuck's own parts, and changes of findings after their \
             last line; `report.html` of the same directory and a recording have these"
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

    /// Adds a sentence about data that the source lacks.
    pub fn lacks(&mut self, what: impl Into<String>) {
        self.absent.push(what.into());
    }
}

/// Counts by call and outcome, summed over the series.
fn summary(export: &Export) -> Summary {
    let mut summary = Summary {
        window_s: export.window.as_secs_f64(),
        calls: 0,
        by_outcome: Call::ALL.iter().map(|call| (call.name(), Default::default())).collect(),
        completeness: export.completeness.clone(),
        cost: Default::default(),
    };
    for row in &export.series {
        // Phases around a call are no calls.
        let Some(call) = Call::ALL.iter().find(|call| call.name() == row.syscall) else { continue };
        let outcomes = summary.by_outcome.entry(call.name()).or_default();
        // The file is not trusted: its sums may overflow.
        let calls: &mut u64 = outcomes.entry(row.outcome.clone()).or_default();
        *calls = calls.saturating_add(row.count);
        summary.calls = summary.calls.saturating_add(row.count);
    }
    summary
}
