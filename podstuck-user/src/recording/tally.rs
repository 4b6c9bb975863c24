//! Counts, written short: each series is described once, and then goes by its number.

use podstuck_common::bucket::lower_bound;
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

/// What is counted together, but for the latency: target, process, the part it plays, call and errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Series(u64, u32, Component, Call, Outcome);

/// Counts since the last drain.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Series that appear for the first time. One that has no number in `rows` has the next of these.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    series: Vec<Series>,
    /// For each series its number, or -1 for the next new one; then, three values a bucket: bucket, calls,
    /// and the nanoseconds by which they took longer together than the shortest of the bucket would.
    rows: Vec<Vec<i64>>,
}

impl Tally {
    /// `counts` in the order of their series.
    pub(super) fn new(counts: &[Count], known: &mut Known) -> Self {
        let of = |c: &Count| Series(c.target_id, c.pid, c.component, c.call, c.outcome);
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
                let Count { bucket, calls, total_ns, .. } = *count;
                let excess = total_ns.wrapping_sub(lower_bound(bucket).wrapping_mul(calls));
                row.extend([i64::from(bucket), calls.cast_signed(), excess.cast_signed()]);
            }
            tally.rows.push(row);
        }
        tally
    }

    /// The counts again; `None` where a number is not known.
    pub(super) fn restore(self, known: &mut Known) -> Option<Vec<Count>> {
        let mut new = self.series.into_iter();
        let mut counts = Vec::new();
        for row in self.rows {
            let (number, buckets) = row.split_first()?;
            let Series(target_id, pid, component, call, outcome) = match u32::try_from(*number) {
                Ok(number) => *known.0.get(number)?,
                Err(_) => {
                    let series = new.next()?;
                    known.0.push(series);
                    series
                }
            };
            let (buckets, rest) = buckets.as_chunks::<3>();
            if !rest.is_empty() {
                return None;
            }
            for [bucket, calls, excess] in buckets {
                let bucket = u16::try_from(*bucket).ok()?;
                let calls = calls.cast_unsigned();
                let least = lower_bound(bucket).wrapping_mul(calls);
                let total_ns = least.wrapping_add(excess.cast_unsigned());
                counts.push(Count {
                    target_id,
                    pid,
                    call,
                    outcome,
                    component,
                    bucket,
                    calls,
                    total_ns,
                });
            }
        }
        Some(counts)
    }
}
