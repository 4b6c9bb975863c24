//! `metrics.prom`: Prometheus text format 0.0.4, for node_exporter's textfile collector, which refuses timestamps and
//! the OpenMetrics syntax. The metrics of a node are also written as protobuf, with native histograms.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use podstuck_exposition::{Families, Histogram, LabelPair, labels};

use super::{
    latency::{latency, native},
    rows::{Labels, rows},
};
use crate::present::words;
use podstuck_model::{
    finding::Finding,
    path::safe,
    series::{NamesTable, Series, SeriesTable, Span},
    summary::Completeness,
    totals::{NodeKey, Totals},
};

/// Name of the file.
pub const FILE: &str = "metrics.prom";
/// Name of the file whose size does not depend on the number of pods. Not `.prom`: node_exporter would read both.
pub const FILE_OF_NODE: &str = "node-metrics.txt";
/// Name of the same file as protobuf.
pub const PROTOBUF_OF_NODE: &str = "node-metrics.pb";

/// The series to render.
#[derive(Clone, Copy, Debug)]
pub enum Counts<'a> {
    /// By all labels.
    ByTarget(&'a SeriesTable, &'a NamesTable),
    /// Summed over pods, volumes and containers, and over earlier processes if their counts are kept.
    OfNode(&'a Totals),
}

/// The metrics of one window.
pub fn prometheus(
    start: Timestamp,
    window: Duration,
    counts: Counts<'_>,
    found: &[Finding],
    completeness: &Completeness,
) -> Families {
    let mut lost = completeness.clone();
    let mut families = match counts {
        Counts::ByTarget(series, names) => {
            let mut families = Families::since(Some(start));
            by_target(&mut families, &rows(series, names));
            families
        }
        Counts::OfNode(totals) => {
            lost.add_losses(&totals.lost_before);
            // Counts that are kept may be those of an earlier process.
            let is_kept = totals.is_kept == Some(true);
            let mut families = Families::since((!is_kept).then_some(start));
            of_node(&mut families, totals);
            families
        }
    };
    findings(&mut families, found);
    losses(&mut families, &lost);
    let start_s = start.as_nanosecond() as f64 / 1e9;
    families.gauge("podstuck_start_time_seconds", "When tracing began, since the epoch.", start_s);
    families.gauge(
        "podstuck_window_seconds",
        "How long podstuck has traced.",
        window.as_secs_f64(),
    );
    families
}

fn by_target(families: &mut Families, rows: &BTreeMap<Labels, Series>) {
    let calls = rows.iter().filter(|(labels, _)| labels.is_call);
    let calls = calls.map(|(labels, series)| (pairs_of(labels), series.calls as f64));
    let durations = rows.iter().map(|(labels, series)| (pairs_of(labels), latency(series)));
    series(families, calls, durations);
}

fn of_node(families: &mut Families, totals: &Totals) {
    let pairs_of = |key: &NodeKey| {
        let mut pairs = labels([
            ("syscall", key.span.name()),
            ("outcome", &key.outcome.name()),
            ("component", key.component.name()),
            ("plugin", &safe(key.plugin.as_bytes())),
        ]);
        // An empty label is left out.
        pairs.retain(|pair| !pair.value.is_empty());
        pairs
    };
    let mut calls: BTreeMap<NodeKey, u64> = BTreeMap::new();
    for (key, series) in &totals.series {
        if matches!(key.span, Span::Call(_)) {
            let both = NodeKey { on_target: true, ..key.clone() };
            *calls.entry(both).or_default() += series.calls;
        }
    }
    let calls = calls.iter().map(|(key, calls)| (pairs_of(key), *calls as f64));
    // For calls outside of all targets, which a busy node makes in every form, the count is enough.
    let timed = totals.series.iter().filter(|(key, _)| key.on_target);
    let durations = timed.map(|(key, series)| (pairs_of(key), native(latency(series), series)));
    series(families, calls, durations);
    if let Some(is_kept) = totals.is_kept {
        let help = "Whether the counts outlive this process.";
        families.gauge("podstuck_counts_kept", help, f64::from(u8::from(is_kept)));
        let help = "Restarts between which calls may be missing in the counts.";
        families.counter("podstuck_count_gaps_total", help, totals.gaps as f64);
    }
}

