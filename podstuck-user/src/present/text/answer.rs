//! The answer in five lines: what holds the pod, who does, since when, how sure that is, what to run first.

use jiff::Timestamp;
use podstuck_engine::catalogue;

use super::nouns::{self, text};
use crate::{
    model::{
        container::ContainerStage,
        diagnosis::{Diagnosis, Stage},
        evidence::Certainty,
        finding::Finding,
    },
    present::{
        style::{Ink, Style},
        words,
    },
};

/// Columns before a line's words.
const LABEL: usize = 9;

/// The lines; fewer where less is known.
pub fn answer(answer: &Diagnosis, at: Timestamp, style: Style) -> String {
    let about = answer.target.as_deref().map_or_else(|| "this node".into(), text);
    let window = words::window(answer.window_s);
    let Some(cause) = answer.causes.first() else {
        let left = if is_left(answer) { "still there, and " } else { "" };
        let mut out = format!("{about}: {left}nothing that holds it was seen in {window}\n");
        if let Some(next) = answer.next.first() {
            out.push_str(&line("next", &text(next), style));
        }
        return out;
    };
    let id = style.paint(Ink::Severity(cause.severity), cause.id.as_str());
    let sure = match (answer.firm, cause.certainty) {
        (true, certainty) | (false, certainty @ Certainty::Firm) => words::certainty(certainty),
        (false, certainty) => {
            format!("not certain after {window}: {}", words::certainty(certainty))
        }
    };
    let mut out = format!("{about}: {id}, {sure}\n");
    out.push_str(&held(cause, at, style));
    out
}

/// What holds it, who does (or, where nobody was named, which object it is about), since when, and what to run first.
pub fn held(cause: &Finding, at: Timestamp, style: Style) -> String {
    let title = catalogue::title(cause.id).map(|title| line("what", title, style));
    let mut out = title.unwrap_or_default();
    out.push_str(&match &cause.held_by {
        Some(who) => line("who", &text(who), style),
        None => line("where", &style.path(&nouns::path(&cause.call.path), LABEL), style),
    });
    out.push_str(&line("since", &since(cause, at), style));
    out.push_str(&first(cause, style));
    out
}

fn since(cause: &Finding, at: Timestamp) -> String {
    let facts = cause.evidence.iter().map(|fact| fact.since);
    let since = facts.fold(cause.first, Timestamp::min);
    let age = at.duration_since(since).as_secs().try_into().unwrap_or(0);
    format!("{}, for {} at least", words::moment(since), words::duration(age))
}

/// A command is not wrapped: it is there to be copied.
fn first(cause: &Finding, style: Style) -> String {
    let Some(remedy) = cause.remedies.first() else { return String::new() };
    match (&remedy.command, &remedy.advice) {
        (Some(command), _) => {
            let label = style.paint(Ink::Label, &format!("{:<7}", "run"));
            format!("  {label}{}\n", style.paint(Ink::Command, &text(command)))
        }
        (None, Some(advice)) => line("do", &text(advice), style),
        (None, None) => String::new(),
    }
}

fn line(label: &str, words: &str, style: Style) -> String {
    let label = style.paint(Ink::Label, &format!("{label:<7}"));
    format!("  {label}{words}\n")
}

fn is_left(answer: &Diagnosis) -> bool {
    answer.stages.iter().any(|pod| pod.stage != Stage::Gone)
        || answer.containers.iter().any(|it| it.stage != ContainerStage::Gone)
}
