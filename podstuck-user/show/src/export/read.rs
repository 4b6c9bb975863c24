//! Reads an export directory back.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use thiserror::Error;

use super::{
    csv::{self, Row},
    findings_file,
    intervals::Intervals,
    intervals_log, prometheus,
    read_finding::Line,
};
use podstuck_confine::given_file;
use podstuck_model::{
    finding::Finding,
    path::{safe, safe_path},
    summary::Completeness,
};

/// Limit of a file's size, in bytes: some 20,000 findings with their updates.
const LONGEST: u64 = 128 << 20;

/// Why a directory cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", safe_path(path))]
    Open {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The directory is no export.
    #[error(
        "{} was not written by `--export`: {} is missing",
        safe_path(path),
        findings_file::FILE
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A file has content that podstuck does not write.
    #[error("{} is not in the format of podstuck: {why}", safe_path(path))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The content of an export directory.
#[derive(Debug, Default)]
pub struct Export {
    /// Each finding once, as it stands at the end.
    pub findings: Vec<Finding>,
    /// Names of causes that this version does not know.
    pub unknown: Vec<String>,
    /// All series.
    pub series: Vec<Row>,
    /// Counts by interval; `None` when an older podstuck has written the directory.
    pub intervals: Option<Intervals>,
    /// Start of the run.
    pub start: Timestamp,
    /// Duration of the run.
    pub window: Duration,
    /// Losses that are exported as numbers.
    pub completeness: Completeness,
    /// Number of missing probes; their names are not exported.
    pub probes_missing: u64,
}

/// Reads a directory.
///
/// # Errors
/// Fails with the file that cannot be read, and why.
pub fn read(directory: &Path) -> Result<Export, ReadError> {
    let mut export = Export::default();
    let name = |file: &str| directory.join(file);
    let Some(findings) = contents(&name(findings_file::FILE))? else {
        return Err(ReadError::Foreign { path: directory.into() });
    };
    let wrong = |file: &str, why: String| ReadError::Wrong { path: name(file), why };
    read_findings(&findings, &mut export).map_err(|why| wrong(findings_file::FILE, why))?;
    if let Some(file) = contents(&name(csv::FILE))? {
        export.series = csv::read(&file).map_err(|why| wrong(csv::FILE, why.to_string()))?;
    }
    if let Some(file) = contents(&name(intervals_log::FILE))? {
        let read = intervals_log::read(&file);
        let (_, intervals) = read.map_err(|why| wrong(intervals_log::FILE, why.to_string()))?;
        export.intervals = Some(intervals);
    }
    if let Some(file) = contents(&name(prometheus::FILE))? {
        read_metrics(&String::from_utf8_lossy(&file), &mut export);
    }
    Ok(export)
}

/// The content of a file; `None` when it does not exist. The file is not trusted, and may have no end.
fn contents(path: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    match given_file::read(path, LONGEST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReadError::Open { path: path.into(), source }),
    }
}

fn read_findings(file: &[u8], export: &mut Export) -> Result<(), String> {
    for (number, line) in file.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let line: Line = serde_json::from_slice(line)
            .map_err(|why| format!("line {}: {}", number + 1, safe(why.to_string().as_bytes())))?;
        if line.kind != "finding" {
            return Err(format!("line {} is not a finding", number + 1));
        }
        export.start = line.time;
        match line.finding() {
            Ok(finding) => {
                // In the order of first appearance, as in a run.
                let known = export.findings.iter_mut().find(|it| it.instance == finding.instance);
                match known {
                    Some(known) => *known = finding,
                    None => export.findings.push(finding),
                }
            }
            Err(id) if export.unknown.contains(&id) => {}
            Err(id) => export.unknown.push(id),
        }
    }
    Ok(())
}

