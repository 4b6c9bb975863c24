//! The latencies of one kind of call: a bar for each bucket, both axes logarithmic.

use maud::{Markup, html};
use podstuck_common::bucket;

use super::{figure, label, line};
use crate::{
    export::intervals::{Buckets, Kind},
    present::words::{self, latency},
    report::{
        escape::Shown,
        scale::{Scale, WIDTH, n},
        tables::{scroll, title},
    },
};
use podstuck_model::series::Series;

const LEFT: f64 = 40.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 140.0;
/// The marked quantiles and their names.
const MARKED: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];
/// Width of a letter, and the space between two names.
const LETTER: f64 = 6.5;

/// A kind of call, in words.
pub(in crate::report) fn name(kind: &Kind) -> String {
    let on = if kind.plugin.is_empty() { "no known volume" } else { &kind.plugin };
    format!("{} {}, on {on}, by {}", kind.syscall, kind.outcome, kind.component)
}

/// The figure; `None` without calls.
pub(in crate::report) fn latencies(kind: &Kind, buckets: &Buckets) -> Option<Markup> {
    let calls: u64 = buckets.values().sum();
    let series = Series::of_buckets(buckets);
    let marks = MARKED.map(|(share, name)| (name, series.quantile(share)));
    let caption = format!("{}. Both axes are logarithmic.", words::plural(calls, "call", "calls"));
    let picture = picture(kind, buckets, &marks)?;
    let table = scroll("latencies", &table(kind, buckets, &marks));
    Some(figure(&name(kind), &caption, &picture, &table))
}

fn picture(kind: &Kind, buckets: &Buckets, marks: &[(&str, u64)]) -> Option<Markup> {
    let (first, last) = (*buckets.keys().next()?, *buckets.keys().next_back()?);
    let from = edge(first).log10().floor();
    let to = edge(last + 1).log10().ceil().max(from + 1.0);
    let x = Scale { from: (from, to), to: (LEFT, WIDTH - RIGHT) };
    let most = (*buckets.values().max()?).max(1) as f64;
    // One call is a visible bar.
    let y = Scale { from: (-0.2, most.log10().ceil().max(1.0)), to: (BOTTOM, TOP) };
    let decades = from as i32..=to as i32;
    let step = if to - from > 6.0 { 2 } else { 1 };
    let powers = 0..=(y.from.1 as i32);
    let bar = |(bucket, calls): (&u16, &u64)| {
        let (left, right) = (x.at(edge(*bucket).log10()), x.at(edge(bucket + 1).log10()));
        let top = y.at((*calls as f64).log10());
        html! { rect class="bar" x=(n(left)) y=(n(top)) width=(n((right - left - 0.4).max(0.6))) height=(n(BOTTOM - top)) {} }
    };
    Some(html! {
        svg viewBox=(format!("0 0 {} {}", n(WIDTH), n(BOTTOM + 22.0))) role="img"
            aria-label=(Shown(&format!("Latencies of {}; the table below has the same", name(kind)))) {
            @for power in powers {
                @let at = y.at(f64::from(power));
                (line("grid", (LEFT, at), (WIDTH - RIGHT, at)))
                (label(LEFT - 5.0, at + 4.0, "end", &short(10_f64.powi(power))))
            }
            @for decade in decades.step_by(step) {
                @let at = x.at(f64::from(decade));
                (line("axis", (at, BOTTOM), (at, BOTTOM + 4.0)))
                (label(at, BOTTOM + 16.0, "middle", &round(decade)))
            }
            (line("axis", (LEFT, BOTTOM), (WIDTH - RIGHT, BOTTOM)))
            @for one in buckets { (bar(one)) }
            @for (at, place, names) in named(marks, x) {
                (line("mark", (at, TOP - 6.0), (at, BOTTOM)))
                (label(place, TOP - 11.0, "start", &names))
            }
        }
    })
}

/// The lower bound of a bucket; the first one begins at zero, which has no logarithm.
fn edge(bucket: u16) -> f64 {
    match bucket {
        0 => bucket::lower_bound(1) as f64 / 2.0,
        bucket::BUCKETS.. => bucket::lower_bound(bucket::BUCKETS) as f64 * 1.2,
        _ => bucket::lower_bound(bucket) as f64,
    }
}

/// Positions of marks and of their names; two names share a position where there is no room for both.
fn named(marks: &[(&str, u64)], x: Scale) -> Vec<(f64, f64, String)> {
    let width = |names: &str| LETTER * (names.len() + 1) as f64;
    let mut out: Vec<(f64, f64, String)> = Vec::new();
    for (name, ns) in marks {
        let at = x.at((*ns as f64).max(1.0).log10());
        let place = at.min(WIDTH - width(name));
        match out.last_mut() {
            Some((_, last, names)) if place - *last < width(names) => {
                names.push_str(&format!(" {name}"));
                *last = last.min(WIDTH - width(names));
            }
            _ => out.push((at, place, (*name).to_owned())),
        }
    }
    out
}

fn short(calls: f64) -> String {
    match calls {
        c if c >= 1e9 => format!("{}G", n(c / 1e9)),
        c if c >= 1e6 => format!("{}M", n(c / 1e6)),
        c if c >= 1e3 => format!("{}k", n(c / 1e3)),
        c => n(c),
    }
}

fn round(decade: i32) -> String {
    let decade = u32::try_from(decade).unwrap_or(0);
    let text = latency(10_u64.saturating_pow(decade));
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn table(kind: &Kind, buckets: &Buckets, marks: &[(&str, u64)]) -> Markup {
    html! {
        table {
            (title(&format!("Percentiles: {}", name(kind))))
            thead { tr { @for (name, _) in marks { th scope="col" { (name) } } } }
            tbody { tr { @for (_, ns) in marks { td.number { (latency(*ns)) } } } }
        }
        table {
            (title("Calls by how long they took"))
            thead { tr { th scope="col" { "from" } th scope="col" { "to below" } th scope="col" { "calls" } } }
            tbody {
                @for (bucket, calls) in buckets {
                    tr {
                        td.number { (latency(bucket::lower_bound(*bucket))) }
                        td.number { @if *bucket + 1 < bucket::BUCKETS { (latency(bucket::lower_bound(bucket + 1))) } }
                        td.number { (words::count(*calls)) }
                    }
                }
            }
        }
    }
}
