//! The sections of a page, in the order of need.

use maud::{Markup, html};

use super::{
    escape::{Prose, Shown},
    model::Model,
    tables::title,
};
use crate::present::{
    style::Style,
    text::{self, chain::duty, nouns},
    words,
};
use podstuck_model::{
    chain::Who,
    finding::{Finding, Severity},
    hung::Hung,
    remedy::{Place, Remedy},
    said::Said,
};

/// Limit of causes in full.
const CAUSES: usize = 40;
/// Limit of rows in other lists.
const ROWS: usize = 200;

/// The answer, as in text output: what, who, since when, how certain, what to run first.
pub(super) fn answer(model: &Model) -> Markup {
    let answer = text::answer(&model.diagnosis, model.at, Style::PLAIN);
    let mut lines = answer.lines();
    let headline = lines.next().unwrap_or_default();
    let severity = model.diagnosis.causes.first().map_or("good", |cause| class(cause.severity));
    html! {
        p.headline.(severity) { (Shown(headline)) }
        dl.answer {
            @for (label, words) in lines.filter_map(|line| line.trim_start().split_once(' ')) {
                dt { (label) }
                @if label == "run" { dd { pre { code { (Shown(words.trim_start())) } } } }
                @else { dd { (Prose(words.trim_start())) } }
            }
        }
        @if !model.diagnosis.stages.is_empty() || !model.diagnosis.containers.is_empty() {
            ul {
                @for it in &model.diagnosis.stages {
                    li {
                        "pod " (Shown(&nouns::pod(&it.pod))) ": " (it.stage.meaning()) " (" (Shown(&it.fact)) ")"
                        @if !it.chain.is_empty() {
                            ol {
                                @for link in &it.chain {
                                    li { (Shown(&duty(link))) "; " (Shown(&link.fact())) " [" (Shown(&link.source())) "]" }
                                }
                            }
                        }
                        @if let Some(why) = &it.not_visible { p { "not visible: " (Shown(why)) } }
                    }
                }
                @for it in &model.diagnosis.containers {
                    li {
                        "container " (Shown(&nouns::container(&it.container.id, it.container.name.as_deref())))
                        ": " (it.stage.meaning()) " (" (Shown(&it.fact)) ")"
                    }
                }
            }
        }
    }
}

fn class(severity: Severity) -> &'static str {
    words::severity(severity)
}

/// The findings that hold, then those that are cleared.
pub(super) fn causes(model: &Model) -> Markup {
    let causes = &model.diagnosis.causes;
    html! {
        @if causes.is_empty() { p { "No cause was found." } }
        @for (number, cause) in (1..).zip(causes.iter().take(CAUSES)) { (self::cause(number, cause)) }
        @if causes.len() > CAUSES {
            p { (words::count((causes.len() - CAUSES) as u64)) " more are in findings.jsonl (" code { "--export" } ")." }
        }
        @if !model.diagnosis.over.is_empty() {
            h3 { "Over" }
            ul {
                @for over in model.diagnosis.over.iter().take(ROWS) {
                    li { (Shown(text::finding(over, Style::PLAIN).trim_end())) }
                }
            }
        }
        (list("Ruled out", model.diagnosis.ruled_out.iter().map(ToString::to_string)))
        (list("What else matters", model.diagnosis.notes.iter().cloned()))
        @if !model.diagnosis.remedies.is_empty() {
            h3 { "What may release it" }
            p.source { "Not proven to help. Nothing is run for you." }
            ul.ways { @for remedy in &model.diagnosis.remedies { li { (way_out(remedy)) } } }
        }
        (list("Where to look next", model.diagnosis.next.iter().cloned()))
    }
}

fn list(heading: &str, items: impl Iterator<Item = String>) -> Markup {
    let items: Vec<String> = items.take(ROWS).collect();
    html! {
        @if !items.is_empty() {
            h3 { (heading) }
            ul { @for item in items { li { (Prose(&item)) } } }
        }
    }
}

