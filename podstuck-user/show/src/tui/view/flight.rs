//! Calls that have not returned: their age, object and process.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::{text::nouns, words},
    tui::{choice::Choice, state::State},
};
use podstuck_model::{hung::Since, path::safe};

pub(super) fn lines(
    state: &State,
    choice: &Choice,
    look: Look,
    width: usize,
) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for flight in state.flights(look.now) {
        let hung = &flight.hung;
        let pod = hung.victim.as_ref().map(nouns::pod_short).unwrap_or_default();
        let (call, path) = (safe(hung.syscall.as_bytes()), nouns::path(&hung.path));
        let comm = safe(hung.comm.as_bytes());
        let all = [&*call, &path, &comm, &pod];
        if !all.iter().any(|text| text.to_lowercase().contains(&choice.filter)) {
            continue;
        }
        let least = match hung.since {
            Since::Probe => "",
            Since::ProcessStart => "≤ ",
            Since::FirstLook => "≥ ",
        };
        let age = format!("{least}{}", words::duration(flight.age(look.now) as u64));
        let room = width.saturating_sub(12 + call.chars().count() + 1);
        out.push(Line::from(vec![
            Span::styled(format!("{age:>10}  "), look.ink.warn()),
            Span::styled(format!("{call} "), look.ink.strong()),
            Span::raw(fitted::middle(&path, room)),
        ]));
        let mut by = format!("{comm} (pid {})", hung.pid);
        if !pod.is_empty() {
            by.push_str(&format!(", pod {pod}"));
        }
        if let Some(state) = hung.state {
            by.push_str(&format!(", state {state}"));
        }
        if let Some(wchan) = &hung.wchan {
            by.push_str(&format!(" in {}", safe(wchan.as_bytes())));
        }
        by.push_str(&format!(", {}", hung.phase.meaning()));
        let indent = " ".repeat(12);
        let wrapped = fitted::wrap(&by, width.saturating_sub(12));
        out.extend(wrapped.into_iter().map(|part| Line::from(format!("{indent}{part}"))));
    }
    if out.is_empty() {
        out.push(Line::styled("no call hangs", look.ink.label()));
    }
    out
}
