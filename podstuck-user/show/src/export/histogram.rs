//! Converts a series to an HdrHistogram.

use hdrhistogram::{CreationError, Histogram};

use podstuck_model::series::Series;

/// Three digits: each bucket of a series ends where one of the histogram's does. So the quantile that readers report,
/// the highest equivalent value, is that end.
const SIGNIFICANT_DIGITS: u8 = 3;
/// The longest call that is recorded exactly, in nanoseconds: thirteen days.
const LONGEST: u64 = 1 << 50;

/// An empty histogram, to be reused for each series: it is large.
pub fn empty() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, LONGEST, SIGNIFICANT_DIGITS)
}

/// Replaces the content by all calls of a series.
pub fn fill(histogram: &mut Histogram<u64>, series: &Series) {
    histogram.reset();
    for (ns, calls) in series.values() {
        histogram.saturating_record_n(ns, calls);
    }
}

#[cfg(test)]
mod tests {
    use podstuck_common::{bucket, count::CallTotals};

    use super::*;

    #[test]
    fn every_bucket_is_read_back_as_we_tell_it() {
        let mut histogram = empty().unwrap();
        for bucket in 0..bucket::BUCKETS - 1 {
            let highest = bucket::highest(bucket);
            let mut series = Series::default();
            series.add(bucket, CallTotals { calls: 7, ..CallTotals::default() });
            fill(&mut histogram, &series);
            assert_eq!(histogram.len(), 7);
            let read = histogram.value_at_quantile(0.5);
            assert_eq!((read, read), (highest, series.quantile(0.5)), "bucket {bucket}");
        }
    }

    #[test]
    fn the_shortest_and_the_longest_are_where_they_are() {
        let mut histogram = empty().unwrap();
        let mut series = Series::default();
        for ns in [700, 800, 5_000_000, 7_000_000_000_000] {
            series.add(bucket::bucket_of(ns), CallTotals::of_equal(3, ns));
        }
        fill(&mut histogram, &series);
        assert_eq!(histogram.len(), 12);
        let near = |read: u64, ns: u64| read.abs_diff(ns) * 1_000 <= ns;
        assert!(near(histogram.min(), 700) && near(histogram.max(), 7_000_000_000_000));
    }

    #[test]
    fn quantiles_are_where_readers_find_them() {
        let mut histogram = empty().unwrap();
        for calls in 1..300_u64 {
            let mut series = Series::default();
            for (bucket, calls) in [(3, calls), (9, calls % 7), (40, calls % 3), (200, 1)] {
                if calls > 0 {
                    series.add(bucket, CallTotals { calls, ..CallTotals::default() });
                }
            }
            fill(&mut histogram, &series);
            for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
                assert_eq!(histogram.value_at_quantile(share), series.quantile(share), "{calls}");
            }
        }
    }
}