/// Reads the samples without labels: no others are needed.
fn read_metrics(text: &str, export: &mut Export) {
    let samples = text.lines().filter_map(|line| line.split_once(' '));
    for (name, value) in samples {
        let Ok(number) = value.parse::<f64>() else { continue };
        let count = number as u64;
        let lost = &mut export.completeness;
        match name.strip_prefix("podstuck_").unwrap_or_default() {
            "start_time_seconds" => {
                let nanos = (number * 1e9) as i128;
                export.start = Timestamp::from_nanosecond(nanos).unwrap_or_default();
            }
            "window_seconds" => {
                export.window = Duration::try_from_secs_f64(number).unwrap_or_default();
            }
            "events_lost_total" => lost.events_lost = count,
            "events_limited_total" => lost.events_limited = count,
            "unmatched_exits_total" => lost.unmatched_exits = count,
            "map_full_total" => lost.map_full = count,
            "outcome_unknown_total" => lost.outcome_unknown = count,
            "io_uring_deletions_total" => lost.io_uring_deletions = count,
            "drains_failed_total" => lost.drains_failed = count,
            "unresolved_calls_total" => lost.unresolved = count,
            "look_alike_calls_total" => lost.look_alikes = count,
            "probes_skipped_total" => lost.probes_skipped = Some(count),
            "looks_late_seconds" => lost.looks_late_s = count,
            "probes_missing" => export.probes_missing = count,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use podstuck_fuzz::runner;

    use podstuck_model::totals::Totals;

    use super::*;
    use crate::{
        export::{Exporter, Snapshot, sample},
        present::{
            foreign::Foreign,
            json::{self, Line},
            sample as findings,
        },
    };
    use podstuck_model::{finding::FindingState, series::NamesTable};

    fn line(finding: &Finding) -> String {
        json::line(findings::time(7), &Line::Finding(finding))
    }

    #[test]
    fn a_directory_says_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut exporter = Exporter::new(dir.path()).unwrap();
        let mut last = findings::finding();
        exporter.append(&line(&last)).unwrap();
        (last.state, last.count) = (FindingState::Cleared, 9);
        exporter.append(&line(&last)).unwrap();
        let completeness = Completeness {
            events_lost: 3,
            probes_skipped: Some(2),
            probes_missing: vec!["a: not permitted".into()],
            ..Completeness::default()
        };
        let (series, window) = (sample::table(), Duration::from_millis(30_500));
        let snapshot = Snapshot {
            by_target: Some((&series, &NamesTable::new())),
            totals: &Totals::default(),
            findings: &[],
            completeness: &completeness,
            window,
            start: sample::start(),
        };
        for file in snapshot.files() {
            let (name, bytes) = file.unwrap();
            exporter.replace(name, &bytes).unwrap();
        }
        let export = read(dir.path()).unwrap();
        assert_eq!(export.findings.iter().map(line).collect::<String>(), line(&last));
        assert_eq!(export.series, csv::table(&series, &NamesTable::new(), 9));
        assert_eq!((export.start, export.window), (sample::start(), window));
        assert_eq!(export.probes_missing, 1);
        let counted = Completeness { probes_missing: Vec::new(), ..completeness };
        assert_eq!(export.completeness, counted);
        assert!(export.intervals.is_none());
    }

    #[test]
    fn a_finding_is_read_back_whatever_is_in_it() {
        runner(500)
            .run(&Foreign::any(), |names| {
                let finding = Foreign::new(names).finding(FindingState::Update);
                let mut export = Export::default();
                read_findings(line(&finding).as_bytes(), &mut export).unwrap();
                assert_eq!(export.findings.iter().map(line).collect::<String>(), line(&finding));
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn fuzz_findings_file() {
        podstuck_fuzz::fuzz("findings_file", |input| {
            let _ = read_findings(input, &mut Export::default());
        });
    }

    #[test]
    fn fuzz_exported_table() {
        podstuck_fuzz::fuzz("exported_table", |input| {
            let series = csv::read(input).unwrap_or_default();
            let mut export = Export { series, ..Export::default() };
            read_metrics(&String::from_utf8_lossy(input), &mut export);
            crate::report::page(&crate::report::Model::of_export(export));
        });
    }

    #[test]
    fn unknown_causes_are_named_and_other_lines_are_errors() {
        let mut export = Export::default();
        let later = line(&findings::finding())
            .replace("volume-held-by-host-process\",\"inst", "new-cause\",\"inst");
        read_findings(later.as_bytes(), &mut export).unwrap();
        assert_eq!((export.unknown, export.findings.len()), (vec!["new-cause".to_owned()], 0));
        for (text, why) in [("{}", "line 1: missing field"), ("\n[", "line 2: ")] {
            let error = read_findings(text.as_bytes(), &mut Export::default()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("findings.jsonl is missing"));
    }
}
