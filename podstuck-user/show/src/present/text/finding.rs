//! Renders a finding: in full when it is new, the changes in an update, one line when it is cleared.

use super::{
    nouns::{self, text},
    way_out,
};
use crate::present::{
    near::Near,
    style::{Ink, Style},
    words,
};
use podstuck_model::{
    evidence::Evidence,
    finding::{Finding, FindingState},
};

/// Columns before a field's value.
const LABEL: usize = 12;

/// A finding in its state. An update has all its evidence; [`update`] leaves out what was known.
pub fn finding(finding: &Finding, style: Style) -> String {
    match finding.state {
        FindingState::New => whole(&Near::default().finding(finding), style),
        FindingState::Update => changed(finding, &[], style),
        FindingState::Cleared => cleared(finding, style),
    }
}

/// The changes since the finding was last printed.
pub fn update(now: &Finding, before: &Finding, style: Style) -> String {
    match now.state {
        FindingState::Cleared => cleared(now, style),
        FindingState::New | FindingState::Update => changed(now, &before.evidence, style),
    }
}

/// A finding whose paths are shortened already, in full.
pub(super) fn whole(f: &Finding, style: Style) -> String {
    let mut out = headline(f, style);
    let mut field = |label: &str, value: &str| {
        out.push_str(&format!("  {} {value}\n", style.paint(Ink::Label, &format!("{label:<9}"))));
    };
    if let Some(pod) = &f.pod {
        field("pod", &nouns::pod(pod));
    }
    if let Some(container) = &f.container {
        field("container", &nouns::container(container, f.container_name.as_deref()));
    }
    if let Some(volume) = &f.volume {
        field("volume", &nouns::volume(volume));
        if volume.path != f.call.path {
            field("", &style.path(&nouns::path(&volume.path), LABEL));
        }
    }
    match call(f) {
        Some(call) => {
            field("call", &call);
            field("", &style.path(&nouns::path(&f.call.path), LABEL));
        }
        None => field("object", &style.path(&nouns::path(&f.call.path), LABEL)),
    }
    if let Some(actor) = &f.actor {
        field("by", &nouns::actor(actor));
    }
    field("seen", &seen(f));

    section(&mut out, "evidence", style);
    evidence(&mut out, &f.evidence, style);
    if !f.explanation.is_empty() {
        section(&mut out, "what it means", style);
        out.push_str(&style.wrap("    ", "    ", &text(&f.explanation)));
    }
    if !f.remedies.is_empty() {
        section(&mut out, "what to do (nothing is run for you)", style);
    }
    for remedy in &f.remedies {
        out.push_str(&way_out::way_out(remedy, style));
    }
    if !f.likely_causes_ruled_out.is_empty() {
        section(&mut out, "what it is not", style);
    }
    for cause in &f.likely_causes_ruled_out {
        out.push_str(&style.wrap("    - ", "      ", &text(&cause.to_string())));
    }
    if !f.not_known.is_empty() {
        section(&mut out, "what is not known", style);
    }
    for fact in &f.not_known {
        out.push_str(&style.wrap("    - ", "      ", &text(fact)));
    }
    lacking(&mut out, f, style);
    out
}

fn changed(f: &Finding, known: &[Evidence], style: Style) -> String {
    let mut out = headline(f, style);
    out.push_str(&format!(
        "  {}: {}, last {}\n",
        whom(f),
        words::times(f.count),
        words::moment(f.last)
    ));
    let fresh: Vec<_> = f.evidence.iter().filter(|e| !known.contains(e)).cloned().collect();
    evidence(&mut out, &fresh, style);
    lacking(&mut out, f, style);
    out
}

fn lacking(out: &mut String, f: &Finding, style: Style) {
    if !f.degraded.is_empty() {
        section(out, "what podstuck could not do, and this may lack", style);
    }
    for part in &f.degraded {
        out.push_str(&style.wrap("    - ", "      ", &text(part)));
    }
}

fn cleared(f: &Finding, style: Style) -> String {
    let word = style.paint(Ink::Good, "CLEARED");
    format!(
        "{word} {}: {}, {}, last {}\n",
        f.id,
        whom(f),
        words::times(f.count),
        words::moment(f.last)
    )
}

/// `CRITICAL volume-held-by-host-process (new): blocks the pod, certain (0.95)`.
fn headline(f: &Finding, style: Style) -> String {
    let severity = words::severity(f.severity).to_uppercase();
    format!(
        "{} {} ({}): {}, {}\n",
        style.paint(Ink::Severity(f.severity), &severity),
        f.id,
        words::state(f.state),
        words::blocks(f.blocks_deletion),
        words::certainty(f.certainty)
    )
}

