//! Rates: how fast each pod, volume or process deletes, how often in vain, and how long it takes.

use ratatui::text::Line;

use super::{Look, words as fitted};
use crate::{
    present::words,
    tui::{choice::Choice, heat::Heat, state::State},
};

/// Width of the columns of numbers.
const COLUMNS: usize = 10 + 11 + 9 + 9 + 9;

/// The rows, below their headings, and which one is chosen.
pub(super) fn lines(
    state: &State,
    choice: &Choice,
    look: Look,
    width: usize,
) -> (Vec<Line<'static>>, usize) {
    let now = state.seconds(look.now);
    let rows = state.rates.rows(choice.group, choice.sort, &choice.filter, now);
    let chosen = choice.row(&rows).map_or(0, |row| row + 1);
    let room = width.saturating_sub(COLUMNS);
    let head = format!(
        "{}{:>10}{:>11}{:>9}{:>9}{:>9}",
        fitted::fit(choice.group.name(), room),
        "deleted/s",
        "deleted",
        "failed",
        "p50",
        "p99"
    );
    let mut out = vec![Line::styled(head, look.ink.label())];
    let all = [("all", &state.rates.all)];
    for (at, (name, heat)) in all.into_iter().chain(rows).enumerate() {
        let style = match (at == chosen, heat.failed > 0) {
            (true, _) => look.ink.chosen(),
            (false, true) => look.ink.warn(),
            (false, false) => Default::default(),
        };
        out.push(Line::styled(row(name, heat, now, room), style));
    }
    (out, chosen + 1)
}

fn row(name: &str, heat: &Heat, now: u64, room: usize) -> String {
    let quantile = |share| heat.quantile(share).map_or("-".into(), fitted::latency);
    format!(
        "{}{:>10}{:>11}{:>9}{:>9}{:>9}",
        fitted::fit(&fitted::middle(name, room.saturating_sub(1)), room),
        fitted::rate(heat.rate(now)),
        words::count(heat.deleted),
        words::count(heat.failed),
        quantile(0.5),
        quantile(0.99)
    )
}
