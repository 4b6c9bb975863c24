//! A series as a Prometheus histogram with few bounds, each of them exact.

use podstuck_common::bucket;
use prometheus::proto::{Bucket, Histogram};

use super::rows::seconds;
use crate::model::series::Series;

/// Bounds are powers of four: 2^10 ns (1 µs) to 2^42 ns (73 minutes), seventeen in all.
const BOUNDS_LOG2: std::ops::RangeInclusive<u32> = 10..=42;
const BOUNDS_STEP: usize = 2;

/// Cumulative counts, exact: every bound is where one of our buckets begins.
pub(super) fn latency(series: &Series) -> Histogram {
    let buckets = BOUNDS_LOG2
        .step_by(BOUNDS_STEP)
        .map(|log2| {
            let bound = 1_u64 << log2;
            let below = series.buckets.range(..bucket::bucket_of(bound)).map(|(_, n)| n).sum();
            let mut bucket = Bucket::default();
            bucket.set_cumulative_count(below);
            // Ours end before the bound, Prometheus' include it: hence the last nanosecond before.
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
        let series = sample::series(&[(1_023, 1), (1_024, 10), (4_095, 100), (1 << 42, 1_000)]);
        let histogram = latency(&series);
        let found: Vec<(f64, u64)> = histogram
            .get_bucket()
            .iter()
            .map(|b| (b.upper_bound(), b.cumulative_count()))
            .collect();
        assert_eq!(found.len(), 17);
        assert_eq!(found[..3], [(0.000_001_023, 1), (0.000_004_095, 111), (0.000_016_383, 111)]);
        assert_eq!(found[16], (4_398.046_511_103, 111));
        assert_eq!(histogram.get_sample_count(), 1_111);
    }

    #[test]
    fn every_bound_begins_a_bucket() {
        for log2 in BOUNDS_LOG2 {
            assert_eq!(bucket::lower_bound(bucket::bucket_of(1 << log2)), 1 << log2);
        }
    }
}
