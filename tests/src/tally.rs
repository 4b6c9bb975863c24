//! Counts of calls, compared with a truth.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::slowdown;

/// Adds up tallies of the form `{call: {outcome: count}}`; empty calls count as absent.
pub fn add_up(tallies: &[&Value]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for tally in tallies {
        for (call, outcomes) in tally.as_object().unwrap() {
            for (outcome, count) in outcomes.as_object().unwrap() {
                *sum.entry(format!("{call} {outcome}")).or_default() += count.as_u64().unwrap();
            }
        }
    }
    sum
}

/// That what was counted is the truth, to the last call. Where the kernel itself ran no probes now
/// and then (Linux 7 under tracepoints, in an emulated machine), that what is missing was told.
pub fn assert_counted(summary: &Value, tallies: &[&Value]) {
    let (counted, truth) = (add_up(&[&summary["by_outcome"]]), add_up(tallies));
    let lost = &summary["completeness"];
    let told = ["probes_skipped", "unmatched_exits"].map(|name| lost[name].as_u64().unwrap());
    let told: u64 = told.iter().sum();
    if told == 0 || slowdown() == 1 {
        assert_eq!(counted, truth, "{lost:#}");
        return;
    }
    let missing = truth.iter().map(|(what, calls)| {
        let seen = counted.get(what).copied().unwrap_or(0);
        calls.checked_sub(seen).unwrap_or_else(|| panic!("{what}: {seen} of {calls} calls"))
    });
    let missing: u64 = missing.sum();
    assert!(missing <= told, "{missing} calls are missing: {lost:#}");
    println!("measured: {missing} calls missing, {told} told, of {}", truth.values().sum::<u64>());
}
