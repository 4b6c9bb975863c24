//! Prints and exports what is told, in the form that was asked for.

use std::{cell::RefCell, io::IsTerminal, path::Path, time::Duration};

use anyhow::Result;
use jiff::Timestamp;

use super::{
    interrupt,
    printer::{Live, Printer},
};
use crate::{
    cli::Output,
    export::{Background, Shot, Writer},
    model::summary::Summary,
    present::{
        json::{self, Line},
        style::Style,
        text, words,
    },
};

/// How long the last export of a live run may take: Ctrl-C ends it within two seconds.
const LAST_EXPORT: Duration = Duration::from_secs(1);
/// The same of a replay, which nobody ends, on a machine that is not sick.
const LAST_EXPORT_OF_REPLAY: Duration = Duration::from_secs(30);

/// Where everything that is told goes.
pub(super) struct Reporter {
    json: bool,
    /// Findings are told at the end, in a diagnosis
    one_answer: bool,
    style: Style,
    exporter: Option<Background>,
    last_export: Duration,
    not_exported: RefCell<Option<String>>,
    printer: Printer,
}

impl Reporter {
    /// Opens the export directory, if one was asked for.
    pub(super) fn new(output: Output, export: Option<&Path>, one_answer: bool) -> Result<Self> {
        let terminal = std::io::stdout().is_terminal();
        let json = output == Output::Json;
        // It may wait for a dead disk, and then could not handle a signal.
        let start = |dir| {
            let writer = Writer::start(dir)?;
            anyhow::Ok(interrupt::apart(|| Background::start(writer))?)
        };
        let exporter = export.map(start).transpose()?;
        let printer = Printer::Here(Live::new(terminal && !json));
        let color = terminal && std::env::var_os("NO_COLOR").is_none();
        let width = if terminal { terminal_width() } else { Style::PLAIN.width };
        Ok(Self {
            json,
            one_answer,
            style: Style { color, width },
            exporter,
            last_export: LAST_EXPORT,
            not_exported: RefCell::default(),
            printer,
        })
    }

    /// For a run that goes on whether anybody reads or not.
    pub(super) fn of_run(self) -> Result<Self> {
        Ok(Self { printer: self.printer.apart()?, ..self })
    }

    /// For a replay.
    pub(super) fn of_replay(self) -> Self {
        Self { last_export: LAST_EXPORT_OF_REPLAY, ..self }
    }

    /// Renews the exported files, if any were asked for.
    pub(super) fn export(&self, shot: impl FnOnce() -> Shot) {
        if let Some(exporter) = &self.exporter {
            exporter.renew(shot);
        }
    }

    /// The same for the last time, and waits for it.
    pub(super) fn last_export(&self, shot: impl FnOnce() -> Shot) {
        let Some(exporter) = &self.exporter else { return };
        let limit = self.last_export;
        if let Err(why) = exporter.finish(shot(), limit) {
            let why = format!("the last files of the export directory are missing or old: {why}");
            tracing::warn!("{why}");
            self.not_exported.replace(Some(why));
        }
    }

    /// Tells a line, at its time.
    pub(super) fn tell(&self, time: Timestamp, line: &Line<'_>) {
        let text = || match line {
            Line::Start(start) => text::start(start, self.style),
            Line::Finding(finding) => text::finding(finding, self.style),
            Line::Hung(hung) => text::hung(hung, self.style),
            Line::Progress(progress) => text::progress(progress, self.style),
            Line::Diagnosis(diagnosis) => text::diagnosis(diagnosis, self.style),
            // Those of `holders` and `explain`, and the end, which needs the number of findings.
            Line::Holder(_) | Line::Search(_) | Line::Cause(_) | Line::Summary(_) => String::new(),
        };
        // A program wants each as it forms, a person who asked one question wants one answer.
        let forms = matches!(line, Line::Finding(_) | Line::Hung(_));
        if self.json || !(self.one_answer && forms) {
            self.print(if self.json { json::line(time, line) } else { text() });
        }
        if let (Line::Finding(_), Some(exporter)) = (line, &self.exporter) {
            exporter.append(json::line(time, line));
        }
    }

    /// Tells the end, and waits until it was read, but not for ever.
    pub(super) fn summary(&self, time: Timestamp, summary: &Summary, findings: u64) {
        self.printer.clear();
        if self.json {
            self.print(json::line(time, &Line::Summary(summary)));
        } else {
            self.print(text::summary(summary, findings, self.style));
        }
        if !self.printer.finish() {
            tracing::warn!("nobody reads standard output: the last lines were not printed");
        }
    }

    /// What could not be told or written, as far as is known by now.
    pub(super) fn degraded(&self) -> Vec<String> {
        let left_out = Some(self.printer.left_out()).filter(|n| *n > 0).map(|n| {
            let what = words::plural(n, "message was", "messages were");
            format!("{what} not printed: nobody read standard output for too long")
        });
        left_out.into_iter().chain(self.not_exported.borrow().clone()).collect()
    }

    /// What the live line says.
    pub(super) fn live(&self, message: String) {
        self.printer.live(message);
    }

    fn print(&self, out: String) {
        self.printer.print(out);
    }
}

/// Of standard output, within what reads well.
fn terminal_width() -> usize {
    usize::from(console::Term::stdout().size().1).clamp(60, 120)
}
