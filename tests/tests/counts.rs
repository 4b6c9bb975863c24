//! Counts equal the workload's own, whatever the load, and also when the ring is not read.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/same_id.rs"]
mod same_id;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use podstuck_common::entry_point::ON_ARM64;
use podstuck_tests::{
    RMDIR, UID, add_up, assert_counted, call, empty_dir, missing, of_type, podstuck_call, requires,
    root_and_btf, settle, slowdown, summary, watch,
};
use serde_json::{Value, json};

fn in_memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/dev/shm").unwrap()
}

#[test]
fn two_writers_at_a_time_are_counted_exactly_by_outcome() {
    requires!(root_and_btf());
    let rounds = 150_000 / u64::from(slowdown());
    let top = in_memory();
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    let writers: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|name| {
            let dir = top.path().join(name);
            fs::create_dir(&dir).unwrap();
            let mut command = Command::new(podstuck_call());
            command.arg("storm").arg(&dir).arg(rounds.to_string());
            command.stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let tallies: Vec<Value> = writers
        .into_iter()
        .map(|writer| {
            let output = writer.wait_with_output().unwrap();
            assert!(output.status.success());
            serde_json::from_slice(&output.stdout).unwrap()
        })
        .collect();
    let (lines, _) = watching.stop();
    let counted = summary(&lines);
    let truth = add_up(&tallies.iter().collect::<Vec<_>>());
    // On arm64 two of them are the same.
    let kinds = if ON_ARM64 { 5 } else { 6 };
    assert!(truth.values().sum::<u64>() > rounds * 7 / 3 && truth.len() >= kinds, "{truth:?}");
    assert_counted(counted, &tallies.iter().collect::<Vec<_>>());
}

#[test]
fn rm_of_200_000_entries_is_counted_exactly_for_its_volume() {
    requires!(root_and_btf());
    const FILES: u64 = 99;
    let directories = 2_000 / u64::from(slowdown());
    let top = in_memory();
    let volume = empty_dir(top.path());
    for d in 0..directories {
        let dir = volume.join(format!("d{d}"));
        fs::create_dir(&dir).unwrap();
        for f in 0..FILES {
            fs::File::create(dir.join(format!("f{f}"))).unwrap();
        }
    }
    let export = in_memory();
    let root = top.path().to_str().unwrap();
    let watching = watch(&[
        "--pod-uid",
        UID,
        "--kubelet-root",
        root,
        "--export",
        export.path().to_str().unwrap(),
    ]);
    assert!(Command::new("rm").arg("-rf").arg(&volume).status().unwrap().success());
    let (lines, _) = watching.stop();
    let counted = summary(&lines);
    let truth = json!({
        "unlinkat": { "ok": directories * FILES },
        "unlinkat+AT_REMOVEDIR": { "ok": directories + 1 },
    });
    assert_counted(counted, &[&truth]);
    let csv = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let row = csv.lines().find(|line| line.starts_with("unlinkat,ok,")).unwrap();
    let expected =
        format!("unlinkat,ok,{UID},data,other,{},", counted["by_outcome"]["unlinkat"]["ok"]);
    assert!(row.starts_with(&expected), "{csv}");
}

#[test]
fn counts_stay_exact_while_the_ring_is_not_read_and_the_loss_is_reported() {
    requires!(root_and_btf());
    // Each target is announced by a record of its own, with its path. So this is more than the ring holds, and
    // less than a table of counts.
    const TARGETS: u64 = 1_900;
    let above = in_memory();
    let top = above.path().join("d".repeat(200)).join("e".repeat(140));
    let volumes = empty_dir(&top).parent().unwrap().to_path_buf();
    let watching = watch(&["--path", top.to_str().unwrap(), "--fail-on-loss"]);
    settle();
    watching.pause();
    let tally = call(&["targets".as_ref(), volumes.as_os_str(), TARGETS.to_string().as_ref()]);
    watching.resume();
    let (lines, status) = watching.stop();
    let counted = summary(&lines);
    assert_eq!(add_up(&[&counted["by_outcome"]]), add_up(&[&tally]));
    assert_eq!(counted["by_outcome"][RMDIR]["ENOENT"], TARGETS);
    let lost = counted["completeness"]["events_lost"].as_u64().unwrap();
    assert!(lost > 0 && lost < TARGETS, "{counted:#}");
    assert_eq!(status.code(), Some(4), "--fail-on-loss");
    assert!(of_type(&lines, "finding").is_empty());
}

#[test]
fn another_pod_is_not_counted() {
    requires!(root_and_btf());
    let (wanted, other) = (in_memory(), in_memory());
    empty_dir(wanted.path());
    let volume = other.path().join("pods/00000000-0000-4000-8000-000000000000/volumes/p/v");
    fs::create_dir_all(&volume).unwrap();
    let root = wanted.path().to_str().unwrap();
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root]);
    call(&["storm".as_ref(), volume.as_os_str(), "2000".as_ref()]);
    call(&["rmdir".as_ref(), Path::new("/nonexistent").as_os_str()]);
    let (lines, status) = watching.stop();
    assert_eq!(summary(&lines)["calls"], 0, "{:#}", summary(&lines));
    assert_eq!(status.code(), Some(0));
}