fn series(
    families: &mut Families,
    calls: impl Iterator<Item = (Vec<LabelPair>, f64)>,
    durations: impl Iterator<Item = (Vec<LabelPair>, Histogram)>,
) {
    families.counters("podstuck_calls_total", "Calls that returned.", calls);
    families.histograms(
        "podstuck_call_duration_seconds",
        "Time from entry to return of the calls, and of the phases around umount2.",
        durations,
    );
}

fn findings(families: &mut Families, findings: &[Finding]) {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for f in findings {
        let key = (f.id, words::severity(f.severity), words::state(f.state));
        *counts.entry(key).or_default() += 1;
    }
    let metrics = counts.into_iter().map(|((id, severity, state), n)| {
        (labels([("id", id.as_str()), ("severity", severity), ("state", state)]), n as f64)
    });
    families.gauges("podstuck_findings", "Findings by cause.", metrics);
}

fn losses(families: &mut Families, c: &Completeness) {
    for (name, help, value) in [
        (
            "podstuck_events_lost_total",
            "Events that did not fit the ring; the counts are not affected.",
            c.events_lost,
        ),
        (
            "podstuck_events_limited_total",
            "Events held back by rate limits; the counts are not affected.",
            c.events_limited,
        ),
        (
            "podstuck_unmatched_exits_total",
            "Calls whose entry was not seen; not counted.",
            c.unmatched_exits,
        ),
        (
            "podstuck_map_full_total",
            "Calls not followed or not counted because a table was full.",
            c.map_full,
        ),
        (
            "podstuck_outcome_unknown_total",
            "Calls entered and not seen to return; not counted.",
            c.outcome_unknown,
        ),
        (
            "podstuck_io_uring_deletions_total",
            "Deletions by io_uring, which are noticed and not counted by outcome.",
            c.io_uring_deletions,
        ),
        (
            "podstuck_drains_failed_total",
            "Times that the probes' tables could not be read in full.",
            c.drains_failed,
        ),
        ("podstuck_unresolved_calls_total", "Calls counted without a target.", c.unresolved),
        (
            "podstuck_look_alike_calls_total",
            "Calls on paths that look like a target's and belong to no known target.",
            c.look_alikes,
        ),
    ] {
        families.counter(name, help, value as f64);
    }
    // Without a measurement, there is no sample.
    if let Some(skipped) = c.probes_skipped {
        let help = "Calls not seen because the kernel ran no probes on that CPU at that moment.";
        families.counter("podstuck_probes_skipped_total", help, skipped as f64);
    }
    let late = c.looks_late_s as f64;
    let help = "Longest time that a scan of the node's state was overdue; 0 below a minute.";
    families.gauge("podstuck_looks_late_seconds", help, late);
    let missing = c.probes_missing.len() as f64;
    families.gauge("podstuck_probes_missing", "Probes that are not attached.", missing);
}

