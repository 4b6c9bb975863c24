//! The HTML page: one file that loads nothing, runs nothing and opens anywhere.

use std::cmp::Reverse;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    escape::Shown,
    figures::{heat::heat, histogram::latencies, timeline::timeline},
    model::Model,
    sections, tables,
};
use crate::export::intervals::{Buckets, Kind};

/// Forbids loading and running anything, whatever a name contains.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("style.css");
/// Limit of kinds of calls with figures.
const FIGURES: usize = 8;
/// Outcomes of a healthy removal.
const USUAL: [&str; 4] = ["ok", "EISDIR", "ENOENT", "ENOTEMPTY"];

/// Renders the page.
pub fn page(model: &Model) -> String {
    let target = model.diagnosis.target.as_deref().unwrap_or("this node");
    let all = sections(model);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content="podstuck";
                title { "podstuck: " (Shown(target)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#answer" { "To the answer" }
                header {
                    h1 { "What holds " (Shown(target)) }
                    nav aria-label="Sections" {
                        ul { @for (id, heading, _) in &all { li { a href={ "#" (id) } { (heading) } } } }
                    }
                }
                main {
                    @for (id, heading, content) in &all {
                        section id=(id) aria-labelledby={ "h-" (id) } {
                            h2 id={ "h-" (id) } { (heading) }
                            (content)
                        }
                    }
                }
                footer { p { "Written by podstuck. This file loads nothing and runs nothing." } }
            }
        }
    };
    page.into_string() + "\n"
}

fn sections(model: &Model) -> Vec<(&'static str, &'static str, Markup)> {
    let all = [
        ("answer", "The answer", Some(sections::answer(model))),
        ("causes", "Causes", Some(sections::causes(model))),
        ("holders", "Who holds it", sections::holders(model)),
        ("attempts", "Attempts and back-off", timeline(model)),
        ("in-flight", "Calls in flight", sections::in_flight(model)),
        ("progress", "Bulk deletions", sections::progress(model)),
        ("said", "What the components said", sections::said(model)),
        ("latency", "Latency", latency(model)),
        ("counts", "Counts", Some(counts(model))),
        ("completeness", "Completeness", Some(sections::completeness(model))),
        ("environment", "Environment", Some(sections::environment(model))),
    ];
    all.into_iter().filter_map(|(id, heading, content)| Some((id, heading, content?))).collect()
}

/// Kinds with an unusual outcome come first, then those with the most calls.
fn latency(model: &Model) -> Option<Markup> {
    let mut kinds: Vec<(Kind, Buckets)> = model.intervals.kinds().into_iter().collect();
    let calls = |buckets: &Buckets| buckets.values().sum::<u64>();
    kinds.sort_by_cached_key(|(kind, buckets)| {
        (USUAL.contains(&kind.outcome.as_str()), Reverse(calls(buckets)))
    });
    let more = kinds.len().saturating_sub(FIGURES);
    kinds.truncate(FIGURES);
    (!kinds.is_empty()).then(|| {
        html! {
            p {
                "Volumes are added up by their plugin. Latencies are exact to one sixteenth; all below 512 ns "
                "count as one."
                @if more > 0 { " " (more) " kinds of calls are only in the table of series below." }
            }
            div.figures {
                @for (kind, buckets) in &kinds {
                    div {
                        @if let Some(figure) = latencies(kind, buckets) { (figure) }
                        @if let Some(figure) = heat(kind, &model.intervals) { (figure) }
                    }
                }
            }
        }
    })
}

fn counts(model: &Model) -> Markup {
    html! {
        p { (crate::present::words::plural(model.summary.calls, "call was", "calls were")) " counted." }
        (tables::scroll("calls by outcome", &tables::outcomes(model)))
        (tables::scroll("series", &tables::series(model)))
    }
}
