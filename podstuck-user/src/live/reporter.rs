//! Prints and exports the output, in the requested form.

use std::{cell::RefCell, io::IsTerminal, path::Path, time::Duration};

use anyhow::Result;
use jiff::Timestamp;

use super::{
    lister::Lister,
    on_screen::OnScreen,
    printer::{Live, Printer},
};
use crate::{
    cli::Output,
    event::{Event, Run},
    model::{
        deleted::Deleted,
        diagnosis::Diagnosis,
        finding::{Finding, FindingState},
        summary::{NotLookedAt, Summary},
    },
};
use crate::{interrupt, standard_output};
use podstuck_show::{
    export::{Background, Shot, Writer},
    present::{
        json::{self, Line},
        style::Style,
        text::{self, Found, ListEnd},
        words,
    },
};

/// Time limit of the last export of a live run: Ctrl-C ends it within two seconds.
const LAST_EXPORT: Duration = Duration::from_secs(1);
/// Time limit of the last export of a replay, on a machine that is not sick.
const LAST_EXPORT_OF_REPLAY: Duration = Duration::from_secs(30);

/// What is printed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Everything as it happens.
    Live,
    /// Findings at the end, in a diagnosis, which comes first.
    OneAnswer,
    /// The first lines of a diagnosis.
    Brief,
    /// One line a pod.
    List,
}

impl Form {
    /// The form of a run that gives one answer or continues.
    pub(crate) fn of(one_answer: bool, brief: bool) -> Self {
        match (one_answer, brief) {
            (false, _) => Self::Live,
            (true, false) => Self::OneAnswer,
            (true, true) => Self::Brief,
        }
    }
}

/// The destination of all output.
pub(crate) struct Reporter {
    json: bool,
    /// Whether the user sees a live line.
    is_live: bool,
    form: Form,
    lister: Option<Lister>,
    style: Style,
    /// The run's metadata, when it is printed after the answer.
    start: RefCell<String>,
    exporter: Option<Background>,
    /// Whether only the node's metrics are exported, beside the findings.
    of_node_only: bool,
    last_export: Duration,
    not_exported: RefCell<Option<String>>,
    printer: Printer,
    wants_screen: bool,
    /// While the screen is on the terminal, text waits.
    screen: RefCell<Option<OnScreen>>,
    waiting: RefCell<Vec<String>>,
}

