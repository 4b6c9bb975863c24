//! The series in the order and under the names that all three formats share.

use std::{collections::BTreeMap, time::Duration};

use crate::model::{
    path::safe,
    series::{Series, SeriesKey, SeriesTable, Span},
};

/// How a series is named in files: nothing in it can act on a terminal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) syscall: &'static str,
    pub(super) outcome: String,
    pub(super) pod: String,
    pub(super) volume: String,
    pub(super) component: &'static str,
    /// Whether it counts calls, and not phases around one.
    pub(super) is_call: bool,
}

impl Labels {
    fn of(key: &SeriesKey) -> Self {
        Self {
            syscall: key.span.name(),
            outcome: key.outcome.name(),
            pod: safe(key.pod.as_bytes()).into_owned(),
            volume: safe(key.volume.as_bytes()).into_owned(),
            component: key.component.name(),
            is_call: matches!(key.span, Span::Call(_)),
        }
    }
}

/// Series by name, sorted. Two whose names become the same by escaping are added up, because
/// Prometheus refuses a whole file in which a series stands twice.
pub(super) fn rows(series: &SeriesTable) -> BTreeMap<Labels, Series> {
    let mut rows: BTreeMap<Labels, Series> = BTreeMap::new();
    for (key, one) in series {
        let row = rows.entry(Labels::of(key)).or_default();
        for (bucket, calls) in &one.buckets {
            *row.buckets.entry(*bucket).or_default() += calls;
        }
        row.calls += one.calls;
        row.total_ns += one.total_ns;
    }
    rows
}

/// Nanoseconds as the seconds that Prometheus wants.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / Duration::from_secs(1).as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::sample,
        model::{call::Call, call::Outcome},
    };

    #[test]
    fn names_that_collide_after_escaping_are_added_up() {
        let mut table = SeriesTable::new();
        for volume in ["a\u{1b}", "a\\x1b"] {
            let key = sample::key(Call::Unlink, Outcome::OK, "u", volume);
            table.insert(key, sample::series(&[(5_000, 2)]));
        }
        let rows = rows(&table);
        let (labels, series) = rows.first_key_value().unwrap();
        assert_eq!((rows.len(), labels.volume.as_str()), (1, "a\\x1b"));
        assert_eq!((series.calls, series.total_ns), (4, 20_000));
        assert_eq!(series.buckets.values().sum::<u64>(), 4);
    }
}