/// A row of a CSV of histograms, as numbers by column.
fn cells<'a>(header: &'a str, row: &'a str) -> BTreeMap<&'a str, f64> {
    let cells = header.split(',').zip(row.split(','));
    cells.filter_map(|(name, cell)| Some((name, cell.parse().ok()?))).collect()
}

/// Where there is one call, or two, the mean, which is exact, tells what they must be.
#[test]
fn the_shortest_and_the_longest_call_are_exact() {
    requires!(root_and_btf());
    let (top, export) = (in_memory(), in_memory());
    let volume = empty_dir(top.path());
    let (root, out) = (top.path().to_str().unwrap(), export.path().to_str().unwrap());
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root, "--export", out]);
    call(&["rmdir".as_ref(), volume.join("absent").as_os_str()]);
    // By two processes, so perhaps on two CPUs.
    for _ in 0..2 {
        call(&["at".as_ref(), volume.as_os_str(), "absent".as_ref()]);
    }
    call(&["storm".as_ref(), volume.as_os_str(), "2000".as_ref()]);
    watching.stop();
    let csv = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let (header, rows) = csv.split_once('\n').unwrap();
    let (mut of_one, mut of_two) = (0, 0);
    for row in rows.lines() {
        let cell = cells(header, row);
        let [least, most, mean] = ["min_ns", "max_ns", "mean_ns"].map(|name| cell[name]);
        assert!(least > 0.0 && least <= mean && mean <= most, "{row}");
        for quantile in ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns"] {
            assert!(least <= cell[quantile] && cell[quantile] <= most, "{quantile}: {row}");
        }
        // The mean has one decimal.
        if cell["count"] == 1.0 {
            of_one += 1;
            assert!(least == most && least == mean && least == cell["p50_ns"], "{row}");
        } else if cell["count"] == 2.0 {
            of_two += 1;
            assert!((least + most - 2.0 * mean).abs() < 0.2, "{row}");
        }
    }
    let expected = if ON_ARM64 { (0, 0) } else { (1, 1) };
    assert!((of_one, of_two) >= expected, "{csv}");
}

/// The row of a CSV of histograms for files that were not there, of the victim's volume.
fn row(csv: &str, outcome: &str, component: &str) -> u64 {
    let start = format!("unlinkat,{outcome},{UID},data,{component},");
    let row = csv.lines().find_map(|line| line.strip_prefix(&start));
    row.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn a_process_id_that_is_given_again_between_two_drains_takes_no_counts_over() {
    requires!(root_and_btf());
    const ROUNDS: u32 = 50;
    const NOBODY: u32 = 65534;
    let (top, export) = (in_memory(), in_memory());
    // So that every user finds that there is no such file.
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let absent = empty_dir(top.path()).join("absent");
    let root = top.path().to_str().unwrap();
    let out = export.path().to_str().unwrap();
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root, "--export", out]);
    // The tool does not see them alive: the probes record who they were.
    let id = same_id::deletes(None, 0, &absent, 3);
    for _ in 0..ROUNDS {
        same_id::deletes(Some(id), NOBODY, &absent, 5);
        same_id::deletes(Some(id), 0, &absent, 3);
    }
    let (lines, _) = watching.stop();
    let (root, others) = (u64::from(3 * (ROUNDS + 1)), u64::from(5 * ROUNDS));
    let truth = json!({ "unlinkat": { "ENOENT": root + others } });
    assert_counted(summary(&lines), &[&truth]);
    let lost = missing(summary(&lines), &[&truth]);
    let csv = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let (of_root, of_others) = (row(&csv, "ENOENT", "other"), row(&csv, "ENOENT", "workload"));
    // What the kernel has kept from the probes may be of either, and nothing of one is the other's.
    assert!(of_root <= root && of_others <= others, "{csv}");
    assert_eq!(of_root + of_others + lost, root + others, "{csv}");
}