fn cause(number: u32, cause: &Finding) -> Markup {
    let title = podstuck_engine::catalogue::title(cause.id).unwrap_or_default();
    html! {
        article.cause.(class(cause.severity)) data-instance=(Shown(&cause.instance)) {
            h3 { (number) ". " (cause.id.as_str()) }
            p.state {
                (words::severity(cause.severity)) ", " (words::blocks(cause.blocks_deletion)) ", "
                (words::certainty(cause.certainty))
            }
            p { (Prose(title)) }
            dl {
                @if let Some(pod) = &cause.pod { dt { "pod" } dd { (Shown(&nouns::pod(pod))) } }
                @if let Some(id) = &cause.container {
                    dt { "container" } dd { (Shown(&nouns::container(id, cause.container_name.as_deref()))) }
                }
                @if let Some(volume) = &cause.volume {
                    dt { "volume" } dd { (Shown(&nouns::volume(volume))) br; code { (Shown(&nouns::path(&volume.path))) } }
                }
                @if let Some(call) = text::call(cause) { dt { "call" } dd { (Shown(&call)) } }
                dt { "object" } dd { code { (Shown(&nouns::path(&cause.call.path))) } }
                @if let Some(actor) = &cause.actor { dt { "by" } dd { (Shown(&nouns::actor(actor))) } }
                dt { "seen" } dd { (text::seen(cause)) }
            }
            h4 { "Evidence" }
            ul {
                @for one in &cause.evidence {
                    li { (Prose(&one.fact)) " " span.source { "[" (Shown(&one.source.to_string())) "]" } }
                }
            }
            @if !cause.explanation.is_empty() { h4 { "What it means" } p { (Prose(&cause.explanation)) } }
            @if !cause.remedies.is_empty() {
                h4 { "What to do" }
                p.source { "Nothing is run for you." }
                ul.ways { @for remedy in &cause.remedies { li { (way_out(remedy)) } } }
            }
            (sub("What is not known", &cause.not_known))
            (sub("What podstuck could not do, and this may lack", &cause.degraded))
        }
    }
}

fn sub(heading: &str, items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            h4 { (heading) }
            ul { @for item in items { li { (Prose(item)) } } }
        }
    }
}

fn way_out(remedy: &Remedy) -> Markup {
    let fields = [
        (
            "where",
            (remedy.place == Some(Place::Kubectl)).then(|| "a machine with kubectl".to_owned()),
        ),
        ("acts only if", remedy.guard.clone()),
        ("risk", Some(remedy.risk.clone()).filter(|risk| !risk.is_empty())),
        ("also hit", Some(remedy.affects.join(", ")).filter(|whom| !whom.is_empty())),
    ];
    html! {
        @if let Some(command) = &remedy.command { p { (Prose(&text::does(remedy))) } pre { code { (Shown(command)) } } }
        @if let Some(advice) = &remedy.advice { p { (Prose(advice)) } }
        dl.small {
            @for (label, words) in fields.iter().filter_map(|(label, words)| Some((label, words.as_ref()?))) {
                dt { (label) } dd { (Prose(words)) }
            }
            @if let Some(verify) = &remedy.verify { dt { "it worked if" } dd { pre { code { (Shown(verify)) } } } }
        }
    }
}

/// The holders, by finding.
pub(super) fn holders(model: &Model) -> Option<Markup> {
    let held = |cause: &&Finding| cause.held_by.is_some();
    let mut causes = model.diagnosis.causes.iter().filter(held).take(ROWS).peekable();
    causes.peek()?;
    Some(html! {
        table {
            (title("Who holds what"))
            thead { tr { th scope="col" { "who" } th scope="col" { "what" } th scope="col" { "cause" } } }
            tbody {
                @for cause in causes {
                    tr {
                        td.name { (Shown(&cause.held_by.as_ref().map(Who::to_string).unwrap_or_default())) }
                        td.name { code { (Shown(&nouns::path(&cause.call.path))) } }
                        td { (cause.id.as_str()) }
                    }
                }
            }
        }
    })
}

/// Calls that have not returned.
pub(super) fn in_flight(model: &Model) -> Option<Markup> {
    (!model.hung.is_empty()).then(|| {
        html! {
            table {
                (title("Calls that had not returned at the last report"))
                thead { tr {
                    th scope="col" { "call" } th scope="col" { "object" } th scope="col" { "for" }
                    th scope="col" { "by" } th scope="col" { "where" } th scope="col" { "pod" }
                } }
                tbody { @for hung in model.hung.iter().take(ROWS) { (hung_row(hung)) } }
            }
        }
    })
}

