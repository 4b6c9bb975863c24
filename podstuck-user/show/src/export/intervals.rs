//! Counts by time, for heat maps and comparisons. Pods and volumes are summed by the volume's plugin, since they
//! differ between runs.
//!
//! Bounded for runs of any length: when there are too many intervals, each two neighbours are merged.

use std::{collections::BTreeMap, time::Duration};

use podstuck_engine::{
    bounded::Bounded,
    event::{Event, Run, What},
    model::{
        call::Outcome,
        identity::{Component, Target, TargetKind},
        path::safe,
        series::Span,
        time::Monotonic,
    },
};

/// The interval between drains.
const SHORTEST: Duration = Duration::from_secs(1);
/// Limit of intervals: four minutes by the second, an hour by quarters of a minute.
const INTERVALS_MAX: usize = 240;
/// Limit of kinds. Plugins are names of directories, of which a user may create any number.
const KINDS_MAX: usize = 48;
/// Limit of targets whose plugin is remembered.
const TARGETS_MAX: usize = 4 << 10;
/// The plugin of kinds beyond the limit.
pub const OTHERS: &str = "(others)";

/// A kind of call, comparable between runs. All fields are escaped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The call, or a phase around one.
    pub syscall: String,
    /// Its outcome.
    pub outcome: String,
    /// Plugin of the volume, or the kind of another target; empty for none.
    pub plugin: String,
    /// The caller's component.
    pub component: String,
}

/// Calls in each latency bucket that has any (see [`podstuck_common::bucket`]).
pub type Buckets = BTreeMap<u16, u64>;

/// Calls by kind, in intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals {
    length: Duration,
    intervals: Vec<BTreeMap<Kind, Buckets>>,
    /// Longest call of each kind in the whole run, in nanoseconds.
    longest: BTreeMap<Kind, u64>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self::of(SHORTEST)
    }
}

impl Intervals {
    /// No intervals yet, of this length.
    pub(super) fn of(length: Duration) -> Self {
        Self { length: length.max(SHORTEST), intervals: Vec::new(), longest: BTreeMap::new() }
    }

    /// Length of each interval.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// All intervals, from the start of the run.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &BTreeMap<Kind, Buckets>> {
        self.intervals.iter()
    }

    /// The longest call of each kind in nanoseconds, exact, where it is known.
    pub fn longest(&self) -> &BTreeMap<Kind, u64> {
        &self.longest
    }

    /// Notes a call that may be the longest one.
    pub fn note(&mut self, kind: &Kind, ns: u64) {
        match self.longest.get_mut(kind) {
            Some(longest) => *longest = (*longest).max(ns),
            None => drop(self.longest.insert(kind.clone(), ns)),
        }
    }

    /// All kinds, each with all of its calls.
    pub fn kinds(&self) -> BTreeMap<Kind, Buckets> {
        let mut all: BTreeMap<Kind, Buckets> = BTreeMap::new();
        for (kind, buckets) in self.intervals.iter().flatten() {
            add(all.entry(kind.clone()).or_default(), buckets);
        }
        all
    }

    /// Adds calls, at a time since the start of the run.
    pub fn add(&mut self, at: Duration, kind: Kind, bucket: u16, calls: u64) {
        let place = |length: Duration| (at.as_nanos() / length.as_nanos().max(1)) as usize;
        while place(self.length) >= INTERVALS_MAX {
            self.halve();
        }
        let place = place(self.length);
        if self.intervals.len() <= place {
            self.intervals.resize_with(place + 1, BTreeMap::new);
        }
        let buckets = self.intervals[place].entry(kind).or_default();
        *buckets.entry(bucket).or_default() += calls;
    }

    fn halve(&mut self) {
        self.length *= 2;
        let mut all = std::mem::take(&mut self.intervals).into_iter();
        while let Some(mut one) = all.next() {
            for (kind, buckets) in all.next().into_iter().flatten() {
                add(one.entry(kind).or_default(), &buckets);
            }
            self.intervals.push(one);
        }
    }
}

