//! Prints and exports what is told, in the form that was asked for.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    time::Duration,
};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::interrupt;
use crate::{
    cli::Output,
    export::{Background, Exporter, Shot},
    model::summary::Summary,
    present::{
        json::{self, Line},
        style::Style,
        text,
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
    /// On standard error, only when somebody looks at a terminal.
    live: Option<ProgressBar>,
}

impl Reporter {
    /// Opens the export directory, if one was asked for.
    pub(super) fn new(output: Output, export: Option<&Path>, one_answer: bool) -> Result<Self> {
        let terminal = std::io::stdout().is_terminal();
        let json = output == Output::Json;
        // It may wait for a dead disk, and then could not handle a signal.
        let start = |dir| {
            let exporter = Exporter::new(dir)?;
            anyhow::Ok(interrupt::apart(|| Background::start(exporter))?)
        };
        let exporter = export.map(start).transpose()?;
        let live = (terminal && !json).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let color = terminal && std::env::var_os("NO_COLOR").is_none();
        let width = if terminal { terminal_width() } else { Style::PLAIN.width };
        Ok(Self {
            json,
            one_answer,
            style: Style { color, width },
            exporter,
            last_export: LAST_EXPORT,
            live,
        })
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
        if !exporter.finish(shot(), limit) {
            tracing::warn!(
                "the export directory did not take the last files within {limit:?}: they are \
                 missing or old"
            );
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
            self.print(&if self.json { json::line(time, line) } else { text() });
        }
        if let (Line::Finding(_), Some(exporter)) = (line, &self.exporter) {
            exporter.append(json::line(time, line));
        }
    }

    /// Tells the end.
    pub(super) fn summary(&self, time: Timestamp, summary: &Summary, findings: u64) {
        if let Some(live) = &self.live {
            live.finish_and_clear();
        }
        if self.json {
            self.print(&json::line(time, &Line::Summary(summary)));
        } else {
            self.print(&text::summary(summary, findings, self.style));
        }
    }

    /// What the live line says.
    pub(super) fn live(&self, message: String) {
        if let Some(live) = &self.live {
            live.set_message(message);
            // Once a second; a thread for it would start before privileges are given up.
            live.tick();
        }
    }

    fn print(&self, out: &str) {
        let print = || {
            let mut stdout = std::io::stdout().lock();
            // A reader that went away is no reason to stop an export.
            let _ = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush());
        };
        match &self.live {
            Some(live) => live.suspend(print),
            None => print(),
        }
    }
}

/// Of standard output, within what reads well.
fn terminal_width() -> usize {
    usize::from(console::Term::stdout().size().1).clamp(60, 120)
}