impl Reporter {
    /// Opens the export directory, if an export was requested.
    pub(crate) fn new(output: Output, export: Option<&Path>, form: Form) -> Result<Self> {
        let terminal = std::io::stdout().is_terminal();
        let json = output == Output::Json;
        let wants_screen = OnScreen::is_wanted(output)? && form != Form::Brief;
        // It may block on a dead disk, and then could not handle a signal.
        let start = |dir| {
            let writer = Writer::start(dir)?;
            anyhow::Ok(interrupt::apart(|| Background::start(writer))?)
        };
        let exporter = export.map(start).transpose()?;
        let is_live = terminal && !json && !wants_screen;
        let printer = Printer::Here(Live::new(is_live));
        Ok(Self {
            json,
            is_live,
            form,
            lister: None,
            style: standard_output::style(),
            start: RefCell::default(),
            exporter,
            of_node_only: false,
            last_export: LAST_EXPORT,
            not_exported: RefCell::default(),
            printer,
            wants_screen,
            screen: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// Whether it exports only the node's metrics, beside the findings.
    pub(crate) fn of_node_only(self, of_node_only: bool) -> Self {
        Self { of_node_only, ..self }
    }

    /// For a list of pods.
    pub(crate) fn listing(self, lister: Option<Lister>) -> Self {
        Self { lister, ..self }
    }

    /// For a run that continues without a reader.
    pub(crate) fn of_run(self) -> Result<Self> {
        let command = if self.form == Form::Live { "podstuck watch" } else { "podstuck diagnose" };
        let screen = self.screen(command, true)?;
        Ok(Self { printer: self.printer.apart()?, screen, ..self })
    }

    fn screen(&self, command: &'static str, is_live: bool) -> Result<RefCell<Option<OnScreen>>> {
        let start = || OnScreen::start(command, self.style.color, self.exporter.is_some(), is_live);
        Ok(RefCell::new(self.wants_screen.then(start).transpose()?))
    }

    /// Whether counts by target and a report are exported.
    pub(crate) fn exports_targets(&self) -> bool {
        self.exporter.is_some() && !self.of_node_only
    }

    /// For a replay.
    pub(crate) fn of_replay(self) -> Result<Self> {
        let screen = self.screen("podstuck replay", false)?;
        Ok(Self { last_export: LAST_EXPORT_OF_REPLAY, screen, ..self })
    }

    /// Takes the run's metadata.
    pub(crate) fn begin(&self, run: &Run) {
        if let Some(screen) = &*self.screen.borrow() {
            screen.begin(run);
        }
    }

    /// Shows an event on the screen.
    pub(crate) fn learn(&self, event: &Event) {
        if let Some(screen) = &*self.screen.borrow() {
            screen.learn(event);
        }
    }

    /// Whether the user has requested an export.
    pub(super) fn wants_export(&self) -> bool {
        self.screen.borrow().as_ref().is_some_and(|screen| screen.wants_export())
    }

    /// Once the user has left the final screen, or the terminal is gone, prints the text.
    pub(crate) fn leave(&self, is_stopped: impl Fn() -> bool) {
        let Some(screen) = self.screen.take() else { return };
        screen.wait(is_stopped);
        drop(screen);
        self.waiting.take().into_iter().for_each(|text| self.print(text));
        self.finish();
    }

    /// Replaces the exported files, if an export was requested.
    pub(crate) fn export(&self, shot: impl FnOnce() -> Shot) {
        if let Some(exporter) = &self.exporter {
            exporter.renew(shot);
        }
    }

    /// Replaces the exported files for the last time, and waits for that.
    pub(super) fn last_export(&self, shot: impl FnOnce() -> Shot) {
        let Some(exporter) = &self.exporter else { return };
        let limit = self.last_export;
        if let Err(why) = exporter.finish(shot(), limit) {
            let why = format!("the last files of the export directory are missing or old: {why}");
            tracing::warn!("{why}");
            self.not_exported.replace(Some(why));
        }
    }

    /// Prints a line with its time.
    pub(crate) fn tell(&self, time: Timestamp, line: &Line<'_>) {
        if let (Line::Finding(_), Some(exporter)) = (line, &self.exporter) {
            exporter.append(json::line(time, line));
        }
        if self.json {
            return self.print(json::line(time, line));
        }
        let style = self.style;
        if let Some(screen) = &*self.screen.borrow() {
            screen.tell(line);
            // The data on the screen is not repeated at the end.
            if matches!(line, Line::Finding(_) | Line::Hung(_) | Line::Progress(_)) {
                return;
            }
        }
        match (line, self.form) {
            (Line::Start(start), Form::Live) => self.print(text::start(start, style)),
            (Line::Start(start), Form::OneAnswer) => {
                self.start.replace(text::start(start, style));
            }
            // A program gets each as it forms; a user who asked one question gets one answer.
            (Line::Finding(finding), Form::Live) => self.print(text::finding(finding, style)),
            (Line::Hung(hung), Form::Live) => self.print(text::hung(hung, style)),
            (Line::Progress(progress), Form::Live | Form::OneAnswer) => {
                self.print(text::progress(progress, style));
            }
            (Line::Gone(gone), Form::Live) => self.print(text::gone(gone)),
            (Line::Diagnosis(_), Form::List) => {}
            (Line::Diagnosis(answer), Form::Brief) => self.print(text::answer(answer, time, style)),
            (Line::Diagnosis(answer), _) => {
                self.print(text::diagnosis(answer, time, style));
                self.print(self.start.take());
            }
            // Lines of `holders` and `explain`, and the summary, which needs the number of findings.
            _ => {}
        }
    }

    /// Reports roots that are not watched although calls have failed there.
    pub(super) fn not_looked_at(&self, all: &[NotLookedAt]) {
        if !self.json && self.form != Form::List {
            all.iter().for_each(|it| self.print(text::not_looked_at(it, self.style)));
        }
    }

    /// Whether the output is one line a pod.
    pub(crate) fn lists(&self) -> bool {
        self.form == Form::List
    }

    /// Prints the pods of which enough is known, one line each.
    pub(crate) fn list(&self, pods: &[Deleted], at: Timestamp) {
        let lines = self.lister.as_ref().map(|it| it.lines(pods, false, at, self.style));
        lines.into_iter().filter(|lines| !lines.is_empty()).for_each(|lines| self.print(lines));
    }

    /// Prints the other pods, and the notes.
    pub(super) fn list_end(&self, list: &ListEnd<'_>, at: Timestamp) {
        self.printer.clear();
        if let Some(lister) = &self.lister {
            let list = ListEnd { options: &lister.options, ..*list };
            self.print(lister.lines(list.pods, true, at, self.style));
            self.print(lister.end(&list, at, self.style));
        }
        self.finish();
    }

    /// Prints the summary, and waits until it was read, for a limited time.
    pub(crate) fn summary(&self, time: Timestamp, summary: &Summary, found: Found) {
        self.printer.clear();
        let on_screen = self.screen.borrow().as_ref().map(|screen| {
            screen.end(summary);
            screen.findings()
        });
        if let Some(findings) = on_screen.filter(|_| self.form == Form::Live) {
            self.findings(&findings);
        }
        if self.json {
            self.print(json::line(time, &Line::Summary(summary)));
        } else if self.form != Form::Brief {
            self.print(text::summary(summary, found, self.style));
        } else if summary.completeness.lost_data() {
            self.print(
                "not everything was seen: run without --brief to see what is missing\n".into(),
            );
        }
        if self.screen.borrow().is_none() {
            self.finish();
        }
    }

    fn finish(&self) {
        if !self.printer.finish() {
            tracing::warn!("no process reads standard output: the last lines were not printed");
        }
    }

    /// Prints the current findings, which text prints as they form.
    fn findings(&self, findings: &[Finding]) {
        for finding in findings {
            let state = match finding.state {
                FindingState::Update => FindingState::New,
                state => state,
            };
            self.print(text::finding(&Finding { state, ..finding.clone() }, self.style));
        }
    }

    /// Output that could not be printed or written so far, a sentence each.
    pub(super) fn degraded(&self) -> Vec<String> {
        let left_out = Some(self.printer.left_out()).filter(|n| *n > 0).map(|n| {
            let what = words::plural(n, "message was", "messages were");
            format!("{what} not printed: no process read standard output for too long")
        });
        left_out.into_iter().chain(self.not_exported.borrow().clone()).collect()
    }

    /// Whether the user sees a live line or a screen.
    pub(crate) fn has_audience(&self) -> bool {
        self.is_live || self.screen.borrow().is_some()
    }

    /// Shows what is known before the answer is final.
    pub(crate) fn so_far(&self, answer: &Diagnosis) {
        if let Some(screen) = &*self.screen.borrow() {
            let pod = answer.stages.first();
            screen.chain(pod.map_or_else(Vec::new, |pod| pod.chain.clone()));
        } else if let Some(known) = text::so_far(answer) {
            self.live(format!("so far: {known}"));
        }
    }

    /// Sets the live line.
    pub(crate) fn live(&self, message: String) {
        self.printer.live(message);
    }

    fn print(&self, out: String) {
        if self.screen.borrow().is_some() {
            self.waiting.borrow_mut().push(out);
        } else {
            self.printer.print(out);
        }
    }
}
