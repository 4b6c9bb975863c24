//! Comparisons of real runs: of the same thing, and of a volume on a disk that writes at once after one in memory.
//!
//! `PODSTUCK_COMPARE_RUNS=20` makes 20 runs of the same thing, and says how many of all pairs give an alarm.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use podstuck_tests::{
    Disk, EXT4, beside_the_tests, has_loop_devices, podstuck, requires, root_and_btf, watch,
};
use serde_json::Value;

/// Long enough for eight intervals of a second.
const RUN: Duration = Duration::from_secs(11);

const VOLUME: &str =
    "pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes/kubernetes.io~empty-dir/cache";

/// Records a run beside removals in a volume of this kubelet's.
fn record(root: &Path, file: &Path) {
    let (root, volume) = (root.to_str().unwrap(), root.join(VOLUME));
    let node = watch(&["--kubelet-root", root, "--record", file.to_str().unwrap()]);
    let begun = Instant::now();
    while begun.elapsed() < RUN {
        let mut workload = Command::new(beside_the_tests("podstuck-workload"));
        workload.args(["tree", "--calls", "200", "--portion", "200", "--dir"]).arg(&volume);
        let done = workload.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::thread::sleep(Duration::from_millis(50));
    }
    node.stop();
}

/// What a comparison says, and its exit status.
fn compare(before: &Path, after: &Path) -> (Value, Option<i32>) {
    let mut command = Command::new(podstuck());
    let output =
        command.arg("compare").args([before, after]).args(["--output", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "");
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

#[test]
fn a_disk_that_writes_at_once_is_found_to_be_slower() {
    requires!(root_and_btf());
    requires!(has_loop_devices());
    let dir = tempfile::Builder::new().prefix("podstuck-compare-").tempdir_in("/dev/shm").unwrap();
    let (root, file) = (dir.path().join("kubelet"), |name: &str| dir.path().join(name));
    fs::create_dir_all(root.join(VOLUME)).unwrap();
    let runs = env::var("PODSTUCK_COMPARE_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let same: Vec<PathBuf> = (0..runs).map(|n| file(&format!("memory-{n}.zst"))).collect();
    same.iter().for_each(|file| record(&root, file));
    let (mut pairs, mut alarms) = (0, 0);
    for (place, before) in same.iter().enumerate() {
        for after in &same[place + 1..] {
            let (comparison, status) = compare(before, after);
            assert!(comparison["compared"].as_u64().unwrap() >= 3, "{comparison:#}");
            let changes = comparison["changes"].as_array().unwrap();
            assert_eq!(status, Some(i32::from(!changes.is_empty())), "{comparison:#}");
            pairs += 1;
            if !changes.is_empty() {
                alarms += 1;
                println!("measured: an alarm: {}", comparison["changes"]);
            }
        }
    }
    println!("measured: {alarms} alarms in {pairs} pairs of {runs} runs of the same thing");
    // By chance two of a hundred are expected, and five at most.
    assert!(pairs < 100 || alarms * 20 <= pairs, "{alarms} alarms in {pairs} pairs");

    let disk = Disk::mount(&root.join(VOLUME), 64 << 20, EXT4, "sync,dirsync");
    let slow = file("disk.zst");
    record(&root, &slow);
    drop(disk);
    let (comparison, status) = compare(&same[0], &slow);
    assert_eq!(status, Some(1), "{comparison:#}");
    let slower = comparison["changes"].as_array().unwrap().iter().find(|change| {
        change["outcome"] == "ok" && change["measure"] == "median" && change["worse"] == true
    });
    let slower = slower.expect("a slower series");
    assert_eq!(slower["plugin"], "kubernetes.io/empty-dir", "{slower:#}");
    println!("measured: {slower}");
}

#[test]
fn nothing_to_compare_is_no_verdict() {
    let recording = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.zst"))
    };
    // A second of calls.
    let (comparison, status) = compare(&recording("immutable-attribute"), &recording("healthy"));
    assert_eq!((comparison["compared"].as_u64(), status), (Some(0), Some(5)), "{comparison:#}");
    assert!(!comparison["too_few"].as_array().unwrap().is_empty());
    // The same run twice, and its replay's export.
    let dir = tempfile::tempdir().unwrap();
    let run = recording("emptydir-mass-files");
    podstuck_tests::replay(&run, &["--export", dir.path().to_str().unwrap()]);
    let (comparison, status) = compare(&run, dir.path());
    assert_eq!(
        (comparison["changes"].as_array().map(Vec::len), status),
        (Some(0), Some(0)),
        "{comparison:#}"
    );
    assert!(comparison["compared"].as_u64().unwrap() >= 3, "{comparison:#}");
}
