//! The latencies of one kind of call over time: darker for more calls.

use std::{collections::BTreeMap, time::Duration};

use maud::{Markup, html};
use podstuck_common::bucket;

use super::{figure, label, line};
use crate::{
    export::intervals::{Buckets, Intervals, Kind},
    present::words::{self, latency},
    report::{
        escape::Shown,
        figures::histogram::name,
        scale::{Scale, WIDTH, moment, n, ticks},
        tables::{scroll, title},
    },
};

const LEFT: f64 = 56.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 8.0;
const ROW: f64 = 12.0;
/// More columns than this are narrower than a pixel of a phone.
const COLUMNS: usize = 60;

/// Calls of a kind by octave of latency, in columns of equal length.
struct Map {
    length: Duration,
    columns: Vec<BTreeMap<u32, u64>>,
}

impl Map {
    fn of(kind: &Kind, intervals: &Intervals) -> Self {
        let together = intervals.iter().len().div_ceil(COLUMNS).max(1);
        let all: Vec<Option<&Buckets>> = intervals.iter().map(|one| one.get(kind)).collect();
        let column = |some: &[Option<&Buckets>]| {
            let mut octaves = BTreeMap::new();
            for (bucket, calls) in some.iter().flatten().copied().flatten() {
                *octaves.entry(octave(*bucket)).or_default() += calls;
            }
            octaves
        };
        let length = intervals.length() * u32::try_from(together).unwrap_or(u32::MAX);
        Self { length, columns: all.chunks(together).map(column).collect() }
    }

    fn octaves(&self) -> Option<(u32, u32)> {
        let all = || self.columns.iter().flat_map(|column| column.keys().copied());
        Some((all().min()?, all().max()?))
    }
}

/// The power of two below which calls of a bucket took less time.
fn octave(bucket: u16) -> u32 {
    bucket::lower_bound(bucket).checked_ilog2().unwrap_or(8)
}

/// The figure; `None` for a single interval, where the histogram shows it all.
pub(in crate::report) fn heat(kind: &Kind, intervals: &Intervals) -> Option<Markup> {
    let map = Map::of(kind, intervals);
    if map.columns.len() < 2 {
        return None;
    }
    let caption = format!(
        "By time: darker where there were more calls, each column {} long.",
        moment(map.length.as_secs_f64())
    );
    let picture = picture(kind, &map)?;
    let table = scroll("calls by time and latency", &table(kind, &map)?);
    Some(figure(&name(kind), &caption, &picture, &table))
}

fn picture(kind: &Kind, map: &Map) -> Option<Markup> {
    let (low, high) = map.octaves()?;
    let rows = high - low + 1;
    let bottom = TOP + ROW * f64::from(rows);
    let columns = map.columns.len() as f64;
    let width = (WIDTH - LEFT - RIGHT) / columns;
    let most = map.columns.iter().flat_map(BTreeMap::values).max()?;
    let shade = Scale { from: (0.0, (*most as f64).ln().max(1.0)), to: (0.2, 1.0) };
    let seconds = columns * map.length.as_secs_f64();
    let x = Scale { from: (0.0, seconds), to: (LEFT, WIDTH - RIGHT) };
    let cell = |column: usize, octave: u32, calls: u64| {
        let (x, y) = (LEFT + width * column as f64, bottom - ROW * f64::from(octave - low + 1));
        let opacity = format!("{:.2}", shade.at((calls as f64).ln()));
        html! { rect class="bar" x=(n(x)) y=(n(y)) width=(n((width - 0.3).max(0.6))) height=(n(ROW - 0.5)) fill-opacity=(opacity) {} }
    };
    // With many rows, not every row is labelled.
    let step = rows.div_ceil(7).max(1) as usize;
    Some(html! {
        svg viewBox=(format!("0 0 {} {}", n(WIDTH), n(bottom + 22.0))) role="img"
            aria-label=(Shown(&format!("Latencies of {} by time; the table below has the same", name(kind)))) {
            @for octave in (low..=high).step_by(step) {
                @let y = bottom - ROW * f64::from(octave - low);
                (line("grid", (LEFT - 3.0, y), (WIDTH - RIGHT, y)))
                (label(LEFT - 6.0, y + 3.0, "end", &latency(1 << octave)))
            }
            @for tick in ticks(seconds) {
                (line("axis", (x.at(tick), bottom), (x.at(tick), bottom + 4.0)))
                (label(x.at(tick), bottom + 16.0, "middle", &moment(tick)))
            }
            @for (column, octaves) in map.columns.iter().enumerate() {
                @for (octave, calls) in octaves { (cell(column, *octave, *calls)) }
            }
        }
    })
}

fn table(kind: &Kind, map: &Map) -> Option<Markup> {
    let (low, high) = map.octaves()?;
    let length = map.length.as_secs_f64();
    Some(html! {
        table {
            (title(&format!("{}: calls by time (down) and latency (across: from this on)", name(kind))))
            thead { tr {
                th scope="col" { "from" }
                @for octave in low..=high { th scope="col" { (latency(1 << octave)) } }
            } }
            tbody {
                @for (column, octaves) in map.columns.iter().enumerate() {
                    @if !octaves.is_empty() {
                        tr {
                            th scope="row" { (moment(column as f64 * length)) }
                            @for octave in low..=high {
                                td.number { @if let Some(calls) = octaves.get(&octave) { (words::count(*calls)) } }
                            }
                        }
                    }
                }
            }
        }
    })
}
