//! Compares medians and 99th percentiles of each kind of call, and the share of a group that fails.

use std::collections::BTreeSet;

use podstuck_common::bucket;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    batches::{BATCHES, Batch, batches},
    stats::{LEVEL, adjusted, chance},
};
use crate::export::intervals::{self, Buckets, Intervals, Kind};

/// Outcomes that show the state of a tree, and no failure: Go tries each directory as a file, a removal meets objects
/// that are gone or not empty yet; a loop of unmounts ends with EINVAL.
const USUAL: [&str; 5] = ["ok", "EISDIR", "ENOENT", "ENOTEMPTY", "EINVAL"];
/// Calls that each batch needs for a median, and for a 99th percentile; with fewer, none is computed.
const FOR_MEDIAN: u64 = 5;
const FOR_P99: u64 = 300;
/// The smallest change that is reported, as a ratio. Two equal runs on the same machine differ by as much.
const SMALLEST: f64 = 1.2;
const SMALLEST_P99: f64 = 1.5;
const SMALLEST_FAILURES: f64 = 1.5;

/// The measure of a series that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Half of the calls take less time.
    Median,
    /// 99 of 100 calls take less time.
    P99,
    /// The share of calls that fail in this way.
    Failures,
}

/// A series that changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The measure.
    pub measure: Measure,
    /// Whether it is slower, or fails more.
    pub worse: bool,
    /// The call.
    pub syscall: String,
    /// Its outcome.
    pub outcome: String,
    /// Plugin of the volume.
    pub plugin: String,
    /// The caller's component.
    pub component: String,
    /// Nanoseconds, or a share of all calls.
    pub before: f64,
    /// The same in the second run.
    pub after: f64,
    /// The probability of this difference between equal runs, over all series compared.
    pub p: f64,
}

/// A series that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TooFew {
    /// The call.
    pub syscall: String,
    /// Its outcome.
    pub outcome: String,
    /// Plugin of the volume.
    pub plugin: String,
    /// The caller's component.
    pub component: String,
    /// What there is too little of.
    pub why: String,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// The most certain first.
    pub changes: Vec<Change>,
    /// Number of measures compared.
    pub compared: usize,
    /// Series that could not be compared.
    pub too_few: Vec<TooFew>,
}

/// A measure before the correction for all of them.
struct Candidate {
    change: Change,
    chance: f64,
}

/// Compares two runs.
pub fn compare(before: &Intervals, after: &Intervals) -> Comparison {
    let (mut candidates, mut too_few) = (Vec::new(), Vec::new());
    let kinds = |run: &Intervals| run.kinds().into_keys();
    let all: BTreeSet<Kind> = kinds(before).chain(kinds(after)).collect();
    for kind in &all {
        let is = |other: &Kind| other == kind;
        match pair(before, after, is, is, FOR_MEDIAN) {
            Ok([first, second]) => {
                let longest =
                    [before, after].map(|run| run.longest().get(kind).copied().unwrap_or(u64::MAX));
                candidates.extend(latencies(kind, [&first, &second], longest));
            }
            Err(why) => too_few.push(TooFew {
                syscall: kind.syscall.clone(),
                outcome: kind.outcome.clone(),
                plugin: kind.plugin.clone(),
                component: kind.component.clone(),
                why,
            }),
        }
        if !USUAL.contains(&kind.outcome.as_str()) {
            let group = |other: &Kind| {
                (&other.syscall, &other.plugin, &other.component)
                    == (&kind.syscall, &kind.plugin, &kind.component)
            };
            if let Ok([first, second]) = pair(before, after, group, is, 0) {
                candidates.push(failures(kind, &first, &second));
            }
        }
    }
    let chances: Vec<f64> = candidates.iter().map(|candidate| candidate.chance).collect();
    let compared = candidates.len();
    let significant = candidates.into_iter().zip(adjusted(&chances)).filter(|(_, p)| *p <= LEVEL);
    let mut changes: Vec<Change> = significant.map(|(it, p)| Change { p, ..it.change }).collect();
    changes.sort_by(|a, b| {
        (b.worse, a.p).partial_cmp(&(a.worse, b.p)).unwrap_or(std::cmp::Ordering::Equal)
    });
    Comparison { changes, compared, too_few }
}

/// Both runs' batches, or what there is too little of in one of them.
fn pair(
    before: &Intervals,
    after: &Intervals,
    group: impl Fn(&Kind) -> bool,
    of_interest: impl Fn(&Kind) -> bool,
    least: u64,
) -> Result<[[Batch; BATCHES]; 2], String> {
    let of = |run, which| {
        let cut = batches(run, &group, &of_interest).map_err(|intervals| match intervals {
            0 => format!("none in the {which} run"),
            n => format!("calls in {n} intervals of the {which} run, {BATCHES} are needed"),
        })?;
        match cut.iter().map(Batch::calls).min() {
            Some(fewest) if fewest < least => Err(format!(
                "a part of the {which} run has {fewest} calls, {least} are needed in each eighth"
            )),
            _ => Ok(cut),
        }
    };
    Ok([of(before, "first")?, of(after, "second")?])
}

