//! A run's time in a few parts, each long enough that what happens in one says little of the next.

use crate::export::intervals::{self, Buckets, Intervals, Kind};

/// How many. With eight of each run there are 12,870 ways to deal them out, so that chance of one in 6,000 can be
/// told from none; more would be shorter, and so depend on each other.
pub(super) const BATCHES: usize = 8;

/// Calls of one part of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// Those that are looked at, by latency.
    pub(super) buckets: Buckets,
    /// All that they are a part of.
    pub(super) of: u64,
}

impl Batch {
    /// How many are looked at.
    pub(super) fn calls(&self) -> u64 {
        self.buckets.values().sum()
    }
}

/// Cuts a run into batches of the intervals in which there are calls of a group; what is looked at is a part of the
/// group. `None` where there are fewer intervals than batches; then their number is told.
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
