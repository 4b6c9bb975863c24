//! The counts that a tracer reports, and whether they are correct.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::place::POD;
use super::tracer::Tracer;
use super::workload::{Tally, Workload, total};

/// The counts of a tracer.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Counted calls; a tracer of the whole machine includes other processes' calls.
    pub(crate) calls: u64,
    /// Calls that it reports as not counted.
    pub(crate) lost_calls: u64,
    /// Event records that it reports as lost; they contain no counts.
    pub(crate) lost_events: u64,
    /// By call and outcome, if the tracer distinguishes the pod's.
    pub(crate) of_pod: Option<Tally>,
}

impl Seen {
    /// Reads the counts from the tracer's output or from its folder.
    pub(crate) fn read(
        tracer: Tracer,
        workload: Workload,
        printed: &str,
        complained: &str,
        folder: &Path,
    ) -> Result<Option<Self>> {
        let table = || {
            let path = folder.join("table");
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(match tracer {
            Tracer::None | Tracer::NoneAgain => None,
            _ if tracer.step().is_some() => None,
            Tracer::BpftraceCount | Tracer::BpftraceLatency => Some(bpftrace(printed, complained)),
            Tracer::Strace | Tracer::PerfTrace => Some(from_table(&table()?, workload.syscall())),
            Tracer::Podstuck | Tracer::PodstuckBefore => {
                let exported = folder.join("export/histograms.csv");
                let of_pod = from_export(&exported)?;
                Some(Self { of_pod: Some(of_pod), ..podstuck(printed)? })
            }
            _ => Some(podstuck(printed)?),
        })
    }

    /// The difference to the truth that is not reported as lost; `None` without one.
    pub(crate) fn contradiction(&self, tracer: Tracer, truth: &Tally) -> Option<String> {
        let of_pod = self.of_pod.as_ref()?;
        let nothing = Tally::new();
        let expected = if tracer == Tracer::PodstuckOtherPod { &nothing } else { truth };
        if of_pod == expected {
            return None;
        }
        let missing = total(expected).saturating_sub(total(of_pod));
        if missing > 0 && missing <= self.lost_calls {
            return None;
        }
        Some(format!("counted {of_pod:?}, but the truth is {expected:?}"))
    }
}

/// The output has a line of JSON for each map.
fn bpftrace(printed: &str, complained: &str) -> Seen {
    let mut seen = Seen::default();
    for line in printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        for counted in line["data"]["@seen"].as_object().into_iter().flat_map(|map| map.values()) {
            seen.calls += match counted {
                Value::Array(buckets) => buckets.iter().filter_map(|b| b["count"].as_u64()).sum(),
                number => number.as_u64().unwrap_or(0),
            };
        }
    }
    // "Lost 12 events"
    seen.lost_events = complained
        .lines()
        .filter_map(|line| line.strip_prefix("Lost ")?.split(' ').next()?.parse::<u64>().ok())
        .sum();
    seen
}

/// The tables of strace and perf have a row for each system call; the number of calls follows its name.
fn from_table(table: &str, syscall: &str) -> Seen {
    let mut seen = Seen::default();
    for line in table.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some(name) if name == syscall => {
                seen.calls += words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            }
            // "LOST 12 events!"
            Some("LOST") => {
                seen.lost_events +=
                    words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    seen
}

#[derive(Deserialize)]
struct Summary {
    calls: u64,
    by_outcome: Tally,
    completeness: Completeness,
}

#[derive(Deserialize)]
struct Completeness {
    events_lost: u64,
    unmatched_exits: u64,
    map_full: u64,
    /// Older builds do not have this field.
    #[serde(default)]
    outcome_unknown: u64,
    probes_skipped: Option<u64>,
    unresolved: u64,
}

/// The last line of `podstuck watch --output json`.
pub(crate) fn podstuck(printed: &str) -> Result<Seen> {
    let last = printed.lines().last().context("podstuck printed nothing")?;
    let mut summary: Summary = serde_json::from_str(last)
        .with_context(|| format!("the last line of podstuck is no summary: {last}"))?;
    // It also names calls that were not made.
    summary.by_outcome.retain(|_, outcomes| !outcomes.is_empty());
    let Completeness {
        events_lost,
        unmatched_exits,
        map_full,
        outcome_unknown,
        probes_skipped,
        unresolved,
    } = summary.completeness;
    // Both fields describe the same calls.
    let not_returned = outcome_unknown.max(probes_skipped.unwrap_or(0));
    Ok(Seen {
        calls: summary.calls,
        lost_calls: unmatched_exits + map_full + not_returned + unresolved,
        lost_events: events_lost,
        of_pod: Some(summary.by_outcome),
    })
}

#[derive(Deserialize)]
struct Series {
    syscall: String,
    outcome: String,
    pod: String,
    count: u64,
}

/// The pod's calls in the exported series.
fn from_export(path: &Path) -> Result<Tally> {
    let mut tally = Tally::new();
    let mut reader = csv::Reader::from_path(path)
        .with_context(|| format!("podstuck left no {}", path.display()))?;
    for series in reader.deserialize() {
        let series: Series =
            series.with_context(|| format!("{} is not as expected", path.display()))?;
        // Phases of an unmount, such as `umount2/after-exit`, are not calls.
        if series.pod == POD && !series.syscall.contains('/') {
            *tally.entry(series.syscall).or_default().entry(series.outcome).or_default() +=
                series.count;
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(count: u64) -> Tally {
        Tally::from([("unlinkat".to_owned(), [("ok".to_owned(), count)].into())])
    }

    #[test]
    fn counts_and_histograms_of_bpftrace_are_summed() {
        let printed = "{\"type\": \"map\", \"data\": {\"@seen\": {\"0\": 5, \"-2\": 1}}}\n\n\
             {\"type\": \"hist\", \"data\": {\"@seen\": {\"0\": [{\"min\": 1, \"count\": 3}]}}}\n\
             {\"type\": \"map\", \"data\": {\"@marked\": 1}}";
        let seen = bpftrace(printed, "Lost 12 events\n");
        assert_eq!((seen.calls, seen.lost_events), (9, 12));
    }

    #[test]
    fn tables_are_read_by_the_name_of_the_call() {
        let strace = "syscall calls\n-------- ----\nunlinkat 2000\ntotal 2000\n";
        assert_eq!(from_table(strace, "unlinkat").calls, 2000);
        let perf = "LOST 7 events!\n   unlinkat            2000      0    71.028     0.016\n";
        let seen = from_table(perf, "unlinkat");
        assert_eq!((seen.calls, seen.lost_events), (2000, 7));
    }

    #[test]
    fn only_what_is_not_reported_as_lost_contradicts() {
        let seen = |lost_calls| Seen { lost_calls, of_pod: Some(tally(8)), ..Seen::default() };
        assert!(seen(0).contradiction(Tracer::Podstuck, &tally(8)).is_none());
        assert!(seen(2).contradiction(Tracer::Podstuck, &tally(10)).is_none());
        assert!(seen(1).contradiction(Tracer::Podstuck, &tally(10)).is_some());
        assert!(seen(9).contradiction(Tracer::PodstuckPod, &tally(7)).is_some());
        assert!(seen(0).contradiction(Tracer::PodstuckOtherPod, &tally(8)).is_some());
        assert!(Seen::default().contradiction(Tracer::Strace, &tally(8)).is_none());
    }
}
