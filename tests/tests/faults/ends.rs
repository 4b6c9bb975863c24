//! Runs that are killed, and runs beside others.

use std::{fs, path::Path};

use nix::sys::signal::Signal;
use podstuck_tests::{
    EXPORTED, assert_counted, names_in, of_type, replay, requires, root_and_btf, settle, slowdown,
    summary, watch,
};
use serde_json::Value;

use crate::stuck_pod::StuckPod;

fn findings(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("findings.jsonl")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What was reported is in its files when it is killed, and the next run finds the same.
#[test]
fn a_run_that_is_killed_leaves_what_it_reported_and_the_next_begins_again() {
    requires!(root_and_btf());
    let dir = tempfile::tempdir().unwrap();
    let (export, recording) = (dir.path().join("export"), dir.path().join("recording"));
    let pod = StuckPod::build();
    let options = ["--kubelet-root", pod.root(), "--export", export.to_str().unwrap()];
    let record = ["--record", recording.to_str().unwrap()];
    let mut first = watch(&[&options[..], &record].concat());
    pod.start();
    let found = pod.cause_is_found(&mut first);
    // A recording is taken to the disk four times a second.
    settle();
    first.signal(Signal::SIGKILL);
    first.finish();
    let left = findings(&export);
    assert!(left.iter().any(|line| pod.is_found(line) && line["id"] == found["id"]), "{left:#?}");
    let (again, _) = replay(&recording, &[]);
    let replayed = of_type(&again, "finding");
    assert!(
        replayed.iter().any(|line| pod.is_found(line) && line["id"] == found["id"]),
        "{replayed:#?}"
    );

    let mut second = watch(&options);
    pod.cause_is_found(&mut second);
    let (_, status) = second.stop();
    assert_eq!(status.code(), Some(1));
    assert!(!findings(&export).is_empty());
    assert_eq!(names_in(&export), EXPORTED);
    pod.end();
}

#[test]
fn two_runs_at_once_find_and_count_the_same() {
    requires!(root_and_btf());
    let pod = StuckPod::build();
    // Not the whole node: each tries its probes on calls that the other one counts.
    let options = ["--kubelet-root", pod.root(), "--pod-uid", pod.uid()];
    let mut both = [watch(&options), watch(&options)];
    pod.start();
    for one in &mut both {
        pod.cause_is_found(one);
    }
    let tally = pod.end();
    settle();
    for one in both {
        let (lines, _) = one.stop();
        assert_counted(summary(&lines), &[&tally]);
        for finding in of_type(&lines, "finding") {
            // In an emulated machine a read may come too late.
            let is_unseen = slowdown() > 1 && finding["certainty"] == "possible";
            assert!(is_unseen || finding["id"] == "immutable-attribute", "{finding:#}");
        }
    }
}
