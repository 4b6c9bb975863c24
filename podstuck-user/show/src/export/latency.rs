//! Converts a series to a Prometheus histogram with few bounds, each of them exact.

use podstuck_common::bucket;
use prometheus::proto::{Bucket, Histogram};

use super::rows::seconds;
use podstuck_model::series::Series;

/// Bounds are powers of two, in nanoseconds: 16 µs, 131 µs, 1 ms, 17 ms, 134 ms, 1 s, 137 s. Deletions of a healthy
/// node take less than the third; waits of kubelet and runtimes lie between the last two; a call that takes longer
/// than kubelet's longest back-off (122 s) hangs. Each bound is a line for each series of a node.
const BOUNDS_LOG2: [u32; 7] = [14, 17, 20, 24, 27, 30, 37];

/// Cumulative counts, exact: every bound is the start of a bucket.
pub(super) fn latency(series: &Series) -> Histogram {
    let buckets = BOUNDS_LOG2
        .iter()
        .map(|log2| {
            let bound = 1_u64 << log2;
            let below = series.buckets.range(..bucket::bucket_of(bound)).map(|(_, n)| n).sum();
            let mut bucket = Bucket::default();
            bucket.set_cumulative_count(below);
            // Buckets end before the bound, those of Prometheus include it: hence the last nanosecond before.
            bucket.set_upper_bound(seconds(bound - 1));
            bucket
        })
        .collect();
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(series.calls);
    histogram.set_sample_sum(seconds(series.total_ns));
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
        let found: Vec<(f64, u64)> = histogram
            .get_bucket()
            .iter()
            .map(|b| (b.upper_bound(), b.cumulative_count()))
            .collect();
        assert_eq!(found[..3], [(0.000_016_383, 1), (0.000_131_071, 11), (0.001_048_575, 111)]);
        assert_eq!(found[6], (137.438_953_471, 111));
        assert_eq!(histogram.get_sample_count(), 1_111);
    }

    #[test]
    fn bounds_ascend_and_each_begins_a_bucket() {
        assert!(BOUNDS_LOG2.is_sorted());
        for log2 in BOUNDS_LOG2 {
            assert_eq!(bucket::lower_bound(bucket::bucket_of(1 << log2)), 1 << log2);
        }
    }
}
