//! The chosen finding, as in text output: the answer first, then its evidence and the remedies.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::{style::Style, text},
    tui::state::{State, is_over},
};
use podstuck_model::finding::{Finding, FindingState};

/// Columns of the names of fields (`present/text/finding.rs`).
const LABEL: usize = 11;

pub(super) fn title(state: &State, finding: Option<&Finding>) -> String {
    match finding {
        Some(finding) => format!(" {} ", finding.id),
        None if state.answer.is_none() && !state.chain.is_empty() => " Who waits for whom ".into(),
        None => " What is watched ".into(),
    }
}

pub(super) fn lines(
    state: &State,
    finding: Option<&Finding>,
    look: Look,
    width: usize,
) -> Vec<Line<'static>> {
    let style = Style { width, ..Style::PLAIN };
    let at = state.calendar(look.now);
    let Some(finding) = finding else {
        let answer = match &state.answer {
            Some(answer) => text::diagnosis(answer, at, style),
            None if !state.chain.is_empty() => text::chain::links(&state.chain, style),
            None => text::start(&state.start, style),
        };
        return answer.lines().flat_map(|line| fitted::wrap(line, width)).map(Line::from).collect();
    };
    let mut out = answer(finding, at, look, width);
    out.push(Line::default());
    let whole = text::finding(&Finding { state: FindingState::New, ..finding.clone() }, style);
    let mut lines = whole.lines();
    if let Some(headline) = lines.next() {
        let over = if is_over(finding) { " (over)" } else { "" };
        let headline = headline.replacen(" (new)", over, 1);
        let painted = |line| Line::styled(line, look.ink.severity(finding.severity));
        out.extend(fitted::wrap(&headline, width).into_iter().map(painted));
    }
    out.extend(lines.flat_map(|line| ruled(line, look, width)));
    if !is_over(finding) {
        let chain = text::chain::chain(&state.chain, style);
        out.extend(chain.lines().flat_map(|line| ruled(line, look, width)));
    }
    out
}

/// What, who, since when and the command, as in `--brief`.
fn answer(finding: &Finding, at: jiff::Timestamp, look: Look, width: usize) -> Vec<Line<'static>> {
    let held = text::held(finding, at, Style { width, ..Style::PLAIN });
    let command = finding.remedies.first().and_then(|remedy| remedy.command.as_deref());
    let command = command.map(text::text).unwrap_or_default();
    let mut out = Vec::new();
    for line in held.lines() {
        let (label, words) = line.split_at(line.len().min(9));
        let style = if words == command { look.ink.strong() } else { Default::default() };
        let wrapped = fitted::wrap(words, width.saturating_sub(9));
        for (n, part) in wrapped.into_iter().enumerate() {
            let label = if n == 0 { label.to_owned() } else { " ".repeat(9) };
            out.push(Line::from(vec![
                Span::styled(label, look.ink.label()),
                Span::styled(part, style),
            ]));
        }
    }
    out
}

fn ruled(line: &str, look: Look, width: usize) -> Vec<Line<'static>> {
    let is_command = line.strip_prefix(text::COMMAND).is_some_and(|rest| !rest.starts_with(' '));
    let is_named = line.starts_with("  ") && !line.starts_with("   ");
    let field = line.char_indices().nth(LABEL).map(|(at, _)| line.split_at(at));
    let field =
        field.filter(|(label, _)| is_named && !label.trim().contains(' ') && label.ends_with(' '));
    if let Some((label, words)) = field {
        let mut wrapped = fitted::wrap(words, width.saturating_sub(LABEL + 1)).into_iter();
        let mut out = vec![Line::from(vec![
            Span::styled(format!("{label} "), look.ink.label()),
            Span::raw(wrapped.next().unwrap_or_default().trim_start().to_owned()),
        ])];
        out.extend(wrapped.map(|part| Line::from(format!("{}{part}", " ".repeat(LABEL + 1)))));
        return out;
    }
    let style = match (is_command, is_named) {
        (true, _) => look.ink.strong(),
        (false, true) => look.ink.label(),
        (false, false) => Default::default(),
    };
    fitted::wrap(line, width).into_iter().map(|part| Line::styled(part, style)).collect()
}
