//! A series as an HdrHistogram.

use hdrhistogram::{CreationError, Histogram};
use podstuck_common::bucket;

use crate::model::series::Series;

/// Three digits: the middle of each of our buckets is the lower edge of one of the histogram's,
/// and what readers report for that (its upper edge) is less than 0.1 % above.
const SIGNIFICANT_DIGITS: u8 = 3;

/// All calls of a series, each at the middle of its bucket.
pub fn histogram(series: &Series) -> Result<Histogram<u64>, CreationError> {
    // The longest calls stand in the last bucket at its lower edge, which must be in range.
    let longest = bucket::lower_bound(bucket::BUCKETS) * 2;
    let mut histogram = Histogram::new_with_bounds(1, longest, SIGNIFICANT_DIGITS)?;
    for (ns, calls) in series.values() {
        histogram.saturating_record_n(ns, calls);
    }
    Ok(histogram)
}

/// The middle of the bucket in which a share (0 to 1) of the calls has ended.
pub fn quantile(histogram: &Histogram<u64>, share: f64) -> u64 {
    histogram.lowest_equivalent(histogram.value_at_quantile(share))
}

#[cfg(test)]
mod tests {
    use podstuck_common::record::CallTotals;

    use super::*;

    #[test]
    fn every_bucket_is_read_back_exactly_as_quantile_and_within_a_thousandth_as_reported() {
        for bucket in 0..bucket::BUCKETS {
            let middle = bucket::representative(bucket);
            let mut series = Series::default();
            series.add(bucket, CallTotals { calls: 7, total_ns: 7 * middle });
            let histogram = histogram(&series).unwrap();
            assert_eq!(histogram.len(), 7);
            assert_eq!(quantile(&histogram, 0.5), middle, "bucket {bucket}");
            let error = histogram.max().abs_diff(middle) as f64 / middle as f64;
            assert!(error < 0.001, "bucket {bucket}: {middle} is reported as {}", histogram.max());
        }
    }
}
