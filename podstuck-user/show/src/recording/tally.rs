//! Counts in a compact form: each series is described once, and then referred to by its number.

use podstuck_common::{bucket::lower_bound, count::CallTotals};
use serde::{Deserialize, Serialize};

use super::numbered::Numbered;
use podstuck_model::{
    call::{Call, Outcome},
    event::Count,
    identity::Component,
};

/// Limit of series remembered.
const REMEMBERED: usize = 16 << 10;

/// Series that were written before.
#[derive(Debug)]
pub(super) struct Known(Numbered<Series>);

impl Default for Known {
    fn default() -> Self {
        Self(Numbered::new(REMEMBERED))
    }
}

/// A series, without latency: target, process, its component, call, errno, and the start of the process where it is
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Series(u64, u32, Component, Call, Outcome, Option<u64>);

/// Counts since the last drain.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// New series. A row without a number refers to the next of these.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    series: Vec<Series>,
    /// For each series its number, or -1 for the next new one; then five values per bucket: bucket, calls, the total
    /// nanoseconds beyond those of as many shortest calls of the bucket, the shortest call, and the difference of the
    /// longest to it.
    rows: Vec<Vec<i64>>,
}

/// Upper limits of calls and nanoseconds between two drains: two weeks of a hung call are 2^50. Larger values are
/// damage, or crafted to make sums overflow.
const CALLS: u64 = 1 << 40;
const NANOSECONDS: u64 = 1 << 60;

impl Tally {
    /// Encodes `counts` in the order of their series.
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

    /// Decodes the counts; `None` when a number is unknown or impossible.
    pub(super) fn restore(self, known: &mut Known) -> Option<Vec<Count>> {
        let mut new = self.series.into_iter();
        let mut counts = Vec::new();
        for row in self.rows {
            let (number, buckets) = row.split_first()?;
            let Series(target_id, pid, component, call, outcome, started) =
                match u32::try_from(*number) {
                    Ok(number) => *known.0.get(number)?,
                    Err(_) => {
                        let series = new.next()?;
                        known.0.push(series);
                        series
                    }
                };
            let (buckets, rest) = buckets.as_chunks();
            if !rest.is_empty() {
                return None;
            }
            for values in buckets {
                let (bucket, totals) = measured(*values)?;
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
}

/// Decodes five values of a row; `None` when a kernel cannot have counted this.
fn measured([bucket, calls, excess, least, range]: [i64; 5]) -> Option<(u16, CallTotals)> {
    let (bucket, calls) = (u16::try_from(bucket).ok()?, calls.cast_unsigned());
    let shortest = lower_bound(bucket).wrapping_mul(calls);
    let total_ns = shortest.wrapping_add(excess.cast_unsigned());
    let min_ns = least.cast_unsigned();
    let max_ns = min_ns.wrapping_add(range.cast_unsigned());
    let can_be = calls <= CALLS && total_ns <= NANOSECONDS;
    can_be.then_some((bucket, CallTotals { calls, total_ns, min_ns, max_ns }))
}
