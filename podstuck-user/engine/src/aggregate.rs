//! Exact counts, summed by series over the whole run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use podstuck_common::{bucket, count::CallTotals};

use crate::{
    bounded::Bounded,
    event::Count,
    model::{
        call::{Call, Outcome},
        identity::{Component, Target, TargetKind},
        series::{NamesTable, Series, SeriesKey, SeriesTable, Span, TargetKey, TargetNames},
        summary::ByOutcome,
        totals::{NodeKey, Totals},
    },
};

/// Maximum number of named targets. A node has some thousands.
const TARGETS_MAX: usize = 4 << 10;
/// Maximum number of series. A node has some thousands at a time, but a busy node creates new targets continually,
/// and a loop over `mkdir` and `rmdir` creates any number. Export files with twice as many series took the whole
/// second that the last export has.
const SERIES_MAX: usize = 6 << 10;
/// Number of series kept when the maximum is reached: those counted last.
const SERIES_LEFT: usize = SERIES_MAX / 4 * 3;
/// The volume label of the series that the others are merged into. No volume can have this name.
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
    /// The number of the last drain that added to it.
    last: u64,
    /// Its target at that time, since the name may be evicted before the counts are.
    target: Option<Arc<Target>>,
}

/// All counts of a run. Targets are ids until they are read, because the record that names one may arrive after its
/// first counts.
///
/// Memory is bounded: if there are too many series, the least recently counted are merged across targets. Only the
/// target names are lost.
#[derive(Default)]
pub struct Aggregate {
    series: BTreeMap<RawKey, Counted>,
    folded: BTreeMap<(Span, Outcome, Component), Series>,
    outcomes: BTreeMap<(Call, Outcome), u64>,
    names: Bounded<u64, Arc<Target>, TARGETS_MAX>,
    totals: Totals,
    calls: u64,
    drains: u64,
}

impl Aggregate {
    /// Stores the target of an id.
    pub fn name(&mut self, target_id: u64, target: &Arc<Target>) {
        self.names.insert(target_id, target.clone());
    }

    /// Number of evicted target names.
    pub fn dropped(&self) -> u64 {
        self.names.dropped()
    }

    /// Adds the counts of a drain.
    pub fn add(&mut self, counts: &[Count]) {
        self.drains += 1;
        for count in counts {
            let Count { target_id, call, outcome, component, .. } = *count;
            let raw = RawKey { target_id, span: Span::Call(call), outcome, component };
            self.add_to(raw, count.bucket, count.totals());
            let of_outcome = self.outcomes.entry((call, outcome)).or_default();
            *of_outcome = of_outcome.saturating_add(count.calls);
            self.calls = self.calls.saturating_add(count.calls);
        }
        self.make_room();
    }

    /// All series, by labels. Targets that were never named keep their id.
    pub fn table(&self) -> SeriesTable {
        let mut table = SeriesTable::new();
        for ((span, outcome, component), series) in &self.folded {
            let (span, outcome, component) = (*span, *outcome, *component);
            let (pod, volume, container) = (String::new(), FOLDED.to_owned(), String::new());
            let key = SeriesKey { span, outcome, pod, volume, container, component };
            table.insert(key, series.clone());
        }
        for (raw, Counted { series, target, .. }) in &self.series {
            let (pod, volume, container) = match self.names.get(&raw.target_id).or(target.as_ref())
            {
                Some(target) => labels(target),
                None if raw.target_id == 0 => TargetKey::default(),
                None => {
                    let volume = format!("unnamed-{:016x}", raw.target_id);
                    (String::new(), volume, String::new())
                }
            };
            let RawKey { span, outcome, component, .. } = *raw;
            let key = SeriesKey { span, outcome, pod, volume, container, component };
            table.entry(key).or_default().merge(series);
        }
        table
    }

    /// The names of the targets of all series, in addition to their labels.
    pub fn target_names(&self) -> NamesTable {
        let mut all: BTreeMap<_, [BTreeSet<&str>; 3]> = BTreeMap::new();
        for (raw, Counted { target, .. }) in &self.series {
            let Some(target) = self.names.get(&raw.target_id).or(target.as_ref()) else { continue };
            let pod = target.pod.as_ref();
            let known = [
                pod.and_then(|pod| pod.namespace.as_deref()),
                pod.and_then(|pod| pod.name.as_deref()),
                target.volume.as_ref().map(|volume| volume.plugin.as_str()),
            ];
            let names = all.entry(labels(target)).or_default();
            names.iter_mut().zip(known).for_each(|(names, known)| names.extend(known));
        }
        let only = |names: BTreeSet<&str>| match (names.len(), names.first()) {
            (1, Some(name)) => (*name).to_owned(),
            _ => String::new(),
        };
        let named = |[namespace, pod_name, plugin]: [BTreeSet<&str>; 3]| TargetNames {
            namespace: only(namespace),
            pod_name: only(pod_name),
            plugin: only(plugin),
        };
        all.into_iter().map(|(key, names)| (key, named(names))).collect()
    }

    /// Adds a phase of an unmount, which is not counted as a call.
    pub fn add_phase(&mut self, span: Span, target_id: u64, component: Component, took: Duration) {
        let raw = RawKey { target_id, span, outcome: Outcome::OK, component };
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add_to(raw, bucket::bucket_of(ns), CallTotals::of_equal(1, ns));
        self.make_room();
    }