fn pairs_of(labels: &Labels) -> Vec<LabelPair> {
    let mut pairs = podstuck_exposition::labels([
        ("syscall", labels.syscall),
        ("outcome", &labels.outcome),
        ("pod", &labels.pod),
        ("volume", &labels.volume),
        ("component", labels.component),
        ("namespace", &labels.names.namespace),
        ("pod_name", &labels.names.pod_name),
        ("container", &labels.container),
        ("plugin", &labels.names.plugin),
    ]);
    let of_target = ["namespace", "pod_name", "container", "plugin"];
    pairs.retain(|pair| !pair.value.is_empty() || !of_target.contains(&pair.name.as_str()));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{export::sample, present::sample as findings};
    use podstuck_common::{bucket::bucket_of, count::CallTotals};
    use podstuck_model::{
        call::{Call, Outcome},
        identity::Component,
        series::TargetNames,
    };

    fn names() -> NamesTable {
        let names = TargetNames {
            namespace: "shop".into(),
            pod_name: "cart-0".into(),
            ..TargetNames::default()
        };
        let key = (sample::UID.into(), "data".into(), String::new());
        NamesTable::from([(key, names)])
    }

    fn render(series: &SeriesTable, found: &[Finding]) -> String {
        render_by(Counts::ByTarget(series, &names()), found)
    }

    fn render_by(counts: Counts<'_>, found: &[Finding]) -> String {
        let lost = Completeness { events_lost: 3, ..Default::default() };
        let window = Duration::from_millis(30_500);
        prometheus(sample::start(), window, counts, found, &lost).text().unwrap()
    }

    fn totals(plugins: &[(&str, bool)]) -> Totals {
        let mut totals = Totals::default();
        for (plugin, on_target) in plugins {
            let (span, outcome) = (Span::Call(Call::Unlink), Outcome::OK);
            let (component, plugin) = (Component::Kubelet, (*plugin).to_owned());
            let key = NodeKey { span, outcome, component, plugin, on_target: *on_target };
            totals.add(key, bucket_of(5_000), CallTotals::of_equal(2, 5_000));
        }
        totals
    }

    #[test]
    fn counters_findings_and_losses_are_there_with_escaped_labels() {
        let text = render(&sample::table(), &[findings::finding(), findings::finding()]);
        let uid = sample::UID;
        for line in [
            "# TYPE podstuck_calls_total counter".to_owned(),
            format!(
                "podstuck_calls_total{{syscall=\"unlinkat\",outcome=\"EBUSY\",pod=\"{uid}\",volume=\"data\",component=\"kubelet\",namespace=\"shop\",pod_name=\"cart-0\"}} 103"
            ),
            format!(
                "podstuck_calls_total{{syscall=\"unlink\",outcome=\"ok\",pod=\"{uid}\",volume=\"a,b\\\" ;c\\\\x1b\",component=\"workload\"}} 2"
            ),
            "podstuck_findings{id=\"volume-held-by-host-process\",severity=\"critical\",state=\"new\"} 2".into(),
            "podstuck_events_lost_total 3".into(),
            "podstuck_window_seconds 30.5".into(),
            "podstuck_start_time_seconds 1700000000".into(),
        ] {
            assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
        }
        assert!(!text.contains("# EOF"));
    }

    #[test]
    fn of_calls_outside_of_all_targets_a_nodes_metrics_have_the_count_alone() {
        let outside = render_by(Counts::OfNode(&totals(&[("", false)])), &[]);
        let line = "podstuck_calls_total{syscall=\"unlink\",outcome=\"ok\",component=\"kubelet\"} ";
        assert!(outside.contains(&format!("{line}2\n")), "{outside}");
        assert!(!outside.contains("podstuck_call_duration_seconds_bucket"), "{outside}");
        assert!(!outside.contains("podstuck_count_gaps_total"), "{outside}");
        let both = totals(&[("", false), ("", true), ("a\u{1b}", true)]);
        let both = render_by(Counts::OfNode(&both), &[]);
        assert!(both.contains(&format!("{line}4\n")), "{both}");
        assert!(both.contains("plugin=\"a\\\\x1b\"} 2\n"), "{both}");
        assert!(both.contains("podstuck_call_duration_seconds_count{syscall=\"unlink\",outcome=\"ok\",component=\"kubelet\"} 2\n"), "{both}");
    }

    #[test]
    fn a_nodes_metrics_go_on_where_those_before_ended() {
        let before = Completeness { events_lost: 4, ..Default::default() };
        let totals = Totals { lost_before: before, gaps: 1, is_kept: Some(true), ..totals(&[]) };
        let text = render_by(Counts::OfNode(&totals), &[]);
        for line in [
            "podstuck_events_lost_total 7",
            "podstuck_count_gaps_total 1",
            "podstuck_counts_kept 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
    }

    #[test]
    fn a_series_costs_eleven_lines() {
        let lines = |series: &SeriesTable| render(series, &[]).lines().count();
        let (all, none) = (lines(&sample::table()), lines(&SeriesTable::new()));
        let heads = 2 * 2;
        assert_eq!(all - none, heads + 11 * sample::table().len());
    }

    #[test]
    fn a_quiet_window_still_tells_that_nothing_was_lost() {
        let text = render(&SeriesTable::new(), &[]);
        assert!(!text.contains("podstuck_calls_total"), "{text}");
        assert!(text.contains("podstuck_map_full_total 0\n"), "{text}");
    }
}