/// `shop/cart-0, volume data`, or the path when neither is known.
fn whom(f: &Finding) -> String {
    let pod = f.pod.as_ref().map(nouns::pod_short);
    let volume = f.volume.as_ref().map(|v| format!("volume {}", text(&v.name)));
    match (pod, volume) {
        (Some(pod), Some(volume)) => format!("{pod}, {volume}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => nouns::path(&f.call.path),
    }
}

pub(crate) fn call(f: &Finding) -> Option<String> {
    let (name, outcome) = (f.call.syscall?.name(), f.call.errno?);
    Some(match outcome.errno() {
        None => format!("{name} succeeded"),
        // The C library's text, as in other logs.
        Some(errno) => format!("{name} failed: {} ({})", outcome.name(), errno.words()),
    })
}

pub(crate) fn seen(f: &Finding) -> String {
    let first = words::moment(f.first);
    if f.count == 1 || f.first == f.last {
        return format!("{}, {first}", words::times(f.count));
    }
    let apart = f.last.duration_since(f.first).as_secs().unsigned_abs();
    format!(
        "{}, {first} to {} ({})",
        words::times(f.count),
        words::moment(f.last),
        words::duration(apart)
    )
}

fn section(out: &mut String, title: &str, style: Style) {
    out.push_str(&format!("  {}\n", style.paint(Ink::Label, title)));
}

fn evidence(out: &mut String, evidence: &[Evidence], style: Style) {
    for one in evidence {
        let line = format!("{} [{}]", text(&one.fact), text(&one.source.to_string()));
        out.push_str(&style.wrap("    - ", "      ", &line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;
    use podstuck_model::{evidence::Source, path::safe};

    const NARROW: Style = Style { width: 72, ..Style::PLAIN };

    #[test]
    fn a_new_finding_is_shown_in_full() {
        let path = "/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes/kubernetes.io~csi/data/mount";
        let expected = format!(
            "\
CRITICAL volume-held-by-host-process (new): blocks the pod, certain (0.95)
  pod       shop/cart-0 (uid 3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d)
  volume    data (kubernetes.io/csi)
  call      umount2 failed: EBUSY (Device or resource busy)
            {path}
  by        umount (pid 812, umount-helper), started by kubelet (pid 700), in cgroup /system.slice/kubelet.service
  seen      3 times, 2023-11-14 22:13:20Z to 2023-11-14 22:17:24Z (4m 4s)
  evidence
    - umount2 failed with EBUSY 3 times, 122 s apart [syscall probe]
    - process 4242 (backup) has its working directory there
      [/proc/4242/cwd]
  what it means
    A process of the host works in the volume. The kernel does not
    unmount a file system that is in use, so kubelet tries again every
    122 seconds.
  what to do (nothing is run for you)
    - end backup (pid 4242), which keeps the volume busy
        kill 4242
      risk: ends the backup
  what it is not
    - nested-mount-under-volume: nothing is mounted below it
"
        );
        assert_eq!(finding(&sample::finding(), NARROW), expected);
    }

    #[test]
    fn an_update_shows_only_the_changes() {
        let before = sample::finding();
        let mut now = sample::finding();
        now.state = FindingState::Update;
        now.count = 4;
        now.evidence.push(Evidence {
            fact: "it is still there".into(),
            source: Source::proc("/proc/4242/cwd"),
            since: sample::time(9),
        });
        assert_eq!(
            update(&now, &before, NARROW),
            "\
CRITICAL volume-held-by-host-process (update): blocks the pod, certain (0.95)
  shop/cart-0, volume data: 4 times, last 2023-11-14 22:17:24Z
    - it is still there [/proc/4242/cwd]
"
        );
        assert_eq!(finding(&now, NARROW).lines().count(), 6);
    }

    #[test]
    fn the_end_is_one_line() {
        let mut over = sample::finding();
        over.state = FindingState::Cleared;
        over.volume = None;
        assert_eq!(
            finding(&over, NARROW),
            "CLEARED volume-held-by-host-process: shop/cart-0, 3 times, last 2023-11-14 22:17:24Z\n"
        );
    }

    #[test]
    fn names_cannot_reach_the_terminal_in_any_state() {
        for state in [FindingState::New, FindingState::Update, FindingState::Cleared] {
            let mut hostile = sample::hostile();
            hostile.state = state;
            let shown = finding(&hostile, NARROW);
            for line in shown.lines() {
                assert_eq!(safe(line.as_bytes()), line, "{shown}");
            }
            assert!(shown.contains(r"\x1b[2J"), "{shown}");
            assert!(!shown.lines().any(|l| l.starts_with("ok")), "a forged line in {shown}");
        }
    }

    #[test]
    fn a_command_stays_on_one_line() {
        let mut long = sample::finding();
        let long_command = format!("umount {}", "/a b".repeat(60));
        long.remedies[0].command = Some(long_command.clone());
        let shown = finding(&long, NARROW);
        assert!(shown.contains(&format!("        {}\n", long_command)), "{shown}");
    }

    #[test]
    fn what_may_be_missing_is_shown_as_long_as_the_finding_stands() {
        let mut lacking = sample::finding();
        lacking.degraded = vec!["the thread that looks at the node has ended".into()];
        let section =
            "  what podstuck could not do, and this may lack\n    - the thread that looks";
        for state in [FindingState::New, FindingState::Update] {
            lacking.state = state;
            assert!(finding(&lacking, NARROW).contains(section), "{}", finding(&lacking, NARROW));
        }
        assert!(!finding(&sample::finding(), NARROW).contains("may lack"));
    }

    #[test]
    fn an_unknown_effect_is_named() {
        let mut bare = sample::finding();
        (bare.pod, bare.volume, bare.blocks_deletion) = (None, None, None);
        bare.call.path = podstuck_model::path::JsonPath("".into());
        let shown = finding(&bare, NARROW);
        assert!(shown.contains("unknown whether it blocks the pod"), "{shown}");
        assert!(shown.contains("(path unknown)"), "{shown}");
    }
}
