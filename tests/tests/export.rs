//! Exported files, read back by the tools that others use.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use podstuck_tests::{lab, of_type, podstuck, requires, root_and_btf, skip, watch};
use serde_json::Value;

const READ_HLOG: &str = r"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 2**43, 3))
while (h := reader.get_next_interval_histogram()) is not None:
    values = [h.get_value_at_percentile(share) for share in (50, 90, 99, 99.9)]
    print(h.get_tag(), h.get_total_count(), h.get_min_value(), *values, h.get_max_value(), sep='\t')
reader.close()
";

/// Runs a lab beside a watch that exports, and returns the directory.
fn exported() -> (tempfile::TempDir, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let (running, ready) = lab("immutable-attribute", &["--duration", "3s"]);
    let root = ready["kubelet_root"].as_str().unwrap();
    let node = watch(&["--kubelet-root", root, "--export", dir.path().to_str().unwrap()]);
    running.resume();
    running.finish();
    let (lines, _) = node.stop();
    (dir, lines)
}

#[test]
fn every_file_agrees_with_the_others() {
    requires!(root_and_btf());
    let (dir, lines) = exported();
    findings_are_those_printed(dir.path(), &lines);
    hlog_agrees_with_csv(dir.path());
    script_agrees_with_csv(dir.path());
    script_draws_what_it_reads(dir.path());
    series_say_whose_they_are(dir.path());
    intervals_add_up(dir.path());
    promtool_is_content(dir.path(), &lines);
}

#[test]
fn the_tool_does_not_stay_where_it_was_started() {
    requires!(root_and_btf());
    let dir = tempfile::tempdir().unwrap();
    let mut watch = Command::new(podstuck());
    watch.args(["watch", "--duration", "3s", "--export", "out"]).current_dir(dir.path());
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut printed = BufReader::new(watch.stdout.take().unwrap());
    printed.read_line(&mut first).unwrap();
    let place = fs::read_link(format!("/proc/{}/cwd", watch.id())).unwrap();
    assert_eq!(place, Path::new("/"), "{first}");
    printed.read_to_string(&mut first).unwrap();
    watch.wait().unwrap();
    assert!(dir.path().join("out/metrics.prom").exists(), "{first}");
}

fn findings_are_those_printed(dir: &Path, lines: &[Value]) {
    let text = fs::read_to_string(dir.join("findings.jsonl")).unwrap();
    let exported: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let ids = |all: &[&Value]| -> Vec<(String, String)> {
        let of = |v: &Value, key: &str| v[key].as_str().unwrap().to_owned();
        all.iter().map(|v| (of(v, "id"), of(v, "state"))).collect()
    };
    let printed = of_type(lines, "finding");
    assert!(!printed.is_empty());
    assert_eq!(ids(&exported.iter().collect::<Vec<_>>()), ids(&printed));
}

/// Of each series the count, then shortest call, p50, p90, p99, p99.9 and longest call.
type Rows = BTreeMap<String, (u64, [u64; 6])>;

const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Whether readers that round a rank to the nearest, as Python's does, take the same call as those that round up.
fn is_same_rank(calls: u64, share: f64) -> bool {
    let rank = share * calls as f64;
    (rank + 0.5).floor().max(1.0) == rank.ceil().max(1.0)
}

fn assert_close(what: &str, ours: u64, theirs: u64) {
    // Readers report the ends of a bucket of three significant digits.
    let off = ours.abs_diff(theirs) as f64 / ours.max(1) as f64;
    assert!(off <= 0.001, "{what}: {ours} ns in the CSV, {theirs} ns in the log");
}

fn hlog_agrees_with_csv(dir: &Path) {
    let csv = rows_of_csv(&dir.join("histograms.csv"));
    assert!(csv.len() >= 4, "{csv:?}");
    let Some(hlog) = rows_of_hlog(&dir.join("histograms.hlog")) else { return };
    assert_eq!(hlog.keys().collect::<Vec<_>>(), csv.keys().collect::<Vec<_>>());
    for (series, (count, ours)) in &csv {
        let (logged, theirs) = hlog[series];
        assert_eq!(logged, *count, "{series}");
        let [least, quantiles @ .., most] = ours;
        assert_close(series, *least, theirs[0]);
        assert_close(series, *most, theirs[5]);
        for ((share, ours), theirs) in SHARES.into_iter().zip(quantiles).zip(&theirs[1..]) {
            if is_same_rank(*count, share) {
                assert_close(&format!("{series}, {share}"), *ours, *theirs);
            }
        }
    }
}

/// Runs the script of the documents, which needs no more than Python.
fn script(log: &Path, options: &[&str]) -> Option<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/histograms.py");
    let mut python = Command::new(python());
    let output = reader(python.arg(path).arg(log).args(options))?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn script_agrees_with_csv(dir: &Path) {
    let log = dir.join("histograms.hlog");
    let Some(text) = script(&log, &["--csv"]) else { return };
    let read: Rows = text.lines().skip(1).map(|line| row_of(line, ',')).collect();
    let csv = rows_of_csv(&dir.join("histograms.csv"));
    assert_eq!(read.keys().collect::<Vec<_>>(), csv.keys().collect::<Vec<_>>());
    for (series, (count, ours)) in &csv {
        assert_eq!(read[series].0, *count, "{series}");
        ours.iter().zip(read[series].1).for_each(|(ours, read)| assert_close(series, *ours, read));
    }
    // It comes to the same where Python's reader decodes the file.
    if rows_of_hlog(&log).is_some() {
        assert_eq!(script(&log, &["--csv", "--with-hdrh"]).unwrap(), text);
    }
}

