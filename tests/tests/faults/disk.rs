//! The disk below the export directory.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use podstuck_tests::{
    Disk, EXT4, Mounted, Running, has_loop_devices, requires, root_and_btf, slowdown, watch,
};
use serde_json::Value;

use crate::stuck_pod::StuckPod;

/// A run ends within this, whatever its disk does: Ctrl-C ends it within two seconds where nothing is wrong.
const END: Duration = Duration::from_secs(10);

fn exporting(pod: &StuckPod, export: &Path) -> Running {
    watch(&["--kubelet-root", pod.root(), "--export", export.to_str().unwrap()])
}

/// Asks it to end, and waits for its summary.
fn is_asked_to_end(watch: &mut Running) {
    watch.signal(Signal::SIGINT);
    let asked = Instant::now();
    watch.wait_for("summary", |line| line["type"] == "summary");
    assert!(asked.elapsed() < END * slowdown(), "{:?}", asked.elapsed());
}

#[test]
fn a_full_export_disk_costs_files_and_no_finding_and_is_reported() {
    requires!(root_and_btf());
    let point = tempfile::tempdir().unwrap();
    let disk = Mounted::memory(point.path(), "size=256k");
    let export = disk.join("export");
    let pod = StuckPod::build();
    let mut watch = exporting(&pod, &export);
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[b'x'; 4096]).is_ok() {}
    pod.start();
    pod.cause_is_found(&mut watch);
    is_asked_to_end(&mut watch);
    let (status, complaints) = watch.finish_complaining();
    assert_eq!(status.code(), Some(1), "{complaints}");
    let place: PathBuf = export.join("findings.jsonl");
    assert!(complaints.contains(place.to_str().unwrap()), "{complaints}");
    // Of a line that did not fit, nothing is left.
    let left = fs::read_to_string(&place).unwrap();
    assert!(left.is_empty() || left.ends_with('\n'), "{left}");
    for line in left.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let names = fs::read_dir(&export).unwrap().map(|entry| entry.unwrap().file_name());
    let partial: Vec<_> = names.filter(|name| name.as_encoded_bytes().starts_with(b".")).collect();
    assert!(partial.is_empty(), "{partial:?}");
    pod.end();
}

/// The kernel lets no process go whose thread waits for a frozen file system. All that it has to say is said
/// before, and it is gone as soon as the disk is thawed.
#[test]
fn a_frozen_export_disk_keeps_no_finding_and_no_summary_back() {
    requires!(root_and_btf(), has_loop_devices());
    let point = tempfile::tempdir().unwrap();
    let disk = Disk::mount(point.path(), 32 << 20, EXT4, "");
    let export = disk.join("export");
    let pod = StuckPod::build();
    let mut watch = exporting(&pod, &export);
    let frozen = disk.freeze();
    pod.start();
    pod.cause_is_found(&mut watch);
    is_asked_to_end(&mut watch);
    drop(frozen);
    let (status, complaints) = watch.finish_complaining();
    assert_eq!(status.code(), Some(1), "{complaints}");
    assert!(
        complaints.contains("the last files of the export directory are missing or old"),
        "{complaints}"
    );
    pod.end();
}