/// Adds calls to others.
pub fn add(to: &mut Buckets, buckets: &Buckets) {
    for (bucket, calls) in buckets {
        *to.entry(*bucket).or_default() += calls;
    }
}

/// Collects intervals from the events of a run.
#[derive(Debug)]
pub struct Collector {
    begun: Monotonic,
    plugins: Bounded<u64, String, TARGETS_MAX>,
    kinds: BTreeMap<Kind, ()>,
    intervals: Intervals,
}

impl Collector {
    /// An empty collector.
    pub fn new(run: &Run) -> Self {
        Self {
            begun: run.clock.started(),
            plugins: Bounded::default(),
            kinds: BTreeMap::new(),
            intervals: Intervals::default(),
        }
    }

    /// The intervals collected so far.
    pub fn intervals(&self) -> &Intervals {
        &self.intervals
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match &event.what {
            What::Named { target_id, target } => self.plugins.insert(*target_id, plugin(target)),
            What::Counts(counts) => {
                for count in counts {
                    let span = Span::Call(count.call);
                    let kind = self.kind(span, count.outcome, count.target_id, count.component);
                    self.intervals.note(&kind, count.max_ns);
                    self.add(event.at, kind, count.bucket, count.calls);
                }
            }
            What::Phase { span, target_id, component, took } => {
                let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                let kind = self.kind(*span, Outcome::OK, *target_id, *component);
                self.intervals.note(&kind, ns);
                self.add(event.at, kind, podstuck_common::bucket::bucket_of(ns), 1);
            }
            _ => {}
        }
    }

    fn add(&mut self, at: Monotonic, kind: Kind, bucket: u16, calls: u64) {
        self.intervals.add(at.since(self.begun), kind, bucket, calls);
    }

    fn kind(&mut self, span: Span, outcome: Outcome, target: u64, by: Component) -> Kind {
        let plugin = self.plugins.get_mut(&target).cloned().unwrap_or_default();
        let mut kind = Kind {
            syscall: span.name().into(),
            outcome: outcome.name(),
            plugin,
            component: by.name().into(),
        };
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            // Calls, outcomes and components are few and need no limit of their own.
            kind.plugin = OTHERS.into();
            return kind;
        }
        self.kinds.insert(kind.clone(), ());
        kind
    }
}

fn plugin(target: &Target) -> String {
    match (&target.volume, target.kind) {
        (Some(volume), _) => safe(volume.plugin.as_bytes()).into_owned(),
        (None, TargetKind::PodDirectory) => "pod-directory".into(),
        (None, TargetKind::ContainerBundle) => "container-bundle".into(),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(plugin: &str) -> Kind {
        let [syscall, outcome, component] = ["unlink", "ok", "kubelet"].map(String::from);
        Kind { syscall, outcome, plugin: plugin.into(), component }
    }

    #[test]
    fn a_long_run_loses_detail_and_no_call() {
        let mut all = Intervals::default();
        let seconds = 10 * INTERVALS_MAX as u64;
        for second in 0..seconds {
            all.add(Duration::from_secs(second), kind("csi"), 7, 2);
        }
        assert_eq!((all.length(), all.iter().len()), (Duration::from_secs(16), 150));
        assert_eq!(all.kinds(), BTreeMap::from([(kind("csi"), Buckets::from([(7, 2 * seconds)]))]));
        let calls: Vec<u64> = all.iter().map(|one| one[&kind("csi")][&7]).collect();
        assert!(calls.iter().all(|calls| *calls == 32), "{calls:?}");
    }

    #[test]
    fn a_pause_without_calls_is_an_empty_interval() {
        let mut all = Intervals::default();
        all.add(Duration::from_millis(2_500), kind("csi"), 1, 1);
        assert_eq!(all.iter().map(BTreeMap::len).collect::<Vec<_>>(), [0, 0, 1]);
        [7, 9, 8].into_iter().for_each(|ns| all.note(&kind("csi"), ns));
        assert_eq!(all.longest(), &BTreeMap::from([(kind("csi"), 9)]));
    }
}
