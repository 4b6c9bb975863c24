//! What recordings of format 1 say in another way: counts by target and process.

use serde::Deserialize;

use super::tally::can_be;
use crate::{
    event::Count,
    model::{
        call::{Call, Outcome},
        identity::Component,
    },
};

/// [`Count`]s of one process on one target: call, errno, bucket, calls and nanoseconds of each.
#[derive(Debug, Deserialize)]
pub(super) struct Counts {
    #[serde(rename = "t")]
    target_id: u64,
    #[serde(rename = "p")]
    pid: u32,
    #[serde(rename = "w")]
    component: Component,
    #[serde(rename = "r")]
    rows: Vec<(u8, u16, u16, u64, u64)>,
}

/// As they are said today; `None` for a call that there is not, or a number that cannot be.
pub(super) fn counts(groups: Vec<Counts>) -> Option<Vec<Count>> {
    let counts = groups.into_iter().flat_map(|group| {
        let Counts { target_id, pid, component, rows } = group;
        rows.into_iter().map(move |(call, errno, bucket, calls, total_ns)| {
            let (call, outcome) = (Call::from_code(call)?, Outcome(errno));
            let started = None;
            Some(Count {
                target_id,
                pid,
                started,
                call,
                outcome,
                component,
                bucket,
                calls,
                total_ns,
                min_ns: 0,
                max_ns: 0,
            })
        })
    });
    counts.map(|count| count.filter(|it| can_be(&it.totals()))).collect()
}
