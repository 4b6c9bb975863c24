//! The chosen row's latency: a histogram of the whole run, and beside it the distribution over time.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::words,
    tui::{
        choice::Choice,
        heat::{Heat, band_from},
        state::State,
    },
};

/// Columns of a band's name and of its count.
const NAME: usize = 8;
const CALLS: usize = 11;
/// From few to many.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// Seconds per column: the smallest step that fits the whole run on the screen.
const EACH: [u64; 6] = [1, 2, 5, 10, 30, 60];

pub(super) fn lines(
    state: &State,
    choice: &Choice,
    look: Look,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let now = state.seconds(look.now);
    let rows = state.rates.rows(choice.group, choice.sort, &choice.filter, now);
    let heat = choice.row(&rows).map_or(&state.rates.all, |row| rows[row].1);
    let bands = heat.bands();
    let (Some((first, _)), Some((last, _))) = (bands.first_key_value(), bands.last_key_value())
    else {
        return vec![Line::styled("no call was counted", look.ink.label())];
    };
    let rest = width.saturating_sub(NAME + CALLS + 5);
    let bars = (rest * 2 / 5).max(6);
    let columns = rest.saturating_sub(bars);
    let each = EACH.into_iter().find(|each| now <= each * columns as u64).unwrap_or(60);
    let most = bands.values().copied().max().unwrap_or(1);
    let mut out = vec![heading(heat, look), axis(bars, columns, each, look)];
    // Without room for all, the longest are what matters.
    let room = height.saturating_sub(out.len()).max(1);
    let grid: Vec<_> = (*first..=*last).rev().take(room).collect();
    let rows: Vec<_> = grid.iter().map(|band| heat.row(*band, now, columns, each)).collect();
    let densest = rows.iter().flatten().copied().max().unwrap_or(0);
    for (band, row) in grid.iter().zip(rows) {
        let calls = bands.get(band).copied().unwrap_or(0);
        let bar = scaled(calls, most, bars);
        let shades: String =
            row.iter().map(|n| SHADES[scaled(*n, densest, SHADES.len() - 1)]).collect();
        let name = if *band == 0 { "shorter".into() } else { fitted::latency(band_from(*band)) };
        out.push(Line::from(vec![
            Span::styled(format!("{name:>NAME$} "), look.ink.label()),
            Span::styled(fitted::fit(&"█".repeat(bar), bars), look.ink.bar()),
            Span::raw(format!(" {:>CALLS$}", words::count(calls))),
            Span::styled(" │", look.ink.label()),
            Span::styled(shades, look.ink.heat()),
        ]));
    }
    out
}

fn heading(heat: &Heat, look: Look) -> Line<'static> {
    let of = |share| heat.quantile(share).map_or("-".into(), fitted::latency);
    let text = format!(
        "{}: p50 {}, p90 {}, p99 {}, p99.9 {}, mean {}",
        words::plural(heat.series.calls, "call", "calls"),
        of(0.5),
        of(0.9),
        of(0.99),
        of(0.999),
        fitted::latency(heat.series.mean_ns().round() as u64)
    );
    Line::styled(text, look.ink.strong())
}

fn axis(bars: usize, columns: usize, each: u64, look: Look) -> Line<'static> {
    let left = fitted::fit("   from   calls (bars: logarithmic)", NAME + 1 + bars + 1 + CALLS);
    let time = format!("{} s a column, until now →", each);
    Line::styled(format!("{left} │{:>columns$}", fitted::fit_end(&time, columns)), look.ink.label())
}

/// A bar's length of at most `columns`, by the logarithm, so that a few slow calls are visible beside a million fast
/// ones; at least one for one call.
fn scaled(n: u64, most: u64, columns: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let share = (n as f64).ln_1p() / (most.max(1) as f64).ln_1p();
    ((share * columns as f64).round() as usize).clamp(1, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_beside_a_million_is_seen_and_none_is_not() {
        assert_eq!(scaled(0, 1_000_000, 10), 0);
        assert_eq!(scaled(1, 1_000_000, 10), 1);
        assert_eq!(scaled(1_000_000, 1_000_000, 10), 10);
        assert_eq!(scaled(1, 1, 4), 4);
    }
}
