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

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RawKey {
    target_id: u64,
    span: Span,
    outcome: Outcome,
    component: Component,
}

/// All counts of a run. Targets stay ids until somebody asks, because the record that names one
/// may arrive after its first counts.
#[derive(Default)]
pub struct Aggregate {
    series: HashMap<RawKey, Series>,
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
        for (key, count) in counts {
            let Some(call) = Call::from_code(key.call()) else { continue };
            let outcome = Outcome(key.errno());
            let component = component(key.tgid, key.target);
            let raw = RawKey { target_id: key.target, span: Span::Call(call), outcome, component };
            self.series.entry(raw).or_default().add(key.bucket(), *count);
            *deltas.entry((key.target, key.tgid, call, outcome)).or_default() += count.calls;
        }
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
        for (raw, series) in &self.series {
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
        let count = Count { calls: 1, total_ns };
        self.series.entry(raw).or_default().add(bucket::bucket_of(total_ns), count);
    }

    fn of_calls(&self) -> impl Iterator<Item = (Call, Outcome, &Series)> {
        self.series.iter().filter_map(|(raw, series)| match raw.span {
            Span::Call(call) => Some((call, raw.outcome, series)),
            Span::AfterExit | Span::BeforeCall => None,
        })
    }

    /// All calls.
    pub fn calls(&self) -> u64 {
        self.of_calls().map(|(_, _, series)| series.calls).sum()
    }

    /// Calls by call and outcome. Every call is listed, also one never made.
    pub fn by_outcome(&self) -> ByOutcome {
        let mut all: ByOutcome = Call::ALL.iter().map(|c| (c.name(), Default::default())).collect();
        for (call, outcome, series) in self.of_calls() {
            let outcomes = all.entry(call.name()).or_default();
            *outcomes.entry(outcome.name()).or_default() += series.calls;
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
}
