//! Exported files, read back by the tools that others use.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
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
    values = [h.get_total_count(), h.get_value_at_percentile(50), h.get_max_value()]
    print(h.get_tag(), *values, sep='\t')
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

/// count, median and maximum of each series.
type Rows = BTreeMap<String, (u64, u64, u64)>;

fn hlog_agrees_with_csv(dir: &Path) {
    let csv = rows_of_csv(&dir.join("histograms.csv"));
    assert!(csv.len() >= 4, "{csv:?}");
    let Some(hlog) = rows_of_hlog(&dir.join("histograms.hlog")) else { return };
    assert_eq!(hlog.keys().collect::<Vec<_>>(), csv.keys().collect::<Vec<_>>());
    for (series, (count, median, max)) in &csv {
        let (logged, p50, top) = hlog[series];
        assert_eq!(logged, *count, "{series}");
        // Readers report the upper end of a bucket of three significant digits.
        for (ours, theirs) in [(*median, p50), (*max, top)] {
            let off = ours.abs_diff(theirs) as f64 / ours as f64;
            assert!(off <= 0.002, "{series}: {ours} ns in the CSV, {theirs} ns in the log");
        }
    }
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

fn rows_of_hlog(path: &Path) -> Option<Rows> {
    let python = std::env::var_os("PODSTUCK_PYTHON").unwrap_or_else(|| "python3".into());
    let mut python = Command::new(python);
    let output = reader(python.args(["-c", READ_HLOG]).arg(path))?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let [series, count, median, max] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let number = |n: &str| n.parse().ok();
        Some((series.to_owned(), (number(count)?, number(median)?, number(max)?)))
    };
    Some(text.lines().map(|line| row(line).expect("four columns")).collect())
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
            for (key, name) in [("pod", "pod"), ("volume", "volume"), ("by", "component")] {
                if !cell[column(name)].is_empty() {
                    parts.push(format!("{key}={}", cell[column(name)]));
                }
            }
            (parts.join(";"), (number("count"), number("p50_ns"), number("max_ns")))
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
