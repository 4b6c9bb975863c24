//! Tables of the counts and of the series, and the parts that all tables share.

use maud::{Markup, html};

use super::{
    escape::Shown,
    model::{Model, ROWS},
};
use crate::{
    export::csv::Row,
    present::words::{self, latency},
};

/// The caption of a table.
pub(super) fn title(words: &str) -> Markup {
    html! { caption { (Shown(words)) } }
}

/// A table that may be wider than the screen, and can be scrolled by keyboard.
pub(super) fn scroll(what: &str, table: &Markup) -> Markup {
    html! { div.scroll role="region" tabindex="0" aria-label=(Shown(&format!("Table: {what}"))) { (table) } }
}

/// Calls by outcome: the numbers of the summary.
pub(super) fn outcomes(model: &Model) -> Markup {
    let all = model.summary.by_outcome.iter().filter(|(_, outcomes)| !outcomes.is_empty());
    html! {
        table id="outcomes" {
            (title("Calls by call and outcome"))
            thead { tr { th scope="col" { "call" } th scope="col" { "outcome" } th scope="col" { "calls" } } }
            tbody {
                @for (call, outcomes) in all {
                    @for (outcome, calls) in outcomes {
                        tr { td { (call) } td { (Shown(outcome)) } td.number { (words::count(*calls)) } }
                    }
                }
            }
        }
    }
}

/// The series: the numbers of `histograms.csv`.
pub(super) fn series(model: &Model) -> Markup {
    let heads = [
        "call",
        "outcome",
        "pod",
        "volume",
        "by",
        "calls",
        "least",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "most",
        "mean",
        "namespace",
        "pod name",
        "container",
        "plugin",
    ];
    html! {
        table id="series" {
            (title("Series: calls by call, outcome, pod, volume and caller"))
            thead { tr { @for head in heads { th scope="col" { (head) } } } }
            tbody { @for row in model.series.iter().take(ROWS) { (row_of(row)) } }
        }
        @if model.all_series > ROWS {
            p { (words::count((model.all_series - ROWS) as u64)) " more are in histograms.csv (" code { "--export" } ")." }
        }
    }
}

fn row_of(row: &Row) -> Markup {
    let times = [row.min_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.p99_9_ns, row.max_ns];
    let mean = row.mean_ns.parse::<f64>().unwrap_or(0.0) as u64;
    html! {
        tr {
            td { (Shown(&row.syscall)) } td { (Shown(&row.outcome)) }
            td.name { (Shown(&row.pod)) } td.name { (Shown(&row.volume)) } td { (Shown(&row.component)) }
            td.number { (words::count(row.count)) }
            // The shown number is rounded; the attribute has the exact one for programs.
            @for ns in times { td.number data-ns=(ns) { (latency(ns)) } }
            td.number data-ns=(Shown(&row.mean_ns)) { (latency(mean)) }
            @for name in [&row.namespace, &row.pod_name, &row.container, &row.plugin] {
                td.name { (Shown(name)) }
            }
        }
    }
}
