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

/// Of the calls that an emulated machine makes, how many the kernel may keep from the probes, in percent. It does
/// so where it preempts what runs a program on a tracepoint, as Linux does since it preempts lazily (6.13,
/// and by default since 7.0): with two writers 4.0 % were measured, with one processor for both of them. With
/// `PREEMPT_RT` it always has: 0.6 % were measured on 6.12, and 0.2 % on 6.1, which counts none of them.
fn accepted_percent(release: &str) -> u64 {
    let newer = podstuck_confine::facts::version(release) >= Some((6, 13));
    if newer || release.contains("-rt-") { 10 } else { 0 }
}

/// Whether such a kernel keeps calls from the probes and counts none of them, which the summary says.
fn is_not_measured(release: &str, lost: &Value) -> bool {
    accepted_percent(release) > 0 && lost["probes_skipped"].is_null()
}

/// Asserts that the counts are exact. Where the kernel itself ran no probes now
/// and then, that the missing calls were reported, and are few.
pub fn assert_counted(summary: &Value, tallies: &[&Value]) {
    let missing = missing(summary, tallies);
    let all: u64 = add_up(tallies).values().sum();
    let accepted = all * accepted_percent(&podstuck_confine::facts::release()) / 100;
    let lost = &summary["completeness"];
    assert!(missing <= accepted, "{missing} calls of {all} are missing: {lost:#}");
}

/// How many calls were not counted. All of them were reported; outside emulated machines there are none.
pub fn missing(summary: &Value, tallies: &[&Value]) -> u64 {
    let (counted, truth) = (add_up(&[&summary["by_outcome"]]), add_up(tallies));
    let lost = &summary["completeness"];
    let reported = |name| lost[name].as_u64().unwrap_or(0);
    // A return that was not seen is reported by the kernel, where it counts, and by what was entered.
    let reported =
        reported("probes_skipped").max(reported("outcome_unknown")) + reported("unmatched_exits");
    let not_measured = is_not_measured(&podstuck_confine::facts::release(), lost);
    if slowdown() == 1 || reported == 0 && !not_measured {
        assert_eq!(counted, truth, "{lost:#}");
        return 0;
    }
    let missing = truth.iter().map(|(what, calls)| {
        let seen = counted.get(what).copied().unwrap_or(0);
        calls.checked_sub(seen).unwrap_or_else(|| panic!("{what}: {seen} of {calls} calls"))
    });
    let (missing, all): (u64, u64) = (missing.sum(), truth.values().sum());
    println!("measured: {missing} calls missing, {reported} reported, of {all}");
    assert!(missing <= reported || not_measured, "{missing} calls are missing: {lost:#}");
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_kernel_may_keep_from_the_probes_depends_on_it() {
        assert_eq!(
            ["5.10.0-30", "6.12.3", "6.12.3-rt-amd64", "7.2.1"].map(accepted_percent),
            [0, 0, 10, 10]
        );
    }

    #[test]
    fn only_what_a_kernel_cannot_count_need_not_be_reported() {
        let of = |skipped: Value| json!({"probes_skipped": skipped});
        assert!(is_not_measured("6.1.0-50-rt-amd64", &of(Value::Null)));
        assert!(!is_not_measured("6.12.3-rt-amd64", &of(json!(0))));
        assert!(!is_not_measured("6.1.0-50-cloud-amd64", &of(Value::Null)));
    }

    #[test]
    #[should_panic(expected = "left")]
    fn missing_calls_that_are_not_reported_fail() {
        let summary = json!({"by_outcome": {"rmdir": {"ok": 9}}, "completeness": {}});
        assert_counted(&summary, &[&json!({"rmdir": {"ok": 10}})]);
    }
}
