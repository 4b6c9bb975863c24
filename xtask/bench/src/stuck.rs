//! Measures, for many pods that are stuck at once, the time from a pod's first failing call to the line of its
//! finding.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::{Current, LoadAverage};
use serde::{Deserialize, Serialize};

use super::place::{FileSystem, Place};
use super::round::{ATTACH_LIMIT, Bench};
use super::running::{Again, Running};
use super::tracer::{PODSTUCK_MARKER, watch};
use super::usage;

/// The options of the measurement.
pub(crate) struct Choice {
    pub(crate) pods: usize,
    pub(crate) attempts: u32,
    pub(crate) log_lines: usize,
    pub(crate) rounds: u32,
}

/// Maximum time to create the pods, which takes some hundred programs.
const MADE: Duration = Duration::from_secs(120);
/// Interval between reads of podstuck's output: the maximum error of a measured time.
const POLL: Duration = Duration::from_millis(5);
/// The goal for the time of a finding, in seconds.
const GOAL_S: f64 = 3.0;

/// A line of the program that plays kubelet.
#[derive(Deserialize)]
struct First {
    uid: String,
    kind: String,
    cause: String,
    unix_s: f64,
}

/// A line of podstuck.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line {
    Finding {
        id: String,
        pod: Option<Named>,
    },
    Summary {
        window_s: f64,
        completeness: Completeness,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Completeness {
    objects_dropped: u64,
}

/// The result of a run.
struct Run {
    log_lines: usize,
    rows: Vec<Row>,
    /// Number of dropped questions and objects.
    dropped: u64,
    /// CPU time of podstuck and its helpers.
    cpu_s: f64,
    window_s: f64,
    /// Number of runnable processes: the mean of the last minute.
    load: f64,
}

#[derive(Deserialize)]
struct Named {
    uid: String,
}

/// The result of one pod, as written to the CSV file.
#[derive(Serialize)]
struct Row {
    round: u32,
    log_lines: usize,
    kind: String,
    uid: String,
    /// Time until a finding was about the pod, and until one named the cause.
    any_s: Option<f64>,
    named_s: Option<f64>,
}

/// Measures without and with a long log, prints the distributions, and writes `stuck.csv`.
pub(crate) fn run(bench: &Bench, place: &mut Place, choice: &Choice, results: &Path) -> Result<()> {
    let volume = place.volume(FileSystem::Ext4)?.map_err(|tool| anyhow!(tool.missing()))?;
    let root = volume.kubelet_root.with_file_name("stuck");
    let path = results.join("stuck.csv");
    let mut csv = csv::Writer::from_path(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut runs = Vec::new();
    for round in 0..choice.rounds {
        for log_lines in [0, choice.log_lines] {
            runs.push(measure(bench, &root, choice, (round, log_lines))?);
        }
    }
    for log_lines in [0, choice.log_lines] {
        let those = || runs.iter().filter(|run| run.log_lines == log_lines);
        println!(
            "{} pods, {log_lines} errors in kubelet's log, {} rounds",
            choice.pods, choice.rounds
        );
        show(those().flat_map(|run| &run.rows));
        for Run { dropped, cpu_s, window_s, load, .. } in those() {
            println!(
                "{dropped} questions or objects dropped, {cpu_s:.2} s of CPU time in {window_s:.0} s, load {load:.1}"
            );
        }
    }
    for row in runs.into_iter().flat_map(|run| run.rows) {
        csv.serialize(row).with_context(|| format!("cannot write {}", path.display()))?;
    }
    csv.flush().with_context(|| format!("cannot write {}", path.display()))?;
    println!("all of them: {}", path.display());
    Ok(())
}

fn measure(
    bench: &Bench,
    root: &Path,
    choice: &Choice,
    (round, log_lines): (u32, usize),
) -> Result<Run> {
    let folder = bench.folder.join("stuck");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let root = root.join(format!("{round}-{log_lines}"));
    let read_only = root.with_extension("read-only");
    let mut kubelet = Command::new(&bench.stuck);
    kubelet.arg0("kubelet").arg("--root-dir").arg(&root).arg("--read-only-root").arg(&read_only);
    kubelet.args(["--pods", &choice.pods.to_string()]);
    kubelet.args(["--attempts", &choice.attempts.to_string()]);
    kubelet.args(["--log-lines", &log_lines.to_string()]);
    let mut kubelet = Running::start(kubelet, &folder, "kubelet", &bench.interrupt)?;
    kubelet.wait_for("ready", MADE)?;
    let mut command = watch(&bench.podstuck, &root);
    command.arg("--kubelet-root").arg(&read_only);
    let begun = Instant::now();
    let mut podstuck = Running::start(command, &folder, "podstuck", &bench.interrupt)?;
    podstuck.wait_for(PODSTUCK_MARKER, ATTACH_LIMIT)?;
    println!("round {round}: started in {:.2} s", begun.elapsed().as_secs_f64());
    kill(Pid::from_raw(kubelet.pid()), Signal::SIGUSR1).context("cannot let kubelet begin")?;
    let mut reported = Reported::new(folder.join("podstuck.out"));
    // One second for each attempt, and time for the clean-up.
    let limit = Duration::from_secs(choice.attempts.into()) * 2 + MADE;
    kubelet.succeed(limit, POLL, || reported.read_new())?;
    let before = usage::children_cpu_s()?;
    podstuck.stop(Again::No)?;
    let cpu_s = usage::children_cpu_s()? - before;
    let load = LoadAverage::current().context("the machine's load")?.one.into();
    let (window_s, dropped) = summary(&podstuck.printed()?)?;
    let printed = kubelet.printed()?;
    let firsts = printed.lines().filter(|line| line.starts_with('{'));
    let firsts: serde_json::Result<Vec<First>> = firsts.map(serde_json::from_str).collect();
    let rows = firsts.context("kubelet's lines")?.into_iter().map(|first| {
        let mine = || reported.findings.iter().filter(|(uid, _, _)| *uid == first.uid);
        let after = |(_, _, at): &(String, String, f64)| at - first.unix_s;
        let any_s = mine().map(after).reduce(f64::min);
        let named_s = mine().filter(|(_, id, _)| *id == first.cause).map(after).reduce(f64::min);
        Row { round, log_lines, kind: first.kind, uid: first.uid, any_s, named_s }
    });
    let rows = rows.collect();
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(Run { log_lines, rows, dropped, cpu_s, window_s, load })
}

/// The duration of podstuck's watch, and the number of objects that it dropped.
fn summary(printed: &str) -> Result<(f64, u64)> {
    let mut lines = printed.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    let found = lines.find_map(|line| match line {
        Line::Summary { window_s, completeness } => Some((window_s, completeness.objects_dropped)),
        _ => None,
    });
    found.context("podstuck printed no summary")
}

/// podstuck's findings so far: a pod's UID, a cause, and the time of its line (seconds since the epoch).
struct Reported {
    path: PathBuf,
    read: usize,
    findings: Vec<(String, String, f64)>,
}

impl Reported {
    fn new(path: PathBuf) -> Self {
        Self { path, read: 0, findings: Vec::new() }
    }

    fn read_new(&mut self) {
        let text = fs::read(&self.path).unwrap_or_default();
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        let new = text.get(self.read..).unwrap_or_default();
        let Some(end) = new.iter().rposition(|byte| *byte == b'\n') else { return };
        for line in new.get(..end).unwrap_or_default().split(|byte| *byte == b'\n') {
            if let Ok(Line::Finding { id, pod: Some(pod) }) = serde_json::from_slice(line) {
                self.findings.push((pod.uid, id, now.as_secs_f64()));
            }
        }
        self.read += end + 1;
    }
}

fn show<'a>(rows: impl Iterator<Item = &'a Row>) {
    let rows: Vec<&Row> = rows.collect();
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    println!("| stuck by | pods | p50 | p90 | longest | later than {GOAL_S} s | not named |");
    println!("|---|---|---|---|---|---|---|");
    for kind in kinds {
        line(kind, rows.iter().filter(|row| row.kind == kind));
    }
    line("all", rows.iter());
}

fn line<'a>(name: &str, rows: impl Iterator<Item = &'a &'a Row>) {
    let (mut times, mut pods) = (Vec::new(), 0);
    for row in rows {
        pods += 1;
        times.extend(row.named_s);
    }
    times.sort_unstable_by(f64::total_cmp);
    let late = times.iter().filter(|time| **time > GOAL_S).count();
    let missing = pods - times.len();
    let of = |share: f64| quantile(&times, share).map_or("-".into(), |it| format!("{it:.2} s"));
    println!("| {name} | {pods} | {} | {} | {} | {late} | {missing} |", of(0.5), of(0.9), of(1.0));
}

/// The value that this share of the values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(5.0));
        assert_eq!(quantile(&values, 0.9), Some(9.0));
        assert_eq!(quantile(&values, 1.0), Some(10.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn only_whole_lines_are_read_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut reported = Reported::new(folder.path().join("out"));
        let line = r#"{"type":"finding","id":"x","pod":{"uid":"u"}}"#;
        fs::write(&reported.path, format!("{{\"type\":\"start\"}}\n{line}\n{line}")).unwrap();
        reported.read_new();
        reported.read_new();
        assert_eq!(reported.findings.len(), 1);
        fs::write(&reported.path, format!("{{\"type\":\"start\"}}\n{line}\n{line}\n")).unwrap();
        reported.read_new();
        assert_eq!(reported.findings.len(), 2);
    }
}
