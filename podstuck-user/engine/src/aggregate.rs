//! Exact counts, added up by series over the whole run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podstuck_common::{bucket, record};

use crate::{
    bounded::Bounded,
    event::Count,
    model::{
        call::{Call, Outcome},
        identity::{Component, Target, TargetKind},
        series::{Series, SeriesKey, SeriesTable, Span},
        summary::ByOutcome,
    },
};

/// Targets remembered by name. A node has some thousands.
const TARGETS_MAX: usize = 16 << 10;
/// Series kept apart. A node has some thousands at a time, but a busy one makes new targets for
/// ever, and a loop over `mkdir` and `rmdir` as many as it likes. Files of twice as many took the whole
/// second that the last export has.
const SERIES_MAX: usize = 8 << 10;
/// What is left of them when there are more: those counted last.
const SERIES_LEFT: usize = SERIES_MAX / 4 * 3;
/// The volume of the series in which the others go on. No volume can have this name.
const FOLDED: &str = "(other targets)";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RawKey {
    target_id: u64,
    span: Span,
    outcome: Outcome,
    component: Component,
}

#[derive(Default)]
struct Counted {
    series: Series,
    /// The drain that last added to it.
    last: u64,
}

/// All counts of a run. Targets stay ids until somebody asks, because the record that names one
/// may arrive after its first counts.
///
/// Its memory is bounded: of too many series, those that were not counted for longest are added up
/// over all targets. Nothing is lost by that but the name of the target.
pub struct Aggregate {
    series: BTreeMap<RawKey, Counted>,
    folded: BTreeMap<(Span, Outcome, Component), Series>,
    outcomes: BTreeMap<(Call, Outcome), u64>,
    names: Bounded<u64, Arc<Target>>,
    calls: u64,
    drains: u64,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self {
            series: BTreeMap::new(),
            folded: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            names: Bounded::new(TARGETS_MAX),
            calls: 0,
            drains: 0,
        }
    }
}

impl Aggregate {
    /// Learns the target behind an id.
    pub fn name(&mut self, target_id: u64, target: &Arc<Target>) {
        self.names.insert(target_id, target.clone());
    }

    /// How many names of targets had to be forgotten.
    pub fn dropped(&self) -> u64 {
        self.names.dropped()
    }

    /// Adds the counts of a drain.
    pub fn add(&mut self, counts: &[Count]) {
        self.drains += 1;
        for count in counts {
            let Count { target_id, call, outcome, component, .. } = *count;
            let raw = RawKey { target_id, span: Span::Call(call), outcome, component };
            let added = record::CallTotals { calls: count.calls, total_ns: count.total_ns };
            self.add_to(raw, count.bucket, added);
            *self.outcomes.entry((call, outcome)).or_default() += count.calls;
            self.calls += count.calls;
        }
        self.make_room();
    }

    /// All series by name. Calls on targets that were never named keep their id.
    pub fn table(&self) -> SeriesTable {
        let mut table = SeriesTable::new();
        for ((span, outcome, component), series) in &self.folded {
            let (span, outcome, component) = (*span, *outcome, *component);
            let (pod, volume) = (String::new(), FOLDED.to_owned());
            table.insert(SeriesKey { span, outcome, pod, volume, component }, series.clone());
        }
        for (raw, Counted { series, .. }) in &self.series {
            let (pod, volume) = match self.names.get(&raw.target_id) {
                Some(target) => labels(target),
                None if raw.target_id == 0 => (String::new(), String::new()),
                None => (String::new(), format!("unnamed-{:016x}", raw.target_id)),
            };
            let RawKey { span, outcome, component, .. } = *raw;
            let named = table.entry(SeriesKey { span, outcome, pod, volume, component });
            named.or_default().merge(series);
        }
        table
    }

