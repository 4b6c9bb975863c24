//! Exact counts by series and latency bucket.

use std::collections::BTreeMap;

use podstuck_common::{bucket, count::CallTotals};
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    identity::Component,
};

/// The measured span: a call, or a phase of an unmount outside of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// A call, from entry to return.
    Call(Call),
    /// From the return of `umount2`, as seen by probes, to the end of the file system's shutdown.
    AfterExit,
    /// From the execution of an unmounting program to its `umount2`.
    BeforeCall,
}

impl Span {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call(call) => call.name(),
            Self::AfterExit => "umount2/after-exit",
            Self::BeforeCall => "umount/before-call",
        }
    }
}

/// The labels of one exported histogram.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The measured span.
    pub span: Span,
    /// The outcome.
    pub outcome: Outcome,
    /// UID of the pod; empty if none.
    pub pod: String,
    /// The volume, or the kind of a target without one; empty if none.
    pub volume: String,
    /// The container: its name, or its id if it has none; empty if none.
    pub container: String,
    /// The caller's component.
    pub component: Component,
}

/// A histogram: calls by latency bucket, and the sum of their durations. Sums saturate, since a recording may
/// contain any numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Calls in each non-empty bucket (see [`podstuck_common::bucket`]).
    pub buckets: BTreeMap<u16, u64>,
    /// Calls in all buckets.
    pub calls: u64,
    /// Summed duration in nanoseconds, exact.
    pub total_ns: u64,
    /// The shortest and the longest call in nanoseconds: exact, or the bucket boundaries if only buckets are known.
    range: Option<(u64, u64)>,
}

impl Series {
    /// Adds calls of one bucket.
    pub fn add(&mut self, bucket: u16, count: CallTotals) {
        if count.calls == 0 {
            return;
        }
        self.add_to(bucket, count.calls);
        self.calls = self.calls.saturating_add(count.calls);
        self.total_ns = self.total_ns.saturating_add(count.total_ns);
        self.widen(match count.min_ns {
            0 => (bucket::lower_bound(bucket), bucket::highest(bucket)),
            least => (least, count.max_ns),
        });
    }

    fn add_to(&mut self, bucket: u16, calls: u64) {
        let of_it = self.buckets.entry(bucket).or_default();
        *of_it = of_it.saturating_add(calls);
    }

    fn widen(&mut self, (least, most): (u64, u64)) {
        let (min, max) = self.range.unwrap_or((least, most));
        self.range = Some((min.min(least), max.max(most)));
    }

    /// A series of which only the buckets are known.
    pub fn of_buckets(buckets: &BTreeMap<u16, u64>) -> Self {
        let mut series = Self::default();
        for (bucket, calls) in buckets {
            series.add(*bucket, CallTotals { calls: *calls, ..CallTotals::default() });
        }
        series
    }

    /// Adds all calls of another series.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, calls) in &other.buckets {
            self.add_to(*bucket, *calls);
        }
        self.calls = self.calls.saturating_add(other.calls);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        other.range.into_iter().for_each(|range| self.widen(range));
    }

    /// The shortest call in nanoseconds; 0 without calls.
    pub fn min_ns(&self) -> u64 {
        self.range.map_or(0, |(least, _)| least)
    }

    /// The longest call in nanoseconds; 0 without calls.
    pub fn max_ns(&self) -> u64 {
        self.range.map_or(0, |(_, most)| most)
    }

    /// (nanoseconds, calls) for a histogram, unordered: each call at the end of its bucket, the shortest and the
    /// longest at their exact values.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let (least, most) = self.range.unwrap_or_default();
        let (first, last) = (bucket::bucket_of(least), bucket::bucket_of(most));
        // The shortest and the longest may be the same call.
        let edges = if self.calls > 1 { 2 } else { self.calls };
        let inner = self.buckets.iter().map(move |(bucket, calls)| {
            let edges = u64::from(*bucket == last) + u64::from(*bucket == first && edges > 1);
            (self.end(*bucket), calls.saturating_sub(edges))
        });
        let edges = [(most, 1), (least, 1)].into_iter().take(edges as usize);
        inner.chain(edges).filter(|(_, calls)| *calls > 0)
    }

    /// The latency quantile of `share` (0 to 1), in nanoseconds: the upper end of the bucket that reaches the share,
    /// at most the longest call; the shortest call if that reaches it; 0 without calls.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((share * self.calls as f64).ceil() as u64).max(1);
        if wanted == 1 && self.calls > 1 {
            return self.min_ns();
        }
        let mut seen = 0_u64;
        let reached = self.buckets.iter().find_map(|(bucket, calls)| {
            seen = seen.saturating_add(*calls);
            (seen >= wanted).then_some(*bucket)
        });
        reached.map_or(0, |bucket| self.end(bucket))
    }

    /// The longest possible call of a bucket.
    fn end(&self, bucket: u16) -> u64 {
        if bucket == bucket::bucket_of(self.max_ns()) {
            self.max_ns()
        } else {
            bucket::highest(bucket)
        }
    }

    /// Exact mean duration in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total_ns as f64 / self.calls as f64 }
    }
}

