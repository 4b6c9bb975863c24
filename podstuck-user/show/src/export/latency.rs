//! Converts a series to a Prometheus histogram: few classic bounds, each of them exact, and native buckets.

use std::collections::BTreeMap;

use podstuck_common::bucket;
use podstuck_exposition::{Histogram, message::Bucket};

use super::rows::seconds;
use podstuck_model::series::Series;

/// Bounds are powers of two, in nanoseconds: 16 µs, 131 µs, 1 ms, 17 ms, 134 ms, 1 s, 137 s. Deletions of a healthy
/// node take less than the third; waits of kubelet and runtimes lie between the last two; a call that takes longer
/// than kubelet's longest back-off (122 s) hangs. Each bound is a line for each series of a node.
const BOUNDS_LOG2: [u32; 7] = [14, 17, 20, 24, 27, 30, 37];

/// Schema of native buckets: eight for each power of two, as many as the kernel's.
const SCHEMA: i32 = 3;
/// Number of a kernel's bucket, less the index of the native bucket for it. Each has one of its own. Their limits differ,
/// since the kernel's begin at powers of two nanoseconds and are equally wide; a test has by how much.
const ZEROTH: i32 = 167;
/// Maximum number of native buckets. Kubernetes' components have the same schema and maximum.
const MOST: usize = 160;

/// Cumulative counts, exact: every bound is the start of a bucket.
pub(super) fn latency(series: &Series) -> Histogram {
    let buckets = BOUNDS_LOG2.iter().map(|log2| {
        let bound = 1_u64 << log2;
        let below = series.buckets.range(..bucket::bucket_of(bound)).map(|(_, n)| n).sum();
        // Buckets end before the bound, those of Prometheus include it: hence the last nanosecond before.
        Bucket { count: below, bound: seconds(bound - 1) }
    });
    let (buckets, sum) = (buckets.collect(), seconds(series.total_ns));
    Histogram { count: series.calls, sum, buckets, ..Histogram::default() }
}

/// Adds native buckets.
pub(super) fn native(mut histogram: Histogram, series: &Series) -> Histogram {
    histogram.zero_threshold = seconds(bucket::highest(0));
    histogram.zero_count = series.buckets.get(&0).copied().unwrap_or_default();
    let (mut schema, mut counts) = (SCHEMA, BTreeMap::new());
    for (bucket, calls) in series.buckets.range(1..) {
        counts.insert(i32::from(*bucket) - ZEROTH, *calls);
    }
    while counts.len() > MOST {
        schema -= 1;
        let mut coarser = BTreeMap::new();
        for (index, calls) in counts {
            *coarser.entry((index + 1) >> 1).or_default() += calls;
        }
        counts = coarser;
    }
    histogram.set_native(schema, &counts);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn bounds_are_exact_to_the_nanosecond() {
        let series = sample::series(&[
            ((1 << 14) - 1, 1),
            (1 << 14, 10),
            ((1 << 20) - 1, 100),
            (1 << 37, 1_000),
        ]);
        let histogram = latency(&series);
        let found: Vec<(f64, u64)> = histogram.buckets.iter().map(|b| (b.bound, b.count)).collect();
        assert_eq!(found[..3], [(0.000_016_383, 1), (0.000_131_071, 11), (0.001_048_575, 111)]);
        assert_eq!(found[6], (137.438_953_471, 111));
        assert_eq!(histogram.count, 1_111);
    }

    #[test]
    fn bounds_ascend_and_each_begins_a_bucket() {
        assert!(BOUNDS_LOG2.is_sorted());
        for log2 in BOUNDS_LOG2 {
            assert_eq!(bucket::lower_bound(bucket::bucket_of(1 << log2)), 1 << log2);
        }
    }

    /// The limits of a native bucket in seconds.
    fn limits(schema: i32, index: i32) -> (f64, f64) {
        let end = |index: i32| (f64::from(index) / f64::from(1 << schema)).exp2();
        (end(index - 1), end(index))
    }

    /// The lowest and the highest place in the native bucket, as a share of a duration in the kernel's.
    fn errors(zeroth: i32) -> (f64, f64) {
        let of_bucket = |bucket| {
            let ends = [bucket::lower_bound(bucket), bucket::highest(bucket)].map(seconds);
            let (low, high) = limits(SCHEMA, i32::from(bucket) - zeroth);
            (low / ends[1], high / ends[0])
        };
        let all = (1..bucket::BUCKETS - 1).map(of_bucket);
        all.fold((1.0, 1.0), |(low, high), of| (of.0.min(low), of.1.max(high)))
    }

    #[test]
    fn no_native_bucket_is_nearer_and_the_error_is_the_documented_one() {
        let (low, high) = errors(ZEROTH);
        assert!(low > 0.878 && high < 1.108, "{low} {high}");
        let worst = |(low, high): (f64, f64)| high.max(1.0 / low);
        for other in [ZEROTH - 1, ZEROTH + 1] {
            assert!(worst(errors(other)) > worst((low, high)), "{other}");
        }
    }

    #[test]
    fn native_counts_are_exact_and_short_calls_are_zero() {
        let values = [(100, 5), (511, 6), (512, 7), (1_000_000, 8), (1 << 42, 9)];
        let series = sample::series(&values);
        let histogram = native(latency(&series), &series);
        assert_eq!((histogram.schema, histogram.zero_threshold), (3, 0.000_000_511));
        assert_eq!((histogram.count, histogram.zero_count), (35, 11));
        let counts = histogram.native();
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [7, 8, 9]);
        for ((index, _), value) in counts.iter().zip([512e-9, 1e-3, 4_398.0]) {
            let (low, high) = limits(3, *index);
            assert!(low * 0.9 < value && value < high * 1.1, "{value}: {low} to {high}");
        }
    }

    #[test]
    fn beyond_the_maximum_two_native_buckets_become_one() {
        let all: BTreeMap<u16, u64> = (0..bucket::BUCKETS).map(|bucket| (bucket, 2)).collect();
        let series = Series::of_buckets(&all);
        let histogram = native(latency(&series), &series);
        let counts = histogram.native();
        assert_eq!(histogram.schema, 2);
        assert!(counts.len() > MOST / 2 && counts.len() <= MOST, "{}", counts.len());
        assert_eq!(counts.values().sum::<u64>() + histogram.zero_count, histogram.count);
        let (low, high) = limits(2, *counts.keys().next().unwrap());
        assert!(low < 576e-9 && 512e-9 <= high, "{low} to {high}");
    }
}
