//! Exact counts, added up by series over the whole run.

use std::{collections::HashMap, time::Duration};

use podstuck_common::{
    bucket,
    record::{Count, CountKey},
};

use crate::{
    attribute::Attributor,
    model::{
        call::{Call, Outcome},
        identity::{Component, Target, TargetKind},
        series::{Series, SeriesKey, SeriesTable, Span},
        summary::ByOutcome,
    },
};

/// Series kept apart. A node has some thousands at a time, but a busy one makes new targets for
/// ever, and a loop over `mkdir` and `rmdir` as many as it likes. Files of twice as many took the whole
/// second that the last export has.
const SERIES_MAX: usize = 8 << 10;
/// What is left of them when there are more: those counted last.
const SERIES_LEFT: usize = SERIES_MAX / 4 * 3;
/// The volume of the series in which the others go on. No volume can have this name.
const FOLDED: &str = "(other targets)";

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Default)]
pub struct Aggregate {
    series: HashMap<RawKey, Counted>,
    folded: HashMap<(Span, Outcome, Component), Series>,
    outcomes: HashMap<(Call, Outcome), u64>,
    calls: u64,
    drains: u64,
}

/// Calls of one kind since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Hash that names the target; 0 for none.
    pub target_id: u64,
    /// Process.
    pub pid: u32,
    /// What was called.
    pub call: Call,
    /// How it ended.
    pub outcome: Outcome,
    /// How often.
    pub calls: u64,
}

impl Aggregate {
    /// Adds drained counts; `component` tells what a process is for a target.
    pub fn add(
        &mut self,
        counts: &[(CountKey, Count)],
        mut component: impl FnMut(u32, u64) -> Component,
    ) -> Vec<Delta> {
        let mut deltas: HashMap<(u64, u32, Call, Outcome), u64> = HashMap::new();
        self.drains += 1;
        for (key, count) in counts {
            let Some(call) = Call::from_code(key.call()) else { continue };
            let outcome = Outcome(key.errno());
            let component = component(key.tgid, key.target);
            let raw = RawKey { target_id: key.target, span: Span::Call(call), outcome, component };
            self.add_to(raw, key.bucket(), *count);
            *self.outcomes.entry((call, outcome)).or_default() += count.calls;
            self.calls += count.calls;
            *deltas.entry((key.target, key.tgid, call, outcome)).or_default() += count.calls;
        }
        self.make_room();
        deltas
            .into_iter()
            .map(|((target_id, pid, call, outcome), calls)| Delta {
                target_id,
                pid,
                call,
                outcome,
                calls,
            })
            .collect()
    }

    /// All series by name. Calls on targets that were never named keep their id.
    pub fn table(&self, names: &Attributor) -> SeriesTable {
        let mut table = SeriesTable::new();
        for ((span, outcome, component), series) in &self.folded {
            let (span, outcome, component) = (*span, *outcome, *component);
            let (pod, volume) = (String::new(), FOLDED.to_owned());
            table.insert(SeriesKey { span, outcome, pod, volume, component }, series.clone());
        }
        for (raw, Counted { series, .. }) in &self.series {
            let (pod, volume) = match names.target(raw.target_id) {
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
        self.add_to(raw, bucket::bucket_of(total_ns), Count { calls: 1, total_ns });
        self.make_room();
    }

    fn add_to(&mut self, raw: RawKey, bucket: u16, count: Count) {
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
        oldest.sort_unstable_by_key(|(last, _)| *last);
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
    use crate::identity::PodNames;

    #[test]
    fn counts_of_two_drains_and_two_buckets_add_up() {
        let key = |bucket| CountKey::new(7, 1, Call::Rmdir as u8, 16, bucket);
        let count = |calls| Count { calls, total_ns: calls * 10 };
        let mut aggregate = Aggregate::default();
        let first = [(key(3), count(2)), (key(4), count(1))];
        let deltas = aggregate.add(&first, |_, _| Component::Other);
        assert_eq!((deltas.len(), deltas[0].calls), (1, 3));
        aggregate.add(&[(key(3), count(5))], |_, _| Component::Other);
        let (all, calls) = (aggregate.by_outcome(), aggregate.calls());
        assert_eq!((calls, all["rmdir"]["EBUSY"], all.len()), (8, 8, 5));
        assert!(all["umount2"].is_empty());
    }
    #[test]
    fn of_too_many_series_the_idle_ones_are_added_up_and_no_call_is_lost() {
        let (churned, used) = (3 * SERIES_MAX as u64, u64::MAX);
        let once = |target| {
            let key = CountKey::new(target, 1, Call::Rmdir as u8, 0, 3);
            (key, Count { calls: 1, total_ns: 10 })
        };
        let mut aggregate = Aggregate::default();
        let targets: Vec<u64> = (1..=churned).collect();
        let drains = targets.chunks(1000);
        let number = drains.len() as u64;
        for drain in drains {
            let mut counts: Vec<_> = drain.iter().copied().map(once).collect();
            counts.push(once(used));
            aggregate.add(&counts, |_, _| Component::Other);
            assert!(aggregate.series.len() <= SERIES_MAX);
        }
        let all = churned + number;
        assert_eq!((aggregate.calls(), aggregate.by_outcome()["rmdir"]["ok"]), (all, all));
        let table = aggregate.table(&Attributor::new(PodNames::new(Vec::new())));
        assert!(table.len() <= SERIES_MAX + 1);
        assert_eq!(table.values().map(|series| series.calls).sum::<u64>(), all);
        assert_eq!(table.values().map(|series| series.total_ns).sum::<u64>(), 10 * all);
        let calls = |volume: &str| {
            let one = table.iter().find(|(key, _)| key.volume == volume);
            one.map(|(_, series)| series.calls)
        };
        assert_eq!(calls(&format!("unnamed-{used:016x}")), Some(number), "one that is in use");
        assert!(calls(FOLDED).is_some_and(|folded| folded > SERIES_MAX as u64));
    }
}
