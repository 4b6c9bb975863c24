//! Draws the state and the user's choices. Pure: nothing here reads a clock or a file.

mod attempts;
mod details;
mod findings;
mod flight;
mod frame;
mod help;
mod ink;
mod latency;
mod progress;
mod rates;
mod words;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Line,
    widgets::{Block, BorderType, Borders, Paragraph},
};

pub(super) use ink::Ink;

use super::{
    choice::{Choice, Pane},
    state::State,
};
use podstuck_model::time::Monotonic;

/// Smallest size that shows all panes at once.
const WIDE: (u16, u16) = (150, 40);
/// Smallest readable size.
const SMALLEST: (u16, u16) = (40, 12);
/// Rows of the list of findings beside their details.
const LISTED: usize = 5;

/// The time of drawing, and the colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) now: Monotonic,
    pub(super) ink: Ink,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, choice: &mut Choice, look: Look) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let small = format!("the terminal is too small: it takes {} x {}", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(words::fit(&small, area.width.into())), area);
        return;
    }
    let is_wide = area.width >= WIDE.0 && area.height >= WIDE.1;
    let [head, tabs, body, status, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(frame::head(state, choice, look, head.width), head);
    frame.render_widget(frame::tabs(state, choice, look), tabs);
    if choice.has_help {
        put(frame, body, " Keys ", help::lines(look), &mut 0, look, true);
    } else if is_wide && !choice.is_whole {
        wide(frame, body, state, choice, look);
    } else {
        pane(frame, body, choice.pane, state, choice, look);
    }
    frame.render_widget(frame::status(state, look, status.width), status);
    frame.render_widget(frame::keys(choice, look, keys.width), keys);
}

/// Findings on the left, all else on the right.
fn wide(frame: &mut Frame<'_>, body: Rect, state: &State, choice: &mut Choice, look: Look) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(52), Constraint::Fill(1)]).areas(body);
    pane(frame, left, Pane::Findings, state, choice, look);
    // Hung calls and mass deletions are rare: no more room than they take.
    let room = |lines: usize, most: u16| {
        Constraint::Length(u16::try_from(lines.max(1)).unwrap_or(most).min(most) + 2)
    };
    let width = usize::from(right.width.saturating_sub(2));
    let heights = [
        room(flight::lines(state, choice, look, width).len(), 10),
        Constraint::Fill(1),
        Constraint::Fill(2),
        room(progress::lines(state, choice, look, width).len(), 8),
        room(attempts::lines(state, choice, look, width).len(), 9),
    ];
    let areas = Layout::vertical(heights).split(right);
    for (area, one) in areas.iter().zip(&Pane::ALL[1..]) {
        pane(frame, *area, *one, state, choice, look);
    }
}

fn pane(
    frame: &mut Frame<'_>,
    area: Rect,
    pane: Pane,
    state: &State,
    choice: &mut Choice,
    look: Look,
) {
    let (width, height) =
        (usize::from(area.width.saturating_sub(2)), area.height.saturating_sub(2));
    let is_chosen = choice.pane == pane;
    let mut scroll = choice.scroll[pane as usize];
    let title = frame::title(pane, state, choice, look);
    match pane {
        Pane::Findings => {
            let shown = choice.findings(state);
            let listed = shown.len().clamp(1, LISTED);
            let list = if choice.is_whole && is_chosen { 0 } else { listed as u16 + 2 };
            let [list, details] =
                Layout::vertical([Constraint::Length(list), Constraint::Fill(1)]).areas(area);
            let place = choice.place(&shown);
            if list.height > 0 {
                let mut first = place.saturating_sub(listed - 1);
                let lines = findings::lines(state, &shown, place, look, width);
                put(frame, list, &title, lines, &mut first, look, is_chosen);
            }
            let finding = shown.get(place).copied();
            let title = details::title(state, finding);
            let lines = details::lines(state, finding, look, width);
            put(frame, details, &title, lines, &mut scroll, look, is_chosen);
        }
        Pane::Flight => {
            let lines = flight::lines(state, choice, look, width);
            put(frame, area, &title, lines, &mut scroll, look, is_chosen);
        }
        Pane::Rates => {
            let (lines, chosen) = rates::lines(state, choice, look, width);
            let mut first = chosen.saturating_sub(usize::from(height).saturating_sub(1));
            put(frame, area, &title, lines, &mut first, look, is_chosen);
        }
        Pane::Latency => {
            let lines = latency::lines(state, choice, look, width, height.into());
            put(frame, area, &title, lines, &mut 0, look, is_chosen);
        }
        Pane::Progress => {
            let lines = progress::lines(state, choice, look, width);
            put(frame, area, &title, lines, &mut scroll, look, is_chosen);
        }
        Pane::Attempts => {
            let lines = attempts::lines(state, choice, look, width);
            put(frame, area, &title, lines, &mut scroll, look, is_chosen);
        }
    }
    choice.scroll[pane as usize] = scroll;
}

/// Draws lines in a frame, from the first one that is not scrolled past.
fn put(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    lines: Vec<Line<'static>>,
    scroll: &mut usize,
    look: Look,
    is_chosen: bool,
) {
    let height = usize::from(area.height.saturating_sub(2));
    let below = lines.len().saturating_sub(height);
    *scroll = (*scroll).min(below);
    let mut block = Block::new()
        .borders(Borders::ALL)
        .border_type(if is_chosen { BorderType::Thick } else { BorderType::Plain })
        .border_style(look.ink.border(is_chosen))
        .title(words::fit_end(title, usize::from(area.width.saturating_sub(2))));
    if below > *scroll {
        let more = format!(" {} more lines below ", below - *scroll);
        block = block.title_bottom(Line::from(more).right_aligned());
    }
    let shown: Vec<_> = lines.into_iter().skip(*scroll).take(height).collect();
    frame.render_widget(Paragraph::new(shown).block(block), area);
}