/// All series of a run.
pub type SeriesTable = BTreeMap<SeriesKey, Series>;

/// Names of the targets that share pod, volume and container. A field is empty if unknown or ambiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetNames {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod_name: String,
    /// Plugin of the volume, or the kind of the target.
    pub plugin: String,
}

/// The labels that identify targets: [`SeriesKey::pod`], [`SeriesKey::volume`] and [`SeriesKey::container`].
pub type TargetKey = (String, String, String);

/// The names of targets, by their identifying labels.
pub type NamesTable = BTreeMap<TargetKey, TargetNames>;

impl SeriesKey {
    /// The labels that identify its targets.
    pub fn target(&self) -> TargetKey {
        (self.pod.clone(), self.volume.clone(), self.container.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(all: &[u64]) -> Series {
        let mut series = Series::default();
        for ns in all {
            series.add(bucket::bucket_of(*ns), CallTotals::of_equal(1, *ns));
        }
        series
    }

    #[test]
    fn a_single_call_is_all_there_is() {
        let one = series(&[1_557_332]);
        let all =
            [one.min_ns(), one.quantile(0.0), one.quantile(0.5), one.quantile(1.0), one.max_ns()];
        assert_eq!((all, one.mean_ns()), ([1_557_332; 5], 1_557_332.0));
        assert_eq!(one.values().collect::<Vec<_>>(), [(1_557_332, 1)]);
        assert_eq!(Series::default().quantile(0.5), 0);
        assert_eq!(Series::default().values().count(), 0);
    }

    #[test]
    fn quantiles_are_ends_of_buckets_and_not_above_the_longest() {
        let some = series(&[100, 600, 601, 1_000_000, 1_000_001]);
        assert_eq!((some.min_ns(), some.max_ns()), (100, 1_000_001));
        let quantiles = [0.2, 0.4, 0.6, 0.8, 1.0].map(|share| some.quantile(share));
        assert_eq!(quantiles, [100, 639, 639, 1_000_001, 1_000_001]);
        let mut values: Vec<_> = some.values().collect();
        values.sort_unstable();
        assert_eq!(values, [(100, 1), (639, 2), (1_000_001, 1), (1_000_001, 1)]);
    }

    #[test]
    fn where_it_is_not_known_buckets_tell() {
        let old = Series::of_buckets(&BTreeMap::from([(3, 2), (5, 1)]));
        assert_eq!((old.min_ns(), old.max_ns()), (bucket::lower_bound(3), bucket::highest(5)));
        let mut both = series(&[1 << 20]);
        both.merge(&old);
        assert_eq!(
            (both.min_ns(), both.max_ns(), both.calls),
            (bucket::lower_bound(3), 1 << 20, 4)
        );
        assert_eq!(both.values().map(|(_, calls)| calls).sum::<u64>(), 4);
    }
}
