//! `podstuck compare`: which series changed between two runs.

use std::path::Path;

use anyhow::{Context, anyhow};
use jiff::Timestamp;

use crate::{
    cli::{Compare, Output},
    model::path::safe_path,
};
use crate::{
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_show::{
    compare,
    export::{
        intervals::{Collector, Intervals},
        intervals_log, read,
    },
    present::{json, style::Style},
    recording::Reader,
};

/// Runs the command.
///
/// # Errors
/// Fails when one of the two is neither a recording nor an export with counts by time.
pub fn run(options: &Compare) -> Result<Exit, Failure> {
    let (before, after) = (intervals(&options.before), intervals(&options.after));
    let (before, after) = (before.map_err(Failure::Usage)?, after.map_err(Failure::Usage)?);
    let comparison = compare::compare(&before, &after);
    let out = match options.output {
        Output::Json => json::render(Timestamp::now(), "comparison", &comparison),
        Output::Auto | Output::Tui | Output::Text => compare::text(&comparison, Style::PLAIN),
    };
    standard_output::print(out);
    Ok(match (comparison.changes.len(), comparison.compared) {
        (0, 0) => Exit::Unexplained,
        (0, _) => Exit::Clean,
        _ => Exit::Found,
    })
}

fn intervals(path: &Path) -> anyhow::Result<Intervals> {
    let name = safe_path(path);
    let about = std::fs::metadata(path).with_context(|| format!("reading {name}"))?;
    if about.is_dir() {
        let export = read::read(path)?;
        return export.intervals.ok_or_else(|| {
            anyhow!(
                "{name} has no {}, which every export has; compare a recording of the run instead",
                intervals_log::FILE
            )
        });
    }
    let mut recording = Reader::open(path)?;
    let mut collector = Collector::new(recording.run());
    for event in &mut recording {
        collector.take(&event);
    }
    Ok(collector.intervals().clone())
}
