//! The list of findings: what holds which pod, and how certain that is.

use ratatui::text::{Line, Span};

use super::{Look, words as fitted};
use crate::{
    present::{
        text::{chain::duty, not_looked_at_sentence, nouns},
        words,
    },
    tui::state::{State, is_over},
};
use podstuck_model::{finding::Finding, path::safe};

pub(super) fn lines(
    state: &State,
    shown: &[&Finding],
    place: usize,
    look: Look,
    width: usize,
) -> Vec<Line<'static>> {
    let not_looked_at = &state.completeness.not_looked_at;
    if state.findings.is_empty() && state.completeness.is_open() {
        let warnings = not_looked_at.iter().map(not_looked_at_sentence);
        let warnings = warnings.chain(state.completeness.not_returned.iter().cloned());
        let warnings = warnings.flat_map(|text| fitted::wrap(&safe(text.as_bytes()), width));
        return warnings.map(|line| Line::styled(line, look.ink.warn())).collect();
    }
    if shown.is_empty() {
        let good = |text| vec![Line::styled(text, look.ink.good())];
        return match (state.findings.is_empty(), state.chain.last(), state.is_over) {
            (false, _, _) => good("no finding contains that"),
            // A pod that waits for something is not well just because the cause is not known.
            (true, Some(last), _) => {
                let known = format!("cause not known: {}", duty(last));
                let lines = fitted::wrap(&known, width).into_iter();
                lines.map(|line| Line::styled(line, look.ink.warn())).collect()
            }
            (true, None, true) => good("nothing wrong was found"),
            (true, None, false) => good("nothing wrong was found so far"),
        };
    }
    let row = |(at, finding): (usize, &&Finding)| row(finding, at == place, look, width);
    shown.iter().enumerate().map(row).collect()
}

fn row(finding: &Finding, is_chosen: bool, look: Look, width: usize) -> Line<'static> {
    let (word, style) = if is_over(finding) {
        ("OVER".to_owned(), look.ink.good())
    } else {
        (words::severity(finding.severity).to_uppercase(), look.ink.severity(finding.severity))
    };
    let sure = finding.certainty.word();
    let blocks = match finding.blocks_deletion {
        Some(true) => "blocks",
        Some(false) => "harmless",
        None => "unknown",
    };
    // Marker and severity, then certainty and effect, separated by spaces.
    let room = width.saturating_sub(2 + 9 + 9 + 9);
    let id = finding.id.as_str();
    let named = (id.len() + 1).min(room * 2 / 3);
    let whom = fitted::fit(&whom(finding), room - named);
    let text = format!("{}{whom} {sure:<8} {blocks:<8}", fitted::fit(id, named));
    let marker = if is_chosen { "▸ " } else { "  " };
    let rest = if is_chosen { look.ink.chosen() } else { Default::default() };
    Line::from(vec![
        Span::raw(marker),
        Span::styled(format!("{word:<8} "), style),
        Span::styled(text, rest),
    ])
}

/// `shop/cart-0 data`, or the path when neither is known.
fn whom(finding: &Finding) -> String {
    let pod = finding.pod.as_ref().map(nouns::pod_short);
    let volume = finding.volume.as_ref().map(|volume| safe(volume.name.as_bytes()).into_owned());
    match (pod, volume) {
        (Some(pod), Some(volume)) => format!("{pod} {volume}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => nouns::path(&finding.call.path),
    }
}
