//! Measures how often `compare` reports a change that does not exist, and how often it finds one that does.

use std::{collections::BTreeMap, time::Duration};

use podstuck_common::bucket::bucket_of;

use super::compare;
use crate::export::intervals::{Intervals, Kind};

/// A run with dependent calls: each second is about as slow as the one before, and some runs are slower than others
/// as a whole.
struct Run {
    seconds: u64,
    /// Correlation of a second's slowness with the next, and its deviation, as a logarithm.
    goes_on: f64,
    slowness: f64,
    /// Deviation between whole runs.
    of_runs: f64,
    /// Factor on all latencies.
    factor: f64,
    /// The share of unmounts that fail.
    fails: f64,
}

const RUN: Run =
    Run { seconds: 64, goes_on: 0.6, slowness: 0.25, of_runs: 0.05, factor: 1.0, fails: 0.05 };

/// Calls drawn for a second.
const SAMPLES: f64 = 20.0;

fn normal(random: &mut fastrand::Rng) -> f64 {
    let (a, b) = (1.0 - random.f64(), random.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn run(random: &mut fastrand::Rng, of: &Run) -> Intervals {
    let mut all = Intervals::default();
    for (syscall, plugin, calls) in [
        ("unlinkat", "empty-dir", 400.0),
        ("unlinkat", "csi", 60.0),
        ("unlinkat+AT_REMOVEDIR", "empty-dir", 90.0),
        ("rmdir", "csi", 15.0),
        ("umount2", "csi", 6.0),
    ] {
        let offset = normal(random) * of.of_runs;
        let mut slow = normal(random) * of.slowness;
        let own = of.slowness * (1.0 - of.goes_on * of.goes_on).sqrt();
        for second in 0..of.seconds {
            slow = slow * of.goes_on + normal(random) * own;
            let busy: f64 = calls * (normal(random) * 0.6).exp();
            // A sample stands for all: the seconds matter.
            let (drawn, each) = (busy.min(SAMPLES), (busy / SAMPLES).max(1.0) as u64);
            let mut counts = BTreeMap::new();
            for _ in 0..drawn as u64 {
                let ns = 8_000.0 * of.factor * (slow + offset + normal(random) * 0.7).exp();
                let fails = syscall == "umount2" && random.f64() < of.fails * (1.0 + slow);
                *counts.entry((fails, bucket_of(ns as u64))).or_default() += each;
            }
            for ((fails, bucket), calls) in counts {
                let kind = Kind {
                    syscall: syscall.into(),
                    outcome: if fails { "EBUSY" } else { "ok" }.into(),
                    plugin: plugin.into(),
                    component: "kubelet".into(),
                };
                all.add(Duration::from_secs(second), kind, bucket, calls);
            }
        }
    }
    all
}

/// Number of pairs, of 100, in which a change is reported.
fn alarms(before: &Run, after: &Run) -> usize {
    let mut random = fastrand::Rng::with_seed(7);
    let mut pair = || compare(&run(&mut random, before), &run(&mut random, after));
    (0..100).filter(|_| !pair().changes.is_empty()).count()
}

#[test]
fn runs_of_the_same_thing_differ_in_five_of_a_hundred_pairs_at_most() {
    for (name, of) in [
        ("as they are", RUN),
        ("independent seconds", Run { goes_on: 0.0, ..RUN }),
        ("slow minutes", Run { goes_on: 0.9, ..RUN }),
        ("short", Run { seconds: 16, ..RUN }),
        ("long", Run { seconds: 300, ..RUN }),
        ("runs that differ", Run { of_runs: 0.12, ..RUN }),
    ] {
        let alarms = alarms(&of, &of);
        println!("measured: {alarms} alarms in 100 pairs, {name}");
        assert!(alarms <= 5, "{alarms} alarms in 100 pairs, {name}");
    }
}

#[test]
fn a_doubled_latency_or_frequent_failure_is_found() {
    for (name, after) in [
        ("twice as slow", Run { factor: 2.0, ..RUN }),
        ("half of the time", Run { factor: 0.5, ..RUN }),
        ("half of the unmounts fail", Run { fails: 0.5, ..RUN }),
    ] {
        let found = alarms(&RUN, &after);
        println!("measured: found in {found} of 100 pairs, {name}");
        assert!(found >= 90, "found in {found} of 100 pairs, {name}");
    }
}

#[test]
fn too_small_series_are_reported_and_not_compared() {
    let mut random = fastrand::Rng::with_seed(7);
    let short = Run { seconds: 5, ..RUN };
    let comparison = compare(&run(&mut random, &short), &run(&mut random, &RUN));
    assert_eq!((comparison.compared, comparison.changes.len()), (0, 0));
    assert!(comparison.too_few.iter().all(|it| it.why.contains("first run")), "{comparison:?}");
    assert!(comparison.too_few.len() >= 5);
    let nothing = compare(&Intervals::default(), &Intervals::default());
    assert_eq!((nothing.compared, nothing.too_few.len()), (0, 0));
}