fn script_draws_what_it_reads(dir: &Path) {
    let log = dir.join("histograms.hlog");
    let Some(plot) = script(&log, &["--plot", "--match", "immutable"]) else { return };
    assert!(plot.contains("EPERM;") && plot.contains("█") && plot.contains(" calls\n"), "{plot}");
    let heat = script(&dir.join("intervals.hlog"), &["--heat"]).unwrap();
    assert!(heat.contains("s a column") && heat.contains('█'), "{heat}");
    let picture = dir.join("latencies.svg");
    script(&log, &["--svg", picture.to_str().unwrap()]).unwrap();
    let picture = fs::read_to_string(picture).unwrap();
    let lines = picture.matches("<polyline").count();
    assert_eq!(lines, rows_of_csv(&dir.join("histograms.csv")).len(), "{picture}");
}

/// By columns in the table, and by labels of the metrics, of the series of the finding.
fn series_say_whose_they_are(dir: &Path) {
    let text = fs::read_to_string(dir.join("histograms.csv")).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    // The lab's own, when it cleans up, is of no volume.
    let is_it = |row: &&str| row.contains(",EPERM,") && row.contains(",data,");
    let of_finding = rows.lines().find(is_it).unwrap();
    let cells: BTreeMap<&str, &str> = header.split(',').zip(of_finding.split(',')).collect();
    let metrics = fs::read_to_string(dir.join("metrics.prom")).unwrap();
    for (name, value) in [
        ("namespace", "podstuck-lab"),
        ("pod_name", "immutable-attribute"),
        ("volume", "data"),
        ("plugin", "kubernetes.io/empty-dir"),
    ] {
        assert_eq!(cells[name], value, "{of_finding}");
        let label = format!("{name}=\"{value}\"");
        let is_one = |line: &str| line.contains("outcome=\"EPERM\"") && line.contains(&label);
        assert!(metrics.lines().any(is_one), "{label}: {metrics}");
    }
    assert_eq!(cells["pod"].len(), 36, "{of_finding}");
    // Eleven lines a series at most.
    let lines = metrics.lines().filter(|line| line.contains("{syscall=")).count();
    assert!(lines <= 11 * rows.lines().count(), "{metrics}");
}

/// All intervals together have the calls that all series have.
fn intervals_add_up(dir: &Path) {
    let Some(text) = read_hlog(&dir.join("intervals.hlog")) else { return };
    let count = |line: &str| line.split('\t').nth(1).unwrap().parse::<u64>().unwrap();
    assert!(text.lines().count() >= 4, "{text}");
    let all = rows_of_csv(&dir.join("histograms.csv"));
    let in_csv: u64 = all.values().map(|(count, ..)| count).sum();
    assert_eq!(text.lines().map(count).sum::<u64>(), in_csv);
}

/// Runs a reader of others; `None`, and a word about it, where it is not installed.
fn reader(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let program = command.get_program().display();
            skip(format!("in part: no {program}; `cargo xtask test` gets it"));
            None
        }
        output => Some(output.unwrap()),
    }
}

fn python() -> OsString {
    std::env::var_os("PODSTUCK_PYTHON").unwrap_or_else(|| "python3".into())
}

/// What Python's reader says of each line; `None` where it is not installed.
fn read_hlog(path: &Path) -> Option<String> {
    let mut python = Command::new(python());
    let output = reader(python.args(["-c", READ_HLOG]).arg(path))?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn rows_of_hlog(path: &Path) -> Option<Rows> {
    Some(read_hlog(path)?.lines().map(|line| row_of(line, '\t')).collect())
}

/// A tag, in which there is no separator, the count and the durations.
fn row_of(line: &str, separator: char) -> (String, (u64, [u64; 6])) {
    let mut cells = line.split(separator);
    let tag = cells.next().unwrap().to_owned();
    let numbers: Vec<u64> = cells.map(|cell| cell.parse().expect("a number")).collect();
    let (count, times) = numbers.split_first().unwrap();
    (tag, (*count, times.try_into().expect("six durations")))
}

fn rows_of_csv(path: &Path) -> Rows {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    lines
        .map(|line| {
            let cell: Vec<&str> = line.split(',').collect();
            let number = |name: &str| cell[column(name)].parse().unwrap();
            let mut parts =
                vec![cell[column("syscall")].to_owned(), cell[column("outcome")].into()];
            for (key, name) in [
                ("pod", "pod"),
                ("volume", "volume"),
                ("container", "container"),
                ("by", "component"),
                ("namespace", "namespace"),
                ("name", "pod_name"),
                ("plugin", "plugin"),
            ] {
                if !cell[column(name)].is_empty() {
                    // As the log quotes it.
                    parts.push(format!("{key}={}", cell[column(name)].replace(' ', "%20")));
                }
            }
            let times = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"];
            (parts.join(";"), (number("count"), times.map(number)))
        })
        .collect()
}

fn promtool_is_content(dir: &Path, lines: &[Value]) {
    let metrics: PathBuf = dir.join("metrics.prom");
    let input = fs::File::open(&metrics).unwrap();
    let mut promtool = Command::new("promtool");
    if let Some(output) = reader(promtool.args(["check", "metrics"]).stdin(input)) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
    // The same calls as in the summary, series by series.
    let text = fs::read_to_string(&metrics).unwrap();
    let calls: u64 = text
        .lines()
        .filter(|line| line.starts_with("podstuck_calls_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(calls, podstuck_tests::summary(lines)["calls"].as_u64().unwrap());
}
