//! Counts, written short: each series is described once, and then goes by its number.

use podstuck_common::{bucket::lower_bound, count::CallTotals};
use serde::{Deserialize, Serialize};

use super::numbered::Numbered;
use crate::{
    event::Count,
    model::{
        call::{Call, Outcome},
        identity::Component,
    },
};

/// Series that are remembered.
const REMEMBERED: usize = 16 << 10;

/// Series that were written before.
#[derive(Debug)]
pub(super) struct Known(Numbered<Series>);

impl Default for Known {
    fn default() -> Self {
        Self(Numbered::new(REMEMBERED))
    }
}

/// What is counted together, but for the latency: target, process, the part it plays, call, errno, and the start of
/// the process, which older recordings do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Series(u64, u32, Component, Call, Outcome, #[serde(default)] Option<u64>);

/// Counts since the last drain.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Series that appear for the first time. One that has no number in `rows` has the next of these.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    series: Vec<Series>,
    /// For each series its number, or -1 for the next new one; then, five values a bucket: bucket, calls,
    /// the nanoseconds by which they took longer together than the shortest of the bucket would, those of the
    /// shortest call, and by how much the longest took longer.
    rows: Vec<Vec<i64>>,
}

/// More calls, and more nanoseconds, than there can be between two looks at the tables: two weeks of a call that hangs are
/// 2^50. What claims more is damaged, or was made so that sums overflow.
const CALLS: u64 = 1 << 40;
const NANOSECONDS: u64 = 1 << 60;

/// Whether a kernel can have counted this.
pub(super) fn can_be(totals: &CallTotals) -> bool {
    totals.calls <= CALLS && totals.total_ns <= NANOSECONDS
}

/// Calls of one bucket.
pub(super) struct Measured {
    bucket: u16,
    totals: CallTotals,
}

impl Measured {
    /// From bucket, calls and excess.
    pub(super) fn of_excess(bucket: i64, calls: i64, excess: i64) -> Option<Self> {
        let (bucket, calls) = (u16::try_from(bucket).ok()?, calls.cast_unsigned());
        let least = lower_bound(bucket).wrapping_mul(calls);
        let total_ns = least.wrapping_add(excess.cast_unsigned());
        Some(Self { bucket, totals: CallTotals { calls, total_ns, min_ns: 0, max_ns: 0 } })
    }

    fn with_range(mut self, least: i64, range: i64) -> Self {
        self.totals.min_ns = least.cast_unsigned();
        self.totals.max_ns = self.totals.min_ns.wrapping_add(range.cast_unsigned());
        self
    }
}

impl Tally {
    /// `counts` in the order of their series.
    pub(super) fn new(counts: &[Count], known: &mut Known) -> Self {
        let of = |c: &Count| Series(c.target_id, c.pid, c.component, c.call, c.outcome, c.started);
        let mut tally = Self { series: Vec::new(), rows: Vec::new() };
        for group in counts.chunk_by(|a, b| of(a) == of(b)) {
            let series = of(&group[0]);
            let mut row = vec![match known.0.number(series) {
                Some(number) => i64::from(number),
                None => {
                    tally.series.push(series);
                    -1
                }
            }];
            for count in group {
                let Count { bucket, calls, total_ns, min_ns, max_ns, .. } = *count;
                let excess = total_ns.wrapping_sub(lower_bound(bucket).wrapping_mul(calls));
                let of_all = [i64::from(bucket), calls.cast_signed(), excess.cast_signed()];
                let range = max_ns.wrapping_sub(min_ns);
                row.extend(of_all.into_iter().chain([min_ns.cast_signed(), range.cast_signed()]));
            }
            tally.rows.push(row);
        }
        tally
    }

    /// The counts again; `None` where a number is not known, or cannot be.
    pub(super) fn restore(self, known: &mut Known) -> Option<Vec<Count>> {
        restore(self.series, &self.rows, known, |[bucket, calls, excess, least, range]| {
            Some(Measured::of_excess(bucket, calls, excess)?.with_range(least, range))
        })
    }
}

/// Rows of any format, with so many values a bucket.
pub(super) fn restore<const N: usize>(
    new: Vec<Series>,
    rows: &[Vec<i64>],
    known: &mut Known,
    measured: impl Fn([i64; N]) -> Option<Measured>,
) -> Option<Vec<Count>> {
    let mut new = new.into_iter();
    let mut counts = Vec::new();
    for row in rows {
        let (number, buckets) = row.split_first()?;
        let Series(target_id, pid, component, call, outcome, started) = match u32::try_from(*number)
        {
            Ok(number) => *known.0.get(number)?,
            Err(_) => {
                let series = new.next()?;
                known.0.push(series);
                series
            }
        };
        let (buckets, rest) = buckets.as_chunks::<N>();
        if !rest.is_empty() {
            return None;
        }
        for values in buckets {
            let Measured { bucket, totals } = measured(*values)?;
            if !can_be(&totals) {
                return None;
            }
            let CallTotals { calls, total_ns, min_ns, max_ns } = totals;
            counts.push(Count {
                target_id,
                pid,
                started,
                call,
                outcome,
                component,
                bucket,
                calls,
                total_ns,
                min_ns,
                max_ns,
            });
        }
    }
    Some(counts)
}
