//! The clock of the calendar is set while a run goes on. All processes share it, so this is tried only in a
//! guest, where nothing else depends on it.

use std::time::Duration;

use nix::{
    sys::time::{TimeSpec, TimeValLike},
    time::{ClockId, clock_gettime, clock_settime},
};
use podstuck_tests::{assert_counted, requires, root_and_btf, settle, slowdown, summary, watch};

use crate::stuck_pod::StuckPod;

fn in_a_guest() -> Result<(), &'static str> {
    if slowdown() > 1 { Ok(()) } else { Err("it sets the clock: in a guest only") }
}

/// Changes the calendar's time by `by` seconds.
fn set_clock(by: i64) {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
    clock_settime(ClockId::CLOCK_REALTIME, now + TimeSpec::seconds(by)).unwrap();
}

#[test]
fn a_clock_that_is_set_back_ends_no_finding_and_loses_no_count() {
    const BACK: i64 = -3600;
    requires!(root_and_btf(), in_a_guest());
    let pod = StuckPod::build();
    let mut watch = watch(&["--kubelet-root", pod.root(), "--pod-uid", pod.uid()]);
    set_clock(BACK);
    pod.start();
    let found = pod.cause_is_found(&mut watch);
    set_clock(2 * BACK);
    // The next attempts.
    let later = watch.wait_for("an update", |line| pod.is_found(line) && line["state"] == "update");
    assert!(later["count"].as_u64() > found["count"].as_u64(), "{later:#}");
    let tally = pod.end();
    settle();
    let (lines, status) = watch.stop();
    set_clock(-3 * BACK);
    assert_eq!(status.code(), Some(1));
    let summary = summary(&lines);
    assert_counted(summary, &[&tally]);
    let window = summary["window_s"].as_f64().unwrap();
    let hour = Duration::from_secs(3600).as_secs_f64();
    assert!(window > 0.0 && window < hour, "{window} s");
}