    /// The counts of the node.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Continues the counts of the node.
    pub fn inherit(&mut self, totals: Totals) {
        self.totals = totals;
    }

    fn add_to(&mut self, raw: RawKey, bucket: u16, count: CallTotals) {
        let named = self.names.get_mut(&raw.target_id).cloned();
        let RawKey { span, outcome, component, target_id } = raw;
        // Counters must not decrease, so the sum keeps the name that was known when it was counted.
        let plugin = named.as_ref().and_then(|target| Some(target.volume.as_ref()?.plugin.clone()));
        let (plugin, on_target) = (plugin.unwrap_or_default(), target_id != 0);
        self.totals.add(NodeKey { span, outcome, component, plugin, on_target }, bucket, count);
        let counted = self.series.entry(raw).or_default();
        counted.target = named.or(counted.target.take());
        counted.series.add(bucket, count);
        counted.last = self.drains;
    }

    /// Merges many at once, because it sorts them.
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

    /// Number of all calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Counts by call and outcome. Every call is listed, even with no count.
    pub fn by_outcome(&self) -> ByOutcome {
        let mut all: ByOutcome = Call::ALL.iter().map(|c| (c.name(), Default::default())).collect();
        for ((call, outcome), calls) in &self.outcomes {
            let outcomes = all.entry(call.name()).or_default();
            *outcomes.entry(outcome.name()).or_default() += calls;
        }
        all
    }
}

/// Pod UID, volume and container of a target, as labels. A runtime's directory of a container is no volume, and its
/// name is meaningless: containerd numbers its snapshots.
fn labels(target: &Target) -> TargetKey {
    let pod = target.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default();
    let volume = match (&target.volume, target.kind) {
        (_, TargetKind::ContainerLayer) => "container-layer".into(),
        (Some(volume), _) => volume.name.clone(),
        (None, TargetKind::PodDirectory) => "pod-directory".into(),
        (None, TargetKind::ContainerBundle) => "container-bundle".into(),
        (None, _) => String::new(),
    };
    let container = target.container_name.as_ref().or(target.container.as_ref());
    (pod, volume, container.cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        identity::{Pod, Volume},
        path::JsonPath,
    };

    fn count(target_id: u64, bucket: u16, calls: u64) -> Count {
        let count = crate::testing::count(Call::Rmdir, Outcome(16), calls);
        Count { target_id, bucket, total_ns: calls * 10, min_ns: 9, max_ns: 11 + calls, ..count }
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
        assert_eq!((series.min_ns(), series.max_ns()), (9, 16));
        assert_eq!(aggregate.by_outcome()["rmdir"]["EBUSY"], 8);
        assert_eq!(aggregate.by_outcome()["umount2"].len(), 0);
    }

    #[test]
    fn each_container_has_its_series_and_what_is_known_of_its_targets() {
        let mut aggregate = Aggregate::default();
        let pod = |name: Option<&str>| {
            let name = name.map(str::to_owned);
            Some(Pod { uid: "u".into(), namespace: Some("shop".into()), name })
        };
        let volume = |name: &str| {
            let (name, plugin) = (name.to_owned(), "container-layer".to_owned());
            Some(Volume { name, plugin, path: JsonPath("/s".into()) })
        };
        // Two snapshots of one container, of which one has a known name, and the bundle of another.
        let layer = TargetKind::ContainerLayer;
        for (id, name, kind, volume, container) in [
            (1, None, layer, volume("41"), "web"),
            (2, Some("cart"), layer, volume("42"), "web"),
            (3, None, TargetKind::ContainerBundle, None, "0a1b"),
        ] {
            let container = Some(container.to_owned());
            let target = Target { kind, pod: pod(name), volume, container, ..Target::unknown() };
            aggregate.name(id, &Arc::new(target));
            aggregate.add(&[count(id, 3, 1)]);
        }
        let names = |pod_name: &str, plugin: &str| TargetNames {
            namespace: "shop".into(),
            pod_name: pod_name.into(),
            plugin: plugin.into(),
        };
        let key = |volume: &str, container: &str| ("u".into(), volume.into(), container.into());
        let expected = NamesTable::from([
            (key("container-bundle", "0a1b"), names("", "")),
            (key("container-layer", "web"), names("cart", "container-layer")),
        ]);
        assert_eq!(aggregate.target_names(), expected);
        let table = aggregate.table();
        assert!(table.keys().map(SeriesKey::target).eq(expected.keys().cloned()), "{table:?}");
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

    #[test]
    fn a_target_that_is_counted_keeps_its_name_whatever_else_is_named() {
        let mut aggregate = Aggregate::default();
        let unnamed = Arc::new(Target::unknown());
        let kind = TargetKind::PodDirectory;
        aggregate.name(1, &Arc::new(Target { kind, ..Target::unknown() }));
        aggregate.add(&[count(1, 3, 1)]);
        (2..).take(2 * TARGETS_MAX).for_each(|id| aggregate.name(id, &unnamed));
        aggregate.add(&[count(1, 3, 1)]);
        assert!(aggregate.dropped() > 0 && !aggregate.names.contains(&1));
        let named: Vec<_> = aggregate.table().into_keys().map(|key| key.volume).collect();
        assert_eq!(named, ["pod-directory"]);
    }
}
