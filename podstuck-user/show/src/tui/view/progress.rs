//! Mass deletions: how much is deleted, how much is left, until when.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::{text::nouns, words},
    tui::{
        choice::Choice,
        state::{State, is_over},
    },
};
use podstuck_model::finding::Progress;

/// In seconds. Progress is reported every five seconds: a deletion without a report for longer rests, or is done.
const RESTS: u64 = 15;

pub(super) fn lines(
    state: &State,
    choice: &Choice,
    look: Look,
    width: usize,
) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for deletion in state.deletions() {
        let progress = &deletion.progress;
        let pod = progress.pod.as_ref().map(nouns::pod_short).unwrap_or_default();
        let path = nouns::path(&progress.path);
        if !format!("{pod} {path}").to_lowercase().contains(&choice.filter) {
            continue;
        }
        let room = width.saturating_sub(pod.chars().count() + 1);
        out.push(Line::from(vec![
            Span::styled(format!("{pod} "), look.ink.strong()),
            Span::raw(fitted::middle(&path, room)),
        ]));
        let age = look.now.since(deletion.reported).as_secs();
        let is_gone = state.findings.iter().any(|it| is_over(it) && it.call.path == progress.path);
        let rests = is_gone || state.is_over || age >= RESTS;
        let numbers = match (is_gone, rests) {
            (true, _) => {
                format!("done: {} were deleted at the last report", words::count(progress.deleted))
            }
            (false, true) => {
                let ago = words::duration(age);
                format!("{} deleted at the last report, {ago} ago", words::count(progress.deleted))
            }
            (false, false) => numbers(progress, age),
        };
        if let Some(share) = share(progress).filter(|_| !rests) {
            let columns = width.saturating_sub(numbers.chars().count() + 9).clamp(4, 30);
            let full = ((share * columns as f64) as usize).min(columns);
            out.push(Line::from(vec![
                Span::styled("█".repeat(full), look.ink.bar()),
                Span::styled("░".repeat(columns - full), look.ink.label()),
                Span::raw(format!(" {:>3.0} %  ", share * 100.0)),
                Span::raw(fitted::fit_end(&numbers, width.saturating_sub(columns + 8))),
            ]));
        } else {
            out.push(Line::from(fitted::fit_end(&numbers, width)));
        }
    }
    if out.is_empty() {
        out.push(Line::styled("nothing is deleted in bulk", look.ink.label()));
    }
    out
}

fn share(progress: &Progress) -> Option<f64> {
    let left = progress.remaining_estimate?;
    Some(progress.deleted as f64 / (progress.deleted + left).max(1) as f64)
}

fn numbers(progress: &Progress, age: u64) -> String {
    let mut out = format!("{} deleted", words::count(progress.deleted));
    if let Some(left) = progress.remaining_estimate {
        out.push_str(&format!(", ~{} left", words::count(left)));
    }
    out.push_str(&format!(", {}/s", fitted::rate(progress.rate_per_s)));
    match (progress.eta_range_s, progress.eta_s) {
        (Some((least, most)), Some(eta)) => out.push_str(&format!(
            ", {} ({} to {}) to go",
            words::duration(eta.saturating_sub(age)),
            words::duration(least.saturating_sub(age)),
            words::duration(most.saturating_sub(age))
        )),
        (None, Some(eta)) => {
            out.push_str(&format!(", {} to go", words::duration(eta.saturating_sub(age))));
        }
        (_, None) => out.push_str(", how much is left is not known"),
    }
    out
}
