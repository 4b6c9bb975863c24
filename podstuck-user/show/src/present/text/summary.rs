//! The summary of a run: the verdict, the exact counts, what may be missing, the tool's own cost.

use std::collections::BTreeSet;

use super::nouns::text;
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::summary::{ByOutcome, Completeness, NotLookedAt, SelfCost, Summary};

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This number of findings.
    Findings(u64),
    /// Nothing wrong.
    Nothing,
    /// No cause, though the target is still there.
    NoCause,
}

/// The number of findings, or that nothing wrong was found, and how certain that is.
pub fn summary(summary: &Summary, found: Found, style: Style) -> String {
    let verdict = match found {
        Found::Findings(number) => words::plural(number, "finding", "findings"),
        _ if summary.completeness.is_open() => "no finding".to_owned(),
        Found::NoCause => "no cause was found".to_owned(),
        Found::Nothing => style.paint(Ink::Good, "nothing wrong was found"),
    };
    let losses = summary.completeness.losses();
    let mut out = format!(
        "{verdict} in {}: {}, {}\n",
        words::window(summary.window_s),
        words::plural(summary.calls, "call", "calls"),
        if losses.is_empty() { "nothing was lost" } else { "but not everything was seen:" }
    );
    for loss in losses {
        out.push_str(&style.wrap("  - ", "    ", &loss));
    }
    for call in &summary.completeness.not_returned {
        out.push_str(&style.wrap("  ", "    ", &text(call)));
    }
    out.push_str(&table(&summary.by_outcome));
    for note in notes(&summary.completeness) {
        out.push_str(&style.wrap("  ", "  ", &note));
    }
    out.push_str(&style.wrap("  ", "  ", &cost(&summary.cost, summary.window_s)));
    out
}

/// Reports failing calls below a root that podstuck does not watch, and the option that adds it.
pub fn not_looked_at(it: &NotLookedAt, style: Style) -> String {
    style.wrap("", "  ", &text(&not_looked_at_sentence(it)))
}

pub(crate) fn not_looked_at_sentence(it: &NotLookedAt) -> String {
    let NotLookedAt { root, process, call, path, failed, why } = it;
    let times = words::plural(*failed, "time", "times");
    // Text to be copied contains nothing that a shell interprets.
    let is_plain = root.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
    let option = if is_plain { root.as_str() } else { "DIR, this directory," };
    let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!(
        "not examined: {root}; add --kubelet-root {option} if it holds pods: {process} fails there ({call}, {times} at \
         least, as on {path}), and it is not known as a kubelet's root directory{why}"
    )
}

/// What is not a loss, but worth knowing.
pub(crate) fn notes(c: &Completeness) -> Vec<String> {
    [
        (
            c.events_limited,
            "event",
            "events",
            "held back by rate limits; all of them are in the counts",
        ),
        (c.unresolved, "call", "calls", "counted without a target: path too long or unreadable"),
    ]
    .into_iter()
    .filter(|(n, ..)| *n > 0)
    .map(|(n, one, many, meaning)| format!("{} {meaning}", words::plural(n, one, many)))
    .chain(look_alikes(c))
    .chain(c.probes_skipped.is_none().then(|| {
        "calls at whose return the kernel ran no probes: unknown, because this kernel does not count them".into()
    }))
    .collect()
}

/// A note about paths that look like a pod's: a process imitates a pod's files, or a kubelet's root is not known.
fn look_alikes(c: &Completeness) -> Option<String> {
    let calls = (c.look_alikes > 0).then(|| words::plural(c.look_alikes, "call", "calls"))?;
    let example = c.look_alike.as_ref().map(|seen| format!(", as {}", text(seen)));
    Some(format!(
        "{calls} on paths that read like a pod's or a container's and are in no known kubelet's or \
         runtime's directory: counted without a target{}; a kubelet's root that is missing is added with \
         --kubelet-root",
        example.unwrap_or_default()
    ))
}

