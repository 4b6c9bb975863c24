//! The surroundings of the panes: the run, the panes' names, losses and cost, the keys.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{Look, words as fitted};
use crate::{
    present::words,
    tui::{
        choice::{Choice, Pane},
        state::State,
    },
};
use podstuck_model::path::safe;

/// The command, its target, its duration, and its result.
pub(super) fn head(state: &State, choice: &Choice, look: Look, width: u16) -> Line<'static> {
    let target =
        state.start.target.as_deref().map_or("the whole node".into(), |it| safe(it.as_bytes()));
    let window = words::duration(state.window(look.now));
    let found = match (state.holding(), state.findings.len()) {
        (0, 0) => "no finding".to_owned(),
        (0, over) => format!("{}, over", words::plural(over as u64, "finding", "findings")),
        (n, _) => words::plural(n as u64, "finding", "findings"),
    };
    let mut right =
        format!(" {found} · {} · {window}", words::plural(state.calls, "call", "calls"));
    if choice.is_paused {
        right.push_str(" · PAUSED");
    } else if state.is_over {
        right.push_str(" · ended");
    }
    let right = fitted::fit_end(&right, width.into());
    let room = usize::from(width).saturating_sub(textwrap::core::display_width(&right));
    let left = fitted::fit(&format!("{}: {target}", state.command), room);
    Line::from(vec![Span::styled(left, look.ink.strong()), Span::raw(right)])
}

/// The panes' names, each with its digit and its number of entries.
pub(super) fn tabs(state: &State, choice: &Choice, look: Look) -> Line<'static> {
    let mut spans = Vec::new();
    for (digit, pane) in (1..).zip(Pane::ALL) {
        let many = match pane {
            Pane::Findings => state.findings.len(),
            Pane::Flight => state.flights(look.now).len(),
            Pane::Progress => state.deletions().len(),
            Pane::Attempts => state.attempts.ranked(None).len(),
            Pane::Rates | Pane::Latency => 0,
        };
        let many = if many > 0 { format!(" {many}") } else { String::new() };
        let style = if pane == choice.pane { look.ink.chosen() } else { Style::new() };
        spans.push(Span::styled(format!(" {digit} {}{many} ", pane.name()), style));
    }
    Line::from(spans)
}

/// The title of a pane.
pub(super) fn title(pane: Pane, state: &State, choice: &Choice, look: Look) -> String {
    let filter = match choice.filter.as_str() {
        "" => String::new(),
        filter => format!(", with “{filter}”"),
    };
    match pane {
        Pane::Findings => format!(" Findings, by rank{filter} "),
        Pane::Flight => format!(" Calls in flight, the oldest first{filter} "),
        Pane::Rates => {
            format!(" Rates of {}, by {}{filter} ", choice.group.name(), choice.sort.name())
        }
        Pane::Latency => {
            let rows = state.rates.rows(
                choice.group,
                choice.sort,
                &choice.filter,
                state.seconds(look.now),
            );
            let chosen = choice.row(&rows).map_or("all calls", |row| rows[row].0);
            format!(" Latency of {chosen} ")
        }
        Pane::Progress => " Mass deletions ".into(),
        Pane::Attempts => " Attempts, those of the chosen finding first ".into(),
    }
}

/// Window, loss and own cost.
pub(super) fn status(state: &State, look: Look, width: u16) -> Line<'static> {
    let lost = &state.completeness;
    let (loss, style) = if !lost.lost_data() {
        ("nothing lost".to_owned(), look.ink.good())
    } else {
        (format!("not everything seen: {}", first_loss(state)), look.ink.warn())
    };
    let window = state.window(look.now);
    let cost = &state.cost;
    let mut own = format!(" · podstuck: {:.2} s of CPU", cost.cpu_s);
    if window > 0 {
        own.push_str(&format!(" ({:.1} %)", 100.0 * cost.cpu_s / window as f64));
    }
    own.push_str(&format!(", {}", words::mebibytes(cost.rss_bytes)));
    if let Some(ns) = cost.bpf_ns_per_call {
        own.push_str(&format!(", {ns:.0} ns a call"));
    }
    if cost.rss_bytes == 0 {
        own.clear();
    }
    let begin = format!("window {} · ", words::duration(window));
    let taken = begin.chars().count() + loss.chars().count() + own.chars().count();
    if window > 0 && taken > width.into() {
        own = format!(" · {:.1} % CPU", 100.0 * cost.cpu_s / window as f64);
    }
    let room = usize::from(width).saturating_sub(begin.chars().count() + own.chars().count());
    Line::from(vec![
        Span::raw(begin),
        Span::styled(fitted::fit_end(&loss, room.max(12)), style),
        Span::raw(own),
    ])
}

fn first_loss(state: &State) -> String {
    let lost = &state.completeness;
    let counted = [
        (lost.events_lost, "events lost"),
        (lost.map_full, "calls met a full table"),
        (lost.unmatched_exits, "calls without an entry"),
        (lost.outcome_unknown, "outcomes unknown"),
        (lost.probes_skipped.unwrap_or(0), "calls skipped by the kernel"),
        (lost.io_uring_deletions, "deletions by io_uring"),
        (lost.drains_failed, "reads failed"),
        (lost.looks_late_s, "s without a scan of the node"),
        (lost.objects_dropped, "objects forgotten"),
    ];
    let counted = counted.iter().filter(|(n, _)| *n > 0);
    let mut all: Vec<String> =
        counted.map(|(n, what)| format!("{} {what}", words::count(*n))).collect();
    all.extend(
        lost.probes_missing.iter().chain(&lost.degraded).map(|it| safe(it.as_bytes()).into()),
    );
    all.join(", ")
}

/// The effect of the last key, the filter being typed, or the keys.
pub(super) fn keys(choice: &Choice, look: Look, width: u16) -> Line<'static> {
    let width = usize::from(width);
    if choice.is_typing() {
        return Line::from(fitted::fit_end(
            &format!("/{}▏ Enter keeps it, Esc drops it", choice.filter),
            width,
        ));
    }
    if let Some(notice) = &choice.notice {
        return Line::styled(fitted::fit_end(&safe(notice.as_bytes()), width), look.ink.strong());
    }
    let keys = "? help  Tab pane  j/k choose  Enter whole  / filter  y copy  p pause  q quit";
    Line::styled(fitted::fit_end(keys, width), look.ink.label())
}
