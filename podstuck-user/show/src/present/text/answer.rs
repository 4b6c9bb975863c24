//! The answer in six lines: what holds the pod, which process does, since when, how certain that is, the first remedy
//! and its command. One that is not certain, or that is a component's answer, has a seventh: the log message that it
//! rests on.

use jiff::Timestamp;
use podstuck_engine::catalogue;

use super::{
    chain::duty,
    nouns::{self, text},
    progress, way_out,
};
use crate::present::{
    near::Near,
    style::{Ink, Style},
    words,
};
use podstuck_model::{
    chain::Link,
    container::ContainerStage,
    diagnosis::{Diagnosis, Gone, PodStage, Stage, Terminating},
    evidence::{Certainty, Evidence, Source},
    finding::Finding,
    remedy::Remedy,
};

/// Columns before a line's words.
const LABEL: usize = 9;

/// The lines of the answer; fewer when less is known.
pub fn answer(answer: &Diagnosis, at: Timestamp, style: Style) -> String {
    let about = answer.target.as_deref().map_or_else(|| "this node".into(), text);
    let window = words::window(answer.window_s);
    let Some(cause) = answer.causes.first() else {
        let mut out = format!("{about}: {}\n", without_cause(answer, &window));
        let mut near = Near::default();
        let mut shortened = |mut words: String| {
            near.prose(&mut words);
            words
        };
        if let Some(last) = last_link(answer) {
            out.push_str(&wrapped("who", &shortened(duty(last)), style));
            let why = answer.stages.first().and_then(|stage| stage.not_visible.as_deref());
            let fact = why.map_or_else(|| last.fact(), |why| format!("{}; {why}", last.fact()));
            out.push_str(&wrapped("fact", &shortened(text(&fact)), style));
        }
        if let Some(terminating) = answer.terminating.as_ref().filter(|_| answer.gone.is_none()) {
            out.push_str(&line("since", &since_asked(terminating, at), style));
        }
        match (answer.remedies.first(), answer.next.first()) {
            (Some(remedy), _) => out.push_str(&first("try", remedy, style)),
            (None, Some(next)) => out.push_str(&line("next", &shortened(text(next)), style)),
            (None, None) => {}
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
    out.push_str(&held_since(cause, answer.terminating.as_ref(), at, style));
    let mut deletions = answer.progress.iter().filter(|it| it.path.0 == cause.call.path.0);
    out.extend(deletions.next().map(|it| line("left", &progress::left(it), style)));
    out
}

/// The line that `watch` prints for a pod that is gone.
pub fn gone(gone: &Gone) -> String {
    let after = words::window(gone.after_s);
    format!("pod {} is gone from this node after {after}\n", nouns::pod(&gone.pod))
}

/// The state of the target when nothing holds it.
fn without_cause(answer: &Diagnosis, window: &str) -> String {
    if let Some(gone) = &answer.gone {
        return format!("gone from this node after {}", words::window(gone.after_s));
    }
    let is_gone = |pod: &PodStage| matches!(pod.stage, Stage::Gone | Stage::Api);
    if !answer.stages.is_empty() && answer.stages.iter().all(is_gone) {
        let stages: Vec<&str> = answer.stages.iter().map(|pod| pod.stage.meaning()).collect();
        return stages.join("; ");
    }
    if last_link(answer).is_some() {
        return format!("still there; no known cause was recognised in {window}");
    }
    let left = if is_left(answer) { "still there, and " } else { "" };
    format!("{left}nothing that holds it was seen in {window}")
}

/// The last component known to have to act, for the pod in question.
fn last_link(answer: &Diagnosis) -> Option<&Link> {
    let [pod] = &answer.stages[..] else { return None };
    pod.chain.last().filter(|_| answer.gone.is_none())
}

/// What holds the pod, the process that does (or the object, when no process is known), since when, and the command
/// to run first.
pub fn held(cause: &Finding, at: Timestamp, style: Style) -> String {
    held_since(cause, None, at, style)
}

/// As [`held`], with the pod's deletion time where that is known: `kubectl` counts from it.
fn held_since(
    cause: &Finding,
    terminating: Option<&Terminating>,
    at: Timestamp,
    style: Style,
) -> String {
    let title = catalogue::title(cause.id).map(|title| line("what", title, style));
    let mut out = title.unwrap_or_default();
    out.push_str(&match &cause.held_by {
        Some(who) => line("who", &text(&who.to_string()), style),
        None => line("where", &style.path(&nouns::path(&cause.call.path), LABEL), style),
    });
    let is_logged = |fact: &&Evidence| matches!(fact.source, Source::Log(_));
    let is_shown =
        |cause: &&Finding| cause.certainty != Certainty::Firm || catalogue::is_an_answer(cause.id);
    let unsure = Some(cause).filter(is_shown);
    if let Some(said) = unsure.and_then(|cause| cause.evidence.iter().find(is_logged)) {
        out.push_str(&wrapped("fact", &text(&said.fact), style));
    }
    out.push_str(&match terminating {
        Some(it) => line("since", &since_asked(it, at), style),
        None => line("seen", &seen_since(cause, at), style),
    });
    if let Some(remedy) = cause.remedies.first() {
        out.push_str(&first("do", remedy, style));
    }
    out
}

/// The line for a pod without a known deletion time.
fn seen_since(cause: &Finding, at: Timestamp) -> String {
    let facts = cause.evidence.iter().map(|fact| fact.since);
    let since = facts.fold(cause.first, Timestamp::min);
    let age = at.duration_since(since).as_secs().try_into().unwrap_or(0);
    format!("since {}, for {} at least", words::moment(since), words::duration(age))
}

fn since_asked(terminating: &Terminating, at: Timestamp) -> String {
    let Terminating { since, by } = terminating;
    let age = at.duration_since(*since).as_secs().try_into().unwrap_or(0);
    format!("{}, for {}: Terminating, by {}", words::moment(*since), words::duration(age), text(by))
}

/// What the command does, and below that the command, ready to be copied: it is not wrapped, and only spaces precede
/// it.
fn first(label: &str, remedy: &Remedy, style: Style) -> String {
    match (&remedy.command, &remedy.advice) {
        (Some(command), _) => {
            let does = wrapped(label, &way_out::does(remedy), style);
            let command = style.paint(Ink::Command, &text(command));
            format!("{does}{}{command}\n", " ".repeat(LABEL))
        }
        (None, Some(advice)) => wrapped(label, &text(advice), style),
        (None, None) => String::new(),
    }
}

fn line(label: &str, words: &str, style: Style) -> String {
    let label = style.paint(Ink::Label, &format!("{label:<7}"));
    format!("  {label}{words}\n")
}

/// Continuation lines are indented further than a command.
fn wrapped(label: &str, words: &str, style: Style) -> String {
    let label = style.paint(Ink::Label, &format!("{label:<7}"));
    style.wrap(&format!("  {label}"), &" ".repeat(LABEL + 2), words)
}

fn is_left(answer: &Diagnosis) -> bool {
    answer.stages.iter().any(|pod| pod.stage != Stage::Gone)
        || answer.containers.iter().any(|it| it.stage != ContainerStage::Gone)
}
