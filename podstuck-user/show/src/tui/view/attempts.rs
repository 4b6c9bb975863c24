//! The times of removal attempts, and when the next one is expected.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::words,
    tui::{
        attempts::{Basis, Track},
        choice::Choice,
        state::State,
    },
};
use podstuck_model::time::Monotonic;

pub(super) fn lines(
    state: &State,
    choice: &Choice,
    look: Look,
    width: usize,
) -> Vec<Line<'static>> {
    let shown = choice.findings(state);
    let finding = shown.get(choice.place(&shown)).copied();
    let mut out = Vec::new();
    for track in state.attempts.ranked(finding) {
        if !track.label.to_lowercase().contains(&choice.filter) {
            continue;
        }
        let next = track.next().filter(|_| !state.is_over);
        out.push(Line::from(vec![
            Span::styled(fitted::middle(&track.label, width / 2), look.ink.strong()),
            Span::raw(fitted::fit_end(&outcome(track, look.now), width / 2)),
        ]));
        out.push(Line::from(vec![Span::styled(
            axis(track, look.now, next.map(|next| next.0), width),
            look.ink.bar(),
        )]));
        if let Some((at, basis)) = next {
            out.push(Line::styled(expected(at, basis, look.now), look.ink.warn()));
        }
    }
    if out.is_empty() {
        out.push(Line::styled("no attempt has failed", look.ink.label()));
    }
    out
}

fn outcome(track: &Track, now: Monotonic) -> String {
    let many = words::plural(track.count, "attempt", "attempts");
    let last = track.marks.back().map(|mark| {
        let how = mark.error.as_deref().unwrap_or("succeeded");
        format!(", the last {} ago: {how}", words::duration(now.since(mark.at).as_secs()))
    });
    format!(": {many}{}", last.unwrap_or_default())
}

fn expected(at: Monotonic, basis: Basis, now: Monotonic) -> String {
    let why = match basis {
        Basis::Log => "kubelet's log says when",
        Basis::BackOff => "by kubelet's back-off so far",
    };
    match at.since(now).as_secs() {
        0 => format!(
            "  the next attempt is due, since {}: {why}",
            words::duration(now.since(at).as_secs())
        ),
        left => format!("  the next attempt in {}: {why}", words::duration(left)),
    }
}

/// A time axis from the first attempt to the next one: `x` failed, `o` succeeded, `|` is now, `?` is expected.
fn axis(track: &Track, now: Monotonic, next: Option<Monotonic>, width: usize) -> String {
    let columns = width.saturating_sub(4).max(10);
    let first = track.marks.front().map_or(now, |mark| mark.at);
    let last = next.map_or(now, |next| next.max(now));
    let span = last.since(first).as_secs_f64().max(1.0);
    let place = |at: Monotonic| {
        let share = at.since(first).as_secs_f64() / span;
        ((share * (columns - 1) as f64).round() as usize).min(columns - 1)
    };
    let mut line: Vec<char> = vec!['·'; columns];
    line[place(now)] = '|';
    if let Some(next) = next {
        line[place(next)] = '?';
    }
    for mark in &track.marks {
        line[place(mark.at)] = if mark.error.is_some() { 'x' } else { 'o' };
    }
    format!("  {}", line.into_iter().collect::<String>())
}
