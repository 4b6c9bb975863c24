//! The series in the order and with the names that all three formats share.

use std::{collections::BTreeMap, time::Duration};

use podstuck_model::{
    path::safe,
    series::{NamesTable, Series, SeriesKey, SeriesTable, Span, TargetNames},
};

/// The labels of a series in files: escaped, so that nothing in them can act on a terminal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) syscall: &'static str,
    pub(super) outcome: String,
    pub(super) pod: String,
    pub(super) volume: String,
    pub(super) component: &'static str,
    pub(super) container: String,
    pub(super) names: TargetNames,
    /// Whether it counts calls, rather than phases around one.
    pub(super) is_call: bool,
}

impl Labels {
    fn of(key: &SeriesKey, names: &NamesTable) -> Self {
        let shown = |name: &str| safe(name.as_bytes()).into_owned();
        let names = names.get(&key.target());
        let names = names.map(|names| TargetNames {
            namespace: shown(&names.namespace),
            pod_name: shown(&names.pod_name),
            plugin: shown(&names.plugin),
        });
        Self {
            names: names.unwrap_or_default(),
            syscall: key.span.name(),
            outcome: key.outcome.name(),
            pod: shown(&key.pod),
            volume: shown(&key.volume),
            container: shown(&key.container),
            component: key.component.name(),
            is_call: matches!(key.span, Span::Call(_)),
        }
    }
}

/// Series by name, sorted. Two whose names become equal by escaping are summed, because Prometheus refuses a whole
/// file with a duplicate series.
pub(super) fn rows(series: &SeriesTable, names: &NamesTable) -> BTreeMap<Labels, Series> {
    let mut rows: BTreeMap<Labels, Series> = BTreeMap::new();
    for (key, one) in series {
        rows.entry(Labels::of(key, names)).or_default().merge(one);
    }
    rows
}

/// Converts nanoseconds to seconds, Prometheus' unit.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / Duration::from_secs(1).as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;
    use podstuck_model::call::{Call, Outcome};

    #[test]
    fn names_that_collide_after_escaping_are_added_up() {
        let mut table = SeriesTable::new();
        for volume in ["a\u{1b}", "a\\x1b"] {
            let key = sample::key(Call::Unlink, Outcome::OK, "u", volume);
            table.insert(key, sample::series(&[(5_000, 2)]));
        }
        let rows = rows(&table, &NamesTable::new());
        let (labels, series) = rows.first_key_value().unwrap();
        assert_eq!((rows.len(), labels.volume.as_str()), (1, "a\\x1b"));
        assert_eq!((series.calls, series.total_ns), (4, 20_000));
        assert_eq!(series.buckets.values().sum::<u64>(), 4);
    }
}
