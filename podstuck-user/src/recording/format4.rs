//! What recordings of formats 2 to 4 say in another way: counts without the shortest and the longest call.

use serde::Deserialize;

use super::tally::{Known, Measured, Series, restore};
use crate::event::Count;

/// Counts since the last drain.
#[derive(Debug, Deserialize)]
pub(super) struct Tally {
    #[serde(default)]
    series: Vec<Series>,
    /// As today's, with three values a bucket: those of [`Measured::of_excess`].
    rows: Vec<Vec<i64>>,
}

impl Tally {
    /// As they are said today; `None` where a number is not known, or cannot be.
    pub(super) fn restore(self, known: &mut Known) -> Option<Vec<Count>> {
        restore(self.series, &self.rows, known, |[bucket, calls, excess]| {
            Measured::of_excess(bucket, calls, excess)
        })
    }
}
