//! The attempts at each object, their results, and when the next one is expected.

use jiff::Timestamp;
use maud::{Markup, html};

use super::{figure, label, line};
use crate::{
    present::words,
    report::{
        attempts::{Attempt, Tried},
        escape::Shown,
        model::Model,
        scale::{Scale, WIDTH, moment, n, ticks},
        tables::{scroll, title},
    },
};
use podstuck_model::{
    call::Outcome,
    path::safe_path,
    time::{Clock, Monotonic},
};

/// Limit of objects shown; those of findings come first.
const OBJECTS: usize = 8;
const LEFT: f64 = 26.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 24.0;
const TOP: f64 = 8.0;

/// The figure; `None` without attempts.
pub(in crate::report) fn timeline(model: &Model) -> Option<Markup> {
    let clock = model.clock.as_ref()?;
    let all: Vec<&Tried> = model.tried.iter().take(OBJECTS).collect();
    let times = all.iter().flat_map(|tried| tried.attempts.iter().map(|attempt| attempt.at));
    let from = clock.at(times.min()?).min(model.begun);
    let expected: Vec<Option<Next>> = all.iter().map(|tried| next(model, tried, clock)).collect();
    let to = expected.iter().flatten().map(|next| next.at).fold(model.at, Timestamp::max);
    let axis = Axis { from, to };
    let more = model.tried.len() - all.len();
    let left_out = match more {
        0 => String::new(),
        more => format!(
            " {} more with attempts that failed are not shown.",
            words::plural(more as u64, "object", "objects")
        ),
    };
    let caption = format!(
        "A filled dot is a call that failed, a ring one that succeeded, a diamond one that a log reports; a dashed \
         line is the next attempt, if the interval does not change. Times are from {} on.{left_out}",
        words::moment(from)
    );
    let objects = html! {
        ol.objects {
            @for (tried, next) in all.iter().zip(&expected) {
                li {
                    code { (Shown(&safe_path(&tried.path))) } ": " (totals(tried))
                    @if let Some(next) = next { "; " (Shown(&next.words)) }
                }
            }
        }
    };
    let table = scroll("attempts", &table(&all, clock));
    let picture = html! { (picture(&all, &expected, clock, axis)) (objects) };
    Some(figure("Attempts.", &caption, &picture, &table))
}

struct Next {
    at: Timestamp,
    words: String,
}

/// The next attempt: by kubelet's log, or else by the intervals so far.
fn next(model: &Model, tried: &Tried, clock: &Clock) -> Option<Next> {
    let last = clock.at(tried.attempts.last()?.at);
    let uid = tried.pod.as_ref().map(|pod| pod.uid.as_str());
    let said = model.diagnosis.said.iter().filter(|said| Some(said.uid.as_str()) == uid);
    let retry = said.filter_map(|said| said.retry).max().filter(|retry| *retry > last);
    if let Some(at) = retry {
        let words = format!("not retried before {}, by its log", words::moment(at));
        return Some(Next { at, words });
    }
    let at = tried.next(clock)?;
    Some(Next { at, words: format!("expected next at {}", words::moment(at)) })
}

/// One attempt of kubelet may make several calls.
fn totals(tried: &Tried) -> String {
    let failed = words::plural(tried.failures() as u64, "failure", "failures");
    let of = words::plural(tried.attempts.len() as u64, "call", "calls");
    let more = match tried.left_out {
        0 => String::new(),
        n => format!(" ({} more not kept)", words::count(n)),
    };
    let attempts = words::plural(tried.tries(), "attempt", "attempts");
    format!("{failed} of {of}{more}, in {attempts}")
}

#[derive(Clone, Copy)]
struct Axis {
    from: Timestamp,
    to: Timestamp,
}

impl Axis {
    fn seconds(self) -> f64 {
        self.to.duration_since(self.from).as_secs_f64().max(0.1)
    }

    fn at(self, time: Timestamp) -> f64 {
        self.place(time.duration_since(self.from).as_secs_f64())
    }

    fn place(self, seconds: f64) -> f64 {
        Scale { from: (0.0, self.seconds()), to: (LEFT, WIDTH - RIGHT) }.at(seconds)
    }
}

fn picture(all: &[&Tried], expected: &[Option<Next>], clock: &Clock, axis: Axis) -> Markup {
    let bottom = TOP + ROW * all.len() as f64;
    let rows = (0_u8..).map(|row| TOP + ROW * (f64::from(row) + 0.5));
    html! {
        svg viewBox=(format!("0 0 {} {}", n(WIDTH), n(bottom + 24.0))) role="img"
            aria-label="Attempts by time; the table below has the same" {
            @for tick in ticks(axis.seconds()) {
                (line("grid", (axis.place(tick), TOP), (axis.place(tick), bottom)))
                (label(axis.place(tick), bottom + 15.0, "middle", &moment(tick)))
            }
            @for ((number, y), (tried, next)) in (1..).zip(rows).zip(all.iter().zip(expected)) {
                (label(LEFT - 10.0, y + 4.0, "end", &format!("{number}")))
                (line("axis", (LEFT, y), (WIDTH - RIGHT, y)))
                @for attempt in &tried.attempts { (mark(attempt, axis.at(clock.at(attempt.at)), y)) }
                @if let Some(next) = next {
                    (line("next", (axis.at(next.at), y - 9.0), (axis.at(next.at), y + 9.0)))
                }
            }
        }
    }
}

fn mark(attempt: &Attempt, x: f64, y: f64) -> Markup {
    let class = if attempt.outcome == Outcome::OK { "good" } else { "bad" };
    html! {
        @if attempt.logged_in.is_some() {
            path class=(class) d=(format!("M{} {}l4 4l-4 4l-4 -4z", n(x), n(y - 4.0))) {}
        } @else {
            circle class=(class) cx=(n(x)) cy=(n(y)) r="3.5" {}
        }
    }
}

fn table(all: &[&Tried], clock: &Clock) -> Markup {
    html! {
        table {
            (title("Attempts"))
            thead { tr {
                th scope="col" { "object" } th scope="col" { "time" } th scope="col" { "after the one before" }
                th scope="col" { "call" } th scope="col" { "outcome" } th scope="col" { "by" } th scope="col" { "seen by" }
            } }
            tbody {
                @for (number, tried) in (1..).zip(all) {
                    @for (before, attempt) in befores(&tried.attempts) {
                        tr {
                            td.number { (number) }
                            td { (Shown(&format!("{:.3}", clock.at(attempt.at)))) }
                            td.number { @if let Some(before) = before { (format!("{:.3} s", attempt.at.since(before).as_secs_f64())) } }
                            td { (attempt.call.name()) }
                            td { (attempt.outcome.name()) }
                            td { (Shown(&attempt.comm)) @if attempt.pid != 0 { " (pid " (attempt.pid) ")" } }
                            td { (Shown(attempt.logged_in.as_deref().unwrap_or("syscall probe"))) }
                        }
                    }
                }
            }
        }
    }
}

fn befores(all: &[Attempt]) -> impl Iterator<Item = (Option<Monotonic>, &Attempt)> {
    let before = std::iter::once(None).chain(all.iter().map(|attempt| Some(attempt.at)));
    before.zip(all)
}
