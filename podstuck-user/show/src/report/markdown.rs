//! The answer as Markdown for a ticket. All names chosen by others are in fenced blocks, where nothing is markup.

use podstuck_engine::catalogue;

use super::{escape::fence, model::Model};
use crate::present::{
    style::Style,
    text::{self, nouns},
    words,
};
use podstuck_model::{finding::Finding, remedy::Remedy};

/// Limit of causes in full.
const CAUSES: usize = 10;
/// Limit of log errors.
const SAID: usize = 5;

/// The answer, causes with evidence and commands, and what may be missing.
pub fn markdown(model: &Model) -> String {
    let mut out = String::from("## What podstuck found\n\n");
    out.push_str(&fence("text", &text::answer(&model.diagnosis, model.at, Style::PLAIN)));
    let causes = &model.diagnosis.causes;
    for (number, cause) in (1..).zip(causes.iter().take(CAUSES)) {
        out.push_str(&self::cause(number, cause));
    }
    if causes.len() > CAUSES {
        out.push_str(&format!("\n{} more causes are left out here.\n", causes.len() - CAUSES));
    }
    if !model.diagnosis.remedies.is_empty() {
        out.push_str("\n### What may release it\n\nNot proven to help. Nothing was run.\n");
    }
    for remedy in &model.diagnosis.remedies {
        out.push_str(&way_out(remedy));
    }
    let said: Vec<String> = model
        .diagnosis
        .said
        .iter()
        .rev()
        .take(SAID)
        .map(|said| {
            let times = words::times(said.times);
            format!(
                "{} ({times}) [{}]\n  {}",
                words::moment(said.at),
                one_line(&said.source),
                one_line(&said.text)
            )
        })
        .collect();
    if !said.is_empty() {
        out.push_str("\n### What the components said\n\n");
        out.push_str(&fence("text", &said.join("\n")));
    }
    let mut missing = model.summary.completeness.losses();
    missing.extend(model.absent.iter().cloned());
    out.push_str("\n### Completeness\n\n");
    let calls = words::plural(model.summary.calls, "call", "calls");
    out.push_str(&format!("{calls} in {}, ", words::window(model.summary.window_s)));
    match missing.is_empty() {
        true => out.push_str("nothing was lost.\n"),
        false => {
            out.push_str("but not everything was seen:\n\n");
            let missing: Vec<String> =
                missing.iter().map(|it| format!("- {}", one_line(it))).collect();
            out.push_str(&fence("text", &missing.join("\n")));
        }
    }
    if let Some(start) = &model.start {
        let environment = format!(
            "podstuck {} on Linux {} ({}), {} to {}",
            one_line(&start.version),
            one_line(&start.kernel),
            one_line(&start.backend),
            words::moment(model.begun),
            words::moment(model.at)
        );
        out.push('\n');
        out.push_str(&fence("text", &environment));
    }
    out
}

/// Text within a line: a newline that others put in it is escaped.
fn one_line(text: &str) -> String {
    podstuck_model::path::safe(text.as_bytes()).into_owned()
}

fn cause(number: u32, cause: &Finding) -> String {
    let mut out = format!(
        "\n### {number}. `{}`: {}, {}\n\n",
        cause.id.as_str(),
        words::blocks(cause.blocks_deletion),
        words::certainty(cause.certainty)
    );
    if let Some(title) = catalogue::title(cause.id) {
        out.push_str(&format!("{}\n\n", fence("text", title).trim_end()));
    }
    out.push_str("Evidence:\n\n");
    let mut lines: Vec<String> = Vec::new();
    if let Some(pod) = &cause.pod {
        lines.push(format!("pod     {}", nouns::pod(pod)));
    }
    if let Some(volume) = &cause.volume {
        lines.push(format!("volume  {}", nouns::volume(volume)));
    }
    if let Some(call) = text::call(cause) {
        lines.push(format!("call    {call}"));
    }
    lines.push(format!("object  {}", nouns::path(&cause.call.path)));
    lines.push(format!("seen    {}", text::seen(cause)));
    lines.extend(
        cause.evidence.iter().map(|one| {
            format!("- {} [{}]", one_line(&one.fact), one_line(&one.source.to_string()))
        }),
    );
    lines.extend(cause.not_known.iter().map(|it| format!("- not known: {}", one_line(it))));
    out.push_str(&fence("text", &lines.join("\n")));
    if !cause.remedies.is_empty() {
        out.push_str("\nWhat to do (nothing was run):\n");
    }
    for remedy in &cause.remedies {
        out.push_str(&way_out(remedy));
    }
    out
}

fn way_out(remedy: &Remedy) -> String {
    let mut out = String::new();
    if let Some(command) = &remedy.command {
        out.push_str(&format!("\n{}", fence("text", &one_line(&text::does(remedy)))));
        out.push_str(&format!("\n{}", fence("sh", &one_line(command))));
    }
    let mut lines: Vec<String> = remedy.advice.iter().map(|advice| one_line(advice)).collect();
    if !remedy.risk.is_empty() {
        lines.push(format!("risk: {}", one_line(&remedy.risk)));
    }
    if let Some(verify) = &remedy.verify {
        lines.push(format!("it worked if: {}", one_line(verify)));
    }
    if !lines.is_empty() {
        out.push_str(&format!("\n{}", fence("text", &lines.join("\n"))));
    }
    out
}
