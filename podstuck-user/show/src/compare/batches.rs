//! Splits a run's time into a few parts, each long enough to be nearly independent of the next.

use crate::export::intervals::{self, Buckets, Intervals, Kind};

/// Number of batches. With eight of each run there are 12,870 ways to divide them, so that a probability of one in
/// 6,000 can be distinguished from zero; more would be shorter, and so depend on each other.
pub(super) const BATCHES: usize = 8;

/// Calls of one part of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// The calls of interest, by latency.
    pub(super) buckets: Buckets,
    /// Number of all calls of the group.
    pub(super) of: u64,
}

impl Batch {
    /// Number of calls of interest.
    pub(super) fn calls(&self) -> u64 {
        self.buckets.values().sum()
    }
}

/// Splits the intervals that have calls of a group into batches; the kinds of interest are a part of the group. `Err`
/// is the number of such intervals when they are fewer than [`BATCHES`].
pub(super) fn batches(
    run: &Intervals,
    group: impl Fn(&Kind) -> bool,
    of_interest: impl Fn(&Kind) -> bool,
) -> Result<[Batch; BATCHES], usize> {
    let mut all = Vec::new();
    for interval in run.iter() {
        let mut one = Batch::default();
        for (kind, buckets) in interval.iter().filter(|(kind, _)| group(kind)) {
            one.of += buckets.values().sum::<u64>();
            if of_interest(kind) {
                intervals::add(&mut one.buckets, buckets);
            }
        }
        if one.of > 0 {
            all.push(one);
        }
    }
    let intervals = all.len();
    if intervals < BATCHES {
        return Err(intervals);
    }
    let mut out: [Batch; BATCHES] = Default::default();
    for (place, one) in all.into_iter().enumerate() {
        let batch = &mut out[place * BATCHES / intervals];
        intervals::add(&mut batch.buckets, &one.buckets);
        batch.of += one.of;
    }
    Ok(out)
}