/// A table of outcomes by call: there are at most five calls, so it fits 80 columns.
fn table(by_outcome: &ByOutcome) -> String {
    let calls: Vec<_> = by_outcome.iter().filter(|(_, outcomes)| !outcomes.is_empty()).collect();
    let outcomes: BTreeSet<_> = calls.iter().flat_map(|(_, outcomes)| outcomes.keys()).collect();
    // Success first: failures are compared with it.
    let (ok, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|o| *o == "ok");
    let mut out = String::new();
    if calls.is_empty() {
        return out;
    }
    let mut row = |name: &str, cells: Vec<String>| {
        let mut line = format!("  {name:<10}");
        for ((call, _), cell) in calls.iter().zip(cells) {
            line.push_str(&format!("  {cell:>width$}", width = call.len().max(9)));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    };
    row("", calls.iter().map(|(call, _)| (*call).to_string()).collect());
    for outcome in ok.into_iter().chain(failed) {
        let cell = |n: Option<&u64>| n.map_or("-".into(), |n| words::count(*n));
        row(
            &text(outcome),
            calls.iter().map(|(_, outcomes)| cell(outcomes.get(outcome))).collect(),
        );
    }
    out
}

pub(crate) fn cost(cost: &SelfCost, window_s: f64) -> String {
    let mut out = format!("podstuck itself took {:.2} s of CPU time", cost.cpu_s);
    if window_s > 0.0 {
        out.push_str(&format!(" ({:.1} % of one core)", 100.0 * cost.cpu_s / window_s));
    }
    out.push_str(&format!(" and {}", words::mebibytes(cost.rss_bytes)));
    if let Some(ns) = cost.bpf_ns_per_call {
        out.push_str(&format!("; its probes add {ns:.0} ns to each call"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample::{self, HOSTILE};

    #[test]
    fn a_quiet_run_says_so_with_window_counts_and_completeness() {
        assert_eq!(
            summary(&sample::summary(), Found::Nothing, Style::PLAIN),
            "\
nothing wrong was found in 30 s: 800,015 calls, nothing was lost
               unlinkat  unlinkat+AT_REMOVEDIR
  ok                  -                800,000
  EBUSY               -                      3
  EISDIR             12                      -
  podstuck itself took 0.12 s of CPU time (0.4 % of one core) and 12.3 MiB
"
        );
    }

    #[test]
    fn a_target_that_is_still_there_is_not_declared_well() {
        let printed = summary(&sample::summary(), Found::NoCause, Style::PLAIN);
        assert!(printed.starts_with("no cause was found in 30 s: "), "{printed}");
    }

    #[test]
    fn a_root_that_was_not_watched_is_not_declared_well() {
        let mut blind = sample::summary();
        let mut it = NotLookedAt {
            root: "/data/kubelet".into(),
            process: "agent (pid 7)".into(),
            call: "umount2 EBUSY".into(),
            path: "/data/kubelet/pods/u/volumes/v".into(),
            failed: 3,
            why: None,
        };
        let style = Style { width: 300, ..Style::PLAIN };
        let printed = not_looked_at(&it, style);
        let first =
            "not examined: /data/kubelet; add --kubelet-root /data/kubelet if it holds pods: agent";
        assert!(printed.starts_with(first), "{printed}");
        assert!(printed.ends_with("not known as a kubelet's root directory\n"), "{printed}");
        it.root = "/tmp/$(id)".into();
        it.why = Some("/tmp is not root's alone".into());
        let printed = not_looked_at(&it, style);
        assert!(printed.contains("add --kubelet-root DIR, this directory, if"), "{printed}");
        assert!(printed.contains("(/tmp is not root's alone)"), "{printed}");
        blind.completeness.not_looked_at = vec![it];
        assert!(summary(&blind, Found::Nothing, style).starts_with("no finding in 30 s:"));
        assert!(summary(&blind, Found::Findings(1), style).starts_with("1 finding in 30 s:"));
    }

    #[test]
    fn a_call_that_has_not_returned_is_no_all_clear() {
        let mut open = sample::summary();
        open.completeness.not_returned = vec!["openat of /v has not returned for 12 s".into()];
        let printed = summary(&open, Found::Nothing, Style::PLAIN);
        let mut lines = printed.lines();
        assert!(
            lines.next().is_some_and(|line| line.starts_with("no finding in 30 s:")),
            "{printed}"
        );
        assert_eq!(lines.next(), Some("  openat of /v has not returned for 12 s"));
    }

    #[test]
    fn every_loss_is_shown_with_its_meaning() {
        let mut lossy = sample::summary();
        lossy.by_outcome.clear();
        lossy.cost.bpf_ns_per_call = Some(351.4);
        lossy.completeness = Completeness {
            events_lost: 1,
            events_limited: 2,
            unmatched_exits: 3,
            map_full: 4_000,
            outcome_unknown: 10,
            probes_skipped: Some(6),
            io_uring_deletions: 7,
            drains_failed: 8,
            looks_late_s: 80,
            objects_dropped: 9,
            unresolved: 5,
            look_alikes: 12,
            look_alike: Some("/srv/pods/x by sh (pid 7)".into()),
            not_looked_at: Vec::new(),
            not_returned: Vec::new(),
            probes_missing: vec![HOSTILE.into()],
            degraded: vec!["helper process 7 does not come back".into(), HOSTILE.into()],
        };
        let shown = summary(&lossy, Found::Findings(2), Style { width: 200, ..Style::PLAIN });
        assert_eq!(
            shown,
            "\
2 findings in 30 s: 800,015 calls, but not everything was seen:
  - 1 event did not fit the ring: details are missing, the counts are not affected
  - 3 calls returned without an entry seen (most were under way when tracing began): not counted
  - 4,000 calls met a full table: not followed or not counted
  - 6 calls not seen: the kernel ran no probes on that CPU at that moment
  - 10 calls entered and not seen to return: outcome unknown, not counted
  - 7 deletions by io_uring noticed but not counted: io_uring makes no system call for each
  - 8 times the probes' tables could not be read in full: counts came later, the last ones may be missing
  - 9 objects forgotten because too many were followed: findings about them may be missing, the counts are not affected
  - the node's state was not scanned for 80 seconds: mounts that no process unmounts and processes that do not end were not noticed in that time; the counts are not affected
  - probe missing, so its events were not seen: \\x1b[2J\\x0aok\\xe2\\x80\\xae\\xc2\\x9b31m\\x7f
  - helper process 7 does not come back
  - \\x1b[2J\\x0aok\\xe2\\x80\\xae\\xc2\\x9b31m\\x7f
  2 events held back by rate limits; all of them are in the counts
  5 calls counted without a target: path too long or unreadable
  12 calls on paths that read like a pod's or a container's and are in no known kubelet's or runtime's directory: counted without a target, as /srv/pods/x by sh (pid 7); a kubelet's root that is
  missing is added with --kubelet-root
  podstuck itself took 0.12 s of CPU time (0.4 % of one core) and 12.3 MiB; its probes add 351 ns to each call
"
        );
    }

    #[test]
    fn losses_are_shown_whenever_the_run_counts_as_lossy() {
        for change in [
            |c: &mut Completeness| c.events_lost = 1,
            |c: &mut Completeness| c.unmatched_exits = 1,
            |c: &mut Completeness| c.map_full = 1,
            |c: &mut Completeness| c.probes_skipped = Some(1),
            |c: &mut Completeness| c.probes_skipped = Some(0),
            |c: &mut Completeness| c.outcome_unknown = 1,
            |c: &mut Completeness| c.io_uring_deletions = 1,
            |c: &mut Completeness| c.drains_failed = 1,
            |c: &mut Completeness| c.looks_late_s = 60,
            |c: &mut Completeness| c.objects_dropped = 1,
            |c: &mut Completeness| c.probes_missing.push("x".into()),
            |c: &mut Completeness| c.degraded.push("x".into()),
            |c: &mut Completeness| c.events_limited = 1,
            |c: &mut Completeness| c.unresolved = 1,
            |c: &mut Completeness| c.look_alikes = 1,
        ] {
            let mut c = Completeness::default();
            change(&mut c);
            assert_eq!(c.lost_data(), !c.losses().is_empty(), "{c:?}");
        }
    }
}