fn latencies(
    kind: &Kind,
    [before, after]: [&[Batch; BATCHES]; 2],
    longest: [u64; 2],
) -> Vec<Candidate> {
    let fewest = before.iter().chain(after).map(Batch::calls).min().unwrap_or(0);
    let measures =
        [(Measure::Median, 0.5, FOR_MEDIAN, SMALLEST), (Measure::P99, 0.99, FOR_P99, SMALLEST_P99)];
    let fit = measures.into_iter().filter(|(_, _, least, _)| fewest >= *least);
    fit.map(|(measure, share, _, smallest)| {
        let logs =
            |run: &[Batch; BATCHES]| std::array::from_fn(|at| within(&run[at].buckets, share).ln());
        let chance = || chance(&logs(before), &logs(after), f64::ln(smallest));
        // No call took longer than the longest one, which is exact.
        let whole = |run: &[Batch; BATCHES], longest: u64| {
            let mut all = Buckets::new();
            run.iter().for_each(|batch| intervals::add(&mut all, &batch.buckets));
            at_share(&all, share).min(longest as f64)
        };
        let [before, after] =
            [(before, longest[0]), (after, longest[1])].map(|(run, longest)| whole(run, longest));
        candidate(kind, measure, before, after, smallest, chance)
    })
    .collect()
}

fn failures(kind: &Kind, before: &[Batch; BATCHES], after: &[Batch; BATCHES]) -> Candidate {
    // Continuity correction: zero of many is less than zero of few, and half a call less than one.
    let logs = |run: &[Batch; BATCHES]| {
        std::array::from_fn(|at| ((run[at].calls() as f64 + 0.5) / (run[at].of as f64 + 1.0)).ln())
    };
    let chance = || chance(&logs(before), &logs(after), SMALLEST_FAILURES.ln());
    let whole = |run: &[Batch; BATCHES]| {
        let of: u64 = run.iter().map(|batch| batch.of).sum();
        run.iter().map(Batch::calls).sum::<u64>() as f64 / of.max(1) as f64
    };
    let (before, after) = (whole(before), whole(after));
    candidate(kind, Measure::Failures, before, after, SMALLEST_FAILURES, chance)
}

/// A candidate: the runs as a whole must differ as their batches do.
fn candidate(
    kind: &Kind,
    measure: Measure,
    before: f64,
    after: f64,
    smallest: f64,
    chance: impl Fn() -> f64,
) -> Candidate {
    let (least, most) = (before.min(after), before.max(after));
    let chance = if most >= smallest * least && most > 0.0 { chance() } else { 1.0 };
    let change = Change {
        measure,
        worse: after > before,
        syscall: kind.syscall.clone(),
        outcome: kind.outcome.clone(),
        plugin: kind.plugin.clone(),
        component: kind.component.clone(),
        before,
        after,
        p: 1.0,
    };
    Candidate { change, chance }
}

/// The bucket that contains a quantile; then the rank of the quantile within the bucket, and the bucket's number of
/// calls.
fn reached(buckets: &Buckets, share: f64) -> Option<(u16, u64, u64)> {
    let calls: u64 = buckets.values().sum();
    let mut left = (share * calls as f64).ceil() as u64;
    for (bucket, calls) in buckets {
        if left <= *calls {
            return Some((*bucket, left, *calls));
        }
        left -= calls;
    }
    None
}

/// The latency that a share of the calls does not exceed, in nanoseconds, as in all outputs; 0 without calls.
fn at_share(buckets: &Buckets, share: f64) -> f64 {
    reached(buckets, share).map_or(0.0, |(bucket, ..)| bucket::highest(bucket) as f64)
}

/// The quantile within the bucket, as if its calls were evenly spread, so that a step of one bucket is no jump. Calls
/// of the first bucket are only known to be short: each counts as the bucket's longest.
fn within(buckets: &Buckets, share: f64) -> f64 {
    let Some((bucket, taken, of)) = reached(buckets, share) else { return 1.0 };
    let (low, high) = (bucket::lower_bound(bucket) as f64, bucket::lower_bound(bucket + 1) as f64);
    if bucket == 0 { high } else { low + (high - low) * taken as f64 / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_one_bucket_is_no_jump() {
        let all = Buckets::from([(0, 10), (1, 10), (9, 20)]);
        assert_eq!([0.1, 0.25].map(|share| within(&all, share)), [512.0, 512.0]);
        assert_eq!([0.3, 0.5].map(|share| within(&all, share)), [524.8, 576.0]);
        assert_eq!([0.25, 0.5, 1.0].map(|share| at_share(&all, share)), [511.0, 575.0, 1151.0]);
        assert_eq!((within(&Buckets::new(), 0.5), at_share(&Buckets::new(), 0.5)), (1.0, 0.0));
    }
}