    /// Adds a phase of an unmount, which is no call and not counted as one.
    pub fn add_phase(&mut self, span: Span, target_id: u64, component: Component, took: Duration) {
        let raw = RawKey { target_id, span, outcome: Outcome::OK, component };
        let total_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add_to(raw, bucket::bucket_of(total_ns), record::CallTotals { calls: 1, total_ns });
        self.make_room();
    }

    fn add_to(&mut self, raw: RawKey, bucket: u16, count: record::CallTotals) {
        let counted = self.series.entry(raw).or_default();
        counted.series.add(bucket, count);
        counted.last = self.drains;
    }

    /// Many at once, because they are sorted for it.
    fn make_room(&mut self) {
        if self.series.len() <= SERIES_MAX {
            return;
        }
        let mut oldest: Vec<(u64, RawKey)> =
            self.series.iter().map(|(raw, counted)| (counted.last, *raw)).collect();
        oldest.sort_unstable();
        for (_, raw) in oldest.into_iter().take(self.series.len() - SERIES_LEFT) {
            let Some(counted) = self.series.remove(&raw) else { continue };
            let sum = self.folded.entry((raw.span, raw.outcome, raw.component));
            sum.or_default().merge(&counted.series);
        }
    }

    /// All calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls by call and outcome. Every call is listed, also one never made.
    pub fn by_outcome(&self) -> ByOutcome {
        let mut all: ByOutcome = Call::ALL.iter().map(|c| (c.name(), Default::default())).collect();
        for ((call, outcome), calls) in &self.outcomes {
            let outcomes = all.entry(call.name()).or_default();
            *outcomes.entry(outcome.name()).or_default() += calls;
        }
        all
    }
}

/// Pod UID and volume of a target, as labels.
fn labels(target: &Target) -> (String, String) {
    let pod = target.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default();
    let volume = match (&target.volume, target.kind) {
        (Some(volume), _) => volume.name.clone(),
        (None, TargetKind::PodDirectory) => "pod-directory".into(),
        (None, TargetKind::ContainerBundle) => "container-bundle".into(),
        (None, _) => String::new(),
    };
    (pod, volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(target_id: u64, bucket: u16, calls: u64) -> Count {
        Count {
            target_id,
            pid: 1,
            call: Call::Rmdir,
            outcome: Outcome(16),
            component: Component::Other,
            bucket,
            calls,
            total_ns: calls * 10,
        }
    }

    #[test]
    fn counts_of_two_drains_and_two_buckets_add_up() {
        let mut aggregate = Aggregate::default();
        aggregate.add(&[count(7, 3, 2), count(7, 4, 1)]);
        aggregate.add(&[count(7, 3, 5)]);
        let table = aggregate.table();
        let (key, series) = table.iter().next().unwrap();
        assert_eq!(
            (key.volume.as_str(), key.outcome.name().as_str()),
            ("unnamed-0000000000000007", "EBUSY")
        );
        assert_eq!(
            (series.calls, series.total_ns, &series.buckets),
            (8, 80, &[(3, 7), (4, 1)].into())
        );
        assert_eq!(aggregate.by_outcome()["rmdir"]["EBUSY"], 8);
        assert_eq!(aggregate.by_outcome()["umount2"].len(), 0);
    }

    #[test]
    fn many_targets_keep_their_counts_and_lose_their_names() {
        let mut aggregate = Aggregate::default();
        let many = 3 * SERIES_MAX as u64;
        for target_id in 1..=many {
            aggregate.add(&[count(target_id, 3, 1)]);
            aggregate.add(&[count(1, 3, 1)]);
        }
        assert!(aggregate.series.len() <= SERIES_MAX);
        let table = aggregate.table();
        let calls: u64 = table.values().map(|series| series.calls).sum();
        assert_eq!((calls, aggregate.calls()), (2 * many, 2 * many));
        assert!(table.keys().any(|key| key.volume == FOLDED));
        let lasting = table.iter().find(|(key, _)| key.volume == "unnamed-0000000000000001");
        assert_eq!(lasting.unwrap().1.calls, many + 1);
    }
}
