//! Summarises single measurements.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics};

use super::round::Row;
use super::tracer::Tracer;
use super::workload::Workload;

/// The distribution of several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Ignores values that are not finite; `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        let mut data = Data::new(values);
        // For few values, the library's quartiles may exceed the range.
        Some(Self {
            min,
            lower: data.lower_quartile().clamp(min, max),
            median: data.median(),
            upper: data.upper_quartile().clamp(min, max),
            max,
        })
    }
}

/// One tracer on one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) workload: String,
    pub(crate) tracer: String,
    pub(crate) rounds: usize,
    pub(crate) fewest_calls: u64,
    pub(crate) most_calls: u64,
    #[serde(skip)]
    pub(crate) ns: Option<Spread>,
    /// The ratio to no tracer in the same round, which excludes drift over the run.
    #[serde(skip)]
    pub(crate) ratio: Option<Spread>,
    pub(crate) ns_median: Option<f64>,
    pub(crate) ns_min: Option<f64>,
    pub(crate) ns_max: Option<f64>,
    pub(crate) cpu_ns_median: Option<f64>,
    pub(crate) cpu_ratio_median: Option<f64>,
    pub(crate) ratio_median: Option<f64>,
    pub(crate) ratio_lower_quartile: Option<f64>,
    pub(crate) ratio_upper_quartile: Option<f64>,
    pub(crate) program_ns: Option<f64>,
    pub(crate) cpu_s_per_million: Option<f64>,
    pub(crate) rss_mib: Option<f64>,
    pub(crate) truth: u64,
    /// The tracer's count: of the pod if it distinguishes pods, otherwise of the whole machine.
    pub(crate) seen: Option<u64>,
    pub(crate) lost_calls: Option<u64>,
    pub(crate) lost_events: Option<u64>,
    pub(crate) attach_ms: Option<f64>,
    pub(crate) detach_ms: Option<f64>,
}

/// Summarises one tracer on one workload; `None` without measurements.
pub(crate) fn summarize(rows: &[Row], workload: Workload, tracer: Tracer) -> Option<Summary> {
    let (workload, tracer) = (workload.name(), tracer.name());
    let mine: Vec<&Row> =
        rows.iter().filter(|row| row.workload == workload && row.tracer == tracer).collect();
    let timed: Vec<&Row> = mine.iter().copied().filter(|row| !row.program_time).collect();
    let untraced: BTreeMap<u32, &Row> = rows
        .iter()
        .filter(|row| row.workload == workload && !row.program_time)
        .filter(|row| row.tracer == Tracer::None.name())
        .map(|row| (row.round, row))
        .collect();
    let ns = Spread::of(timed.iter().map(|row| row.ns_per_call));
    let ratio_of = |time: &dyn Fn(&Row) -> f64| {
        let ratios =
            timed.iter().filter_map(|row| Some(time(row) / time(untraced.get(&row.round)?)));
        Spread::of(ratios)
    };
    let ratio = ratio_of(&|row| row.ns_per_call);
    let median = |value: &dyn Fn(&Row) -> Option<f64>| {
        Spread::of(mine.iter().filter_map(|row| value(row))).map(|spread| spread.median)
    };
    let sum = |value: &dyn Fn(&Row) -> Option<u64>| {
        mine.iter().map(|row| value(row)).sum::<Option<u64>>().filter(|_| !mine.is_empty())
    };
    Some(Summary {
        rounds: timed.len(),
        fewest_calls: mine.iter().map(|row| row.calls).min()?,
        most_calls: mine.iter().map(|row| row.calls).max()?,
        ns,
        ratio,
        ns_median: ns.map(|ns| ns.median),
        ns_min: ns.map(|ns| ns.min),
        ns_max: ns.map(|ns| ns.max),
        cpu_ns_median: Spread::of(timed.iter().map(|row| row.cpu_ns_per_call)).map(|ns| ns.median),
        cpu_ratio_median: ratio_of(&|row| row.cpu_ns_per_call).map(|ratio| ratio.median),
        ratio_median: ratio.map(|ratio| ratio.median),
        ratio_lower_quartile: ratio.map(|ratio| ratio.lower),
        ratio_upper_quartile: ratio.map(|ratio| ratio.upper),
        program_ns: median(&|row| row.program_ns_per_call),
        cpu_s_per_million: median(&|row| {
            row.tracer_cpu_s.map(|s| s * 1e6 / row.calls.max(1) as f64)
        }),
        rss_mib: median(&|row| row.rss_kib.map(|kib| kib as f64 / 1024.0)),
        truth: mine.iter().map(|row| row.truth).sum(),
        seen: sum(&|row| row.seen_of_pod.or(row.seen)),
        lost_calls: sum(&|row| row.lost_calls),
        lost_events: sum(&|row| row.lost_events),
        attach_ms: median(&|row| row.attach_ms),
        detach_ms: median(&|row| row.detach_ms),
        workload,
        tracer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tracer: Tracer, round: u32, ns_per_call: f64) -> Row {
        Row {
            workload: Workload::Tmpfs.name(),
            tracer: tracer.name(),
            round,
            calls: 10,
            truth: 10,
            seen: Some(10),
            ns_per_call,
            ..Row::default()
        }
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        // The machine becomes ten times slower; the tracer always costs a half.
        let rows = [
            row(Tracer::None, 0, 100.0),
            row(Tracer::Strace, 0, 150.0),
            row(Tracer::None, 1, 1000.0),
            row(Tracer::Strace, 1, 1500.0),
            Row { program_time: true, ..row(Tracer::Strace, 2, 9e9) },
        ];
        let summary = summarize(&rows, Workload::Tmpfs, Tracer::Strace).unwrap();
        assert_eq!((summary.rounds, summary.truth, summary.seen), (2, 30, Some(30)));
        assert_eq!(summary.ratio_median, Some(1.5));
        assert_eq!(summary.ns.map(|ns| (ns.min, ns.max)), Some((150.0, 1500.0)));
        assert!(summarize(&rows, Workload::Xfs, Tracer::Strace).is_none());
    }

    #[test]
    fn quartiles_stay_among_the_values() {
        let spread = Spread::of([1.0, 2.0]).unwrap();
        assert!(spread.lower >= 1.0 && spread.upper <= 2.0);
        assert_eq!(Spread::of([]), None);
    }
}
