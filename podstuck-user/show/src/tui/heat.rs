//! Counts of calls by time and latency, of one pod, volume or process, in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use podstuck_common::{bucket, count::CallTotals};

use podstuck_model::series::Series;

/// Seconds counted separately: ten minutes, of which the screen shows as many as it has columns.
const KEPT: usize = 600;
/// Seconds over which a rate is taken. Counts arrive about once a second.
const RATE_OVER: u64 = 5;
/// Buckets of a band: an octave.
const PER_BAND: u16 = 8;

/// The counts of one second.
#[derive(Clone, Debug, Default)]
struct Second {
    at: u64,
    deleted: u64,
    bands: BTreeMap<u16, u64>,
}

/// Counts of one pod, volume or process.
#[derive(Clone, Debug, Default)]
pub(super) struct Heat {
    /// All calls by latency.
    pub(super) series: Series,
    /// Successful deletions.
    pub(super) deleted: u64,
    /// Failures, without those that every healthy removal has (EISDIR, ENOENT).
    pub(super) failed: u64,
    seconds: VecDeque<Second>,
}

/// One kind of call in one second of the run.
pub(super) struct Counted {
    pub(super) second: u64,
    pub(super) bucket: u16,
    pub(super) totals: CallTotals,
    pub(super) is_deleted: bool,
    pub(super) is_failed: bool,
}

/// The band of a latency bucket.
pub(super) const fn band_of(bucket: u16) -> u16 {
    bucket.div_ceil(PER_BAND)
}

/// The shortest latency of a band, in nanoseconds.
pub(super) const fn band_from(band: u16) -> u64 {
    if band == 0 { 0 } else { bucket::lower_bound((band - 1) * PER_BAND + 1) }
}

impl Heat {
    pub(super) fn add(&mut self, counted: &Counted) {
        let calls = counted.totals.calls;
        let deleted = if counted.is_deleted { calls } else { 0 };
        self.series.add(counted.bucket, counted.totals);
        self.deleted += deleted;
        self.failed += if counted.is_failed { calls } else { 0 };
        let second = self.second(counted.second);
        second.deleted += deleted;
        *second.bands.entry(band_of(counted.bucket)).or_default() += calls;
    }

    /// Adds the counts of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.series.merge(&other.series);
        self.deleted += other.deleted;
        self.failed += other.failed;
        for theirs in &other.seconds {
            let mine = self.second(theirs.at);
            mine.deleted += theirs.deleted;
            for (band, calls) in &theirs.bands {
                *mine.bands.entry(*band).or_default() += calls;
            }
        }
    }

    /// The entry of a second, in time order.
    fn second(&mut self, at: u64) -> &mut Second {
        let place = self.seconds.partition_point(|second| second.at < at);
        // Counts that arrive later than that go to the oldest second.
        let is_too_late = place == 0 && self.seconds.len() >= KEPT;
        if !is_too_late && self.seconds.get(place).is_none_or(|second| second.at != at) {
            self.seconds.insert(place, Second { at, ..Second::default() });
            if self.seconds.len() > KEPT {
                self.seconds.pop_front();
                return &mut self.seconds[place - 1];
            }
        }
        &mut self.seconds[place]
    }

    /// Deletions per second over the last seconds.
    pub(super) fn rate(&self, now: u64) -> f64 {
        let over = RATE_OVER.min(now.max(1));
        let recent = self.seconds.iter().rev().take_while(|second| second.at + over > now);
        recent.map(|second| second.deleted).sum::<u64>() as f64 / over as f64
    }

    /// The latency that this share of the calls did not exceed, in nanoseconds, as in the exports.
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        (self.series.calls > 0).then(|| self.series.quantile(share))
    }

    /// Calls by band, over the whole run.
    pub(super) fn bands(&self) -> BTreeMap<u16, u64> {
        let mut bands = BTreeMap::new();
        for (bucket, calls) in &self.series.buckets {
            *bands.entry(band_of(*bucket)).or_default() += calls;
        }
        bands
    }

    /// Calls of one band in `columns` of `each` seconds; the last column ends now.
    pub(super) fn row(&self, band: u16, now: u64, columns: usize, each: u64) -> Vec<u64> {
        let mut row = vec![0; columns];
        for second in self.seconds.iter().rev() {
            let back = (now.saturating_sub(second.at) / each.max(1)) as usize;
            if back >= columns {
                break;
            }
            row[columns - 1 - back] += second.bands.get(&band).copied().unwrap_or(0);
        }
        row
    }

    /// The second of the run of the latest count.
    pub(super) fn last(&self) -> u64 {
        self.seconds.back().map_or(0, |second| second.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(second: u64, bucket: u16, calls: u64) -> Counted {
        let totals = CallTotals { calls, total_ns: calls * 1000, ..CallTotals::default() };
        Counted { second, bucket, totals, is_deleted: true, is_failed: false }
    }

    #[test]
    fn bands_are_octaves() {
        for ns in [1_u64, 512, 1023, 1024, 5_000, 1 << 20, 1 << 41] {
            let band = band_of(bucket::bucket_of(ns));
            assert!(band_from(band) <= ns && ns < band_from(band + 1).max(1 << 9), "{ns}: {band}");
        }
    }

    #[test]
    fn memory_is_bounded_and_nothing_that_counts_is_lost() {
        let mut heat = Heat::default();
        for second in 0..2 * KEPT as u64 {
            heat.add(&counted(second, 9, 2));
        }
        assert_eq!(heat.seconds.len(), KEPT);
        assert_eq!((heat.deleted, heat.series.calls), (4 * KEPT as u64, 4 * KEPT as u64));
        assert!((heat.rate(heat.last()) - 2.0).abs() < 1e-9);
        // Late counts, and counts that are too late.
        heat.add(&counted(0, 9, 1));
        heat.add(&counted(heat.last() - 3, 9, 1));
        assert_eq!(heat.seconds.len(), KEPT);
        assert_eq!(heat.row(band_of(9), heat.last(), 5, 1), [2, 3, 2, 2, 2]);
    }

    #[test]
    fn quantiles_are_those_of_the_counts() {
        let mut heat = Heat::default();
        heat.add(&counted(0, bucket::bucket_of(1_000), 99));
        heat.add(&counted(0, bucket::bucket_of(1_000_000), 1));
        let about = |ns| Some(bucket::highest(bucket::bucket_of(ns)));
        assert_eq!(heat.quantile(0.5), about(1_000));
        assert_eq!(heat.quantile(0.99), about(1_000));
        assert_eq!(heat.quantile(1.0), about(1_000_000));
        assert_eq!(Heat::default().quantile(0.99), None);
    }

    #[test]
    fn a_merge_equals_a_joint_count() {
        let (mut one, mut other, mut both) = (Heat::default(), Heat::default(), Heat::default());
        for (is_one, second) in [(true, 3), (false, 1), (false, 3), (true, 9)] {
            let heat = if is_one { &mut one } else { &mut other };
            heat.add(&counted(second, 20, second));
            both.add(&counted(second, 20, second));
        }
        one.merge(&other);
        assert_eq!(one.series, both.series);
        assert_eq!(one.row(band_of(20), 9, 9, 1), both.row(band_of(20), 9, 9, 1));
    }
}