fn hung_row(hung: &Hung) -> Markup {
    html! {
        tr {
            td { (Shown(&hung.syscall)) }
            td.name { code { (Shown(&nouns::path(&hung.path))) } }
            td.number { (words::window(hung.age_s)) }
            td { (Shown(&hung.comm)) " (pid " (hung.pid) ", thread " (hung.tid) ")" }
            td.name {
                (hung.phase.meaning())
                @if let Some(channel) = &hung.wchan { ", in " code { (Shown(channel)) } }
                @if !hung.stack.is_empty() { br; code { (Shown(&hung.stack.join(" < "))) } }
            }
            td { @if let Some(pod) = &hung.victim { (Shown(&nouns::pod_short(pod))) } }
        }
    }
}

/// The last reported progress of each mass deletion.
pub(super) fn progress(model: &Model) -> Option<Markup> {
    (!model.progress.is_empty()).then(|| {
        html! {
            ul {
                @for progress in model.progress.iter().take(ROWS) {
                    li {
                        @if model.diagnosis.over.iter().any(|it| it.call.path == progress.path) { "Over; before: " }
                        (Shown(text::progress(progress, Style::PLAIN).replace('\n', " ").trim()))
                    }
                }
            }
        }
    })
}

/// Entries of the components' logs.
pub(super) fn said(model: &Model) -> Option<Markup> {
    let said = &model.diagnosis.said;
    (!said.is_empty()).then(|| {
        html! {
            table {
                (title("Errors in the components' logs, the latest first"))
                thead { tr {
                    th scope="col" { "time" } th scope="col" { "times" } th scope="col" { "words" }
                    th scope="col" { "not retried before" } th scope="col" { "log" }
                } }
                tbody { @for said in said.iter().rev().take(ROWS) { (said_row(said)) } }
            }
        }
    })
}

fn said_row(said: &Said) -> Markup {
    html! {
        tr {
            td { (words::moment(said.at)) }
            td.number { (words::count(said.times)) }
            td.words { (Shown(&said.text)) }
            td { @if let Some(retry) = said.retry { (words::moment(retry)) } }
            td.words { (Shown(&said.source)) }
        }
    }
}

/// What may be missing.
pub(super) fn completeness(model: &Model) -> Markup {
    let losses = model.summary.completeness.losses();
    html! {
        @if losses.is_empty() { p { "Nothing was lost." } }
        @else { p { "Not everything was seen:" } ul { @for loss in &losses { li { (Shown(loss)) } } } }
        ul {
            @for note in text::notes(&model.summary.completeness) { li { (Shown(&note)) } }
            @for absent in &model.absent { li { (Shown(absent)) } }
        }
    }
}

/// The environment of the run.
pub(super) fn environment(model: &Model) -> Markup {
    html! {
        dl {
            dt { "from" } dd { (words::moment(model.begun)) }
            dt { "to" } dd { (words::moment(model.at)) " (" (words::window(model.summary.window_s)) ")" }
            @if let Some(start) = &model.start {
                dt { "podstuck" } dd { (Shown(&start.version)) }
                dt { "kernel" } dd { "Linux " (Shown(&start.kernel)) }
                dt { "target" } dd { (Shown(start.target.as_deref().unwrap_or("the whole node"))) }
                dt { "backend" } dd { (Shown(&start.backend)) ", " (words::plural(start.probes_attached.len() as u64, "probe", "probes")) }
                dt { "roots" } dd { @for root in &start.roots_searched { (Shown(root)) br; } }
                @if let Some(api) = &start.api { dt { "API server" } dd { (Shown(api)) } }
                @for missing in &start.probes_missing { dt { "missing" } dd { (Shown(missing)) } }
                @for what in &start.not_covered { dt { "not covered" } dd { (Shown(what)) } }
                dt { "its own cost" } dd { (text::cost(&model.summary.cost, model.summary.window_s)) }
            }
        }
    }
}
