//! The screen as users see it, on a terminal that only records.

mod choices;

use std::{path::PathBuf, sync::Arc};

use podstuck_common::bucket::bucket_of;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};

use super::{
    choice::{Choice, Pane},
    state::State,
    view::{self, Ink, Look},
};
use crate::present::{
    json::Line,
    sample::{self, HOSTILE},
};
use podstuck_model::{
    call::{Call, Outcome},
    chain::{Link, Who},
    event::{Count, Event, What},
    finding::{Finding, FindingState, Severity},
    identity::{Target, TargetKind},
    operation::Operation,
    path::safe,
    summary::NotLookedAt,
    time::{Clock, Monotonic},
};
use podstuck_testing::samples;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

fn second(at: f64) -> Monotonic {
    Monotonic((at * 1e9) as u64)
}

fn empty() -> State {
    let mut state = State::new(Clock::new(sample::time(0), Monotonic(0)), "podstuck watch");
    state.start = sample::start();
    state
}

fn target(finding: &Finding) -> Arc<Target> {
    Arc::new(Target {
        kind: TargetKind::PodVolume,
        root: PathBuf::from("/v"),
        pod: finding.pod.clone(),
        volume: finding.volume.clone(),
        ..Target::unknown()
    })
}

fn operation(finding: &Finding, at: f64, errno: u16) -> What {
    What::Operation(Box::new(Operation {
        end: second(at),
        path: finding.call.path.0.clone(),
        target: target(finding),
        actor: Arc::new(finding.actor.clone().unwrap()),
        ..samples::operation(Call::Umount2, Outcome(errno))
    }))
}

fn count(ns: u64, calls: u64, errno: u16) -> Count {
    let count = samples::count(Call::Unlinkat, Outcome(errno), calls);
    Count { bucket: bucket_of(ns), total_ns: ns * calls, min_ns: ns, max_ns: ns, ..count }
}

/// A run of a minute with data in every pane, about the object of this finding.
fn busy(finding: &Finding) -> State {
    let mut state = empty();
    let mut learn = |at, what| state.learn(&Event { at: second(at), what });
    learn(0.5, What::Named { target_id: 7, target: target(finding) });
    for at in [21.0, 21.5, 22.5, 24.5, 28.5, 36.5, 52.5] {
        learn(at, operation(finding, at, 16));
    }
    for at in 1..60_u16 {
        let at = f64::from(at);
        let many = (1_000.0 * (1.0 + (at / 9.0).sin())) as u64;
        let slow = if at > 40.0 { 3 } else { 0 };
        let counts =
            vec![count(3_000, many, 0), count(90_000, many / 50, 0), count(40_000_000, slow, 16)];
        learn(at, What::Counts(counts.into_iter().filter(|count| count.calls > 0).collect()));
    }
    state.tell(&Line::Finding(finding));
    let mut hung = sample::hung();
    hung.victim = finding.pod.clone();
    hung.path = finding.call.path.clone();
    state.tell(&Line::Hung(&hung));
    let mut progress = sample::progress();
    progress.pod = finding.pod.clone();
    state.tell(&Line::Progress(&progress));
    state.cost = sample::summary().cost;
    state
}

/// Many findings of all kinds, some cleared, in no order.
fn many() -> State {
    let mut state = busy(&sample::finding());
    for n in 0..40_usize {
        let mut finding = sample::finding();
        finding.instance = format!("other-{n}");
        finding.pod.as_mut().unwrap().name = Some(format!("cart-{n}"));
        finding.blocks_deletion = [Some(false), None][n % 2];
        finding.severity = [Severity::Info, Severity::Warning][n % 2];
        if n % 7 == 0 {
            finding.state = FindingState::Cleared;
        }
        state.tell(&Line::Finding(&finding));
    }
    state
}

fn terminal((width, height): (u16, u16)) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).unwrap()
}

fn draw(terminal: &mut Terminal<TestBackend>, state: &State, choice: &mut Choice, color: bool) {
    let look = Look { now: second(60.0), ink: Ink { color } };
    terminal.draw(|frame| view::draw(frame, state, choice, look)).unwrap();
}

fn buffer(size: (u16, u16), state: &State, choice: &mut Choice, color: bool) -> Buffer {
    let mut terminal = terminal(size);
    draw(&mut terminal, state, choice, color);
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(width).map(|line| line.concat().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

fn screen(size: (u16, u16), state: &State, choice: &mut Choice) -> String {
    text(&buffer(size, state, choice, true))
}

fn at(pane: Pane) -> Choice {
    let mut choice = Choice::default();
    choice.pane = pane;
    choice
}

#[test]
fn an_unwatched_root_is_no_all_clear() {
    let mut state = empty();
    state.completeness.not_looked_at = vec![NotLookedAt {
        root: "/data/kubelet".into(),
        process: format!("agent{HOSTILE} (pid 7)"),
        ..NotLookedAt::default()
    }];
    for size in SIZES {
        let shown = screen(size, &state, &mut Choice::default());
        assert!(!shown.contains("nothing wrong was found"), "{shown}");
        assert!(shown.contains("not examined: /data/kubelet"), "{shown}");
        assert!(shown.contains("--kubelet-root"), "{shown}");
    }
}

#[test]
fn an_empty_result_says_so() {
    for size in SIZES {
        let shown = screen(size, &empty(), &mut Choice::default());
        insta::assert_snapshot!(format!("empty_{}", size.0), shown);
    }
}

#[test]
fn a_pod_that_waits_for_something_is_not_well() {
    let mut state = empty();
    state.chain = vec![Link {
        waits_for: Some("CSI driver x".into()),
        not_visible: Some("it waits inside the process".into()),
        ..Link::new(
            Who::object(format!("kubelet{HOSTILE}")),
            "unmount the pod's volumes",
            "volume data is mounted",
            "mountinfo",
        )
    }];
    for size in SIZES {
        let shown = screen(size, &state, &mut Choice::default());
        assert!(!shown.contains("nothing wrong was found"), "{shown}");
        for words in [
            "cause not known: kubelet",
            "Who waits for whom",
            "volume data is mounted",
            "not visible: it waits inside the process",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
}

#[test]
fn the_answer_is_read_at_once() {
    let state = busy(&sample::finding());
    for size in SIZES {
        let shown = screen(size, &state, &mut Choice::default());
        insta::assert_snapshot!(format!("busy_{}", size.0), shown);
        for words in
            ["backup (pid 4242) of /system.slice/backup.service", "kill 4242", "nothing lost"]
        {
            assert!(shown.contains(words), "{words} in\n{shown}");
        }
    }
}

#[test]
fn each_pane_shows_what_it_is_for() {
    let state = busy(&sample::finding());
    for pane in Pane::ALL {
        let mut choice = at(pane);
        choice.is_whole = true;
        let shown = screen((80, 24), &state, &mut choice);
        insta::assert_snapshot!(format!("pane_{pane:?}").to_lowercase(), shown);
    }
}

#[test]
fn hostile_names_are_drawn_as_text() {
    let state = busy(&sample::hostile());
    for size in SIZES {
        for pane in Pane::ALL {
            let mut choice = at(pane);
            choice.notice = Some(HOSTILE.into());
            let drawn = buffer(size, &state, &mut choice, true);
            for cell in &drawn.content {
                assert_eq!(safe(cell.symbol().as_bytes()), cell.symbol(), "{}", text(&drawn));
            }
        }
        let shown = screen(size, &state, &mut Choice::default());
        insta::assert_snapshot!(format!("hostile_{}", size.0), shown);
    }
}

#[test]
fn colours_are_optional_and_only_those_that_every_terminal_has() {
    let state = many();
    let named = |color: Color| !matches!(color, Color::Rgb(..) | Color::Indexed(_));
    let mut seen = false;
    for size in SIZES {
        for cell in &buffer(size, &state, &mut Choice::default(), false).content {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
        for cell in &buffer(size, &state, &mut Choice::default(), true).content {
            // The background is the user's own, light or dark.
            assert!(named(cell.fg) && cell.bg == Color::Reset);
            assert!(!matches!(
                cell.fg,
                Color::White | Color::Black | Color::Gray | Color::DarkGray
            ));
            seen |= cell.fg != Color::Reset;
        }
    }
    assert!(seen);
}

#[test]
fn another_size_is_as_if_it_had_always_been_that() {
    let state = busy(&sample::finding());
    let mut choice = Choice::default();
    let mut terminal = terminal(SIZES[1]);
    draw(&mut terminal, &state, &mut choice, true);
    for size in [SIZES[0], (41, 13), (10, 3), (1, 1), (300, 20), SIZES[1]] {
        terminal.backend_mut().resize(size.0, size.1);
        draw(&mut terminal, &state, &mut choice, true);
        let fresh = screen(size, &state, &mut Choice::default());
        assert_eq!(text(terminal.backend().buffer()), fresh, "{size:?}");
    }
}

#[test]
fn the_end_is_shown_and_nothing_is_predicted_after_it() {
    let mut state = busy(&sample::finding());
    let mut choice = at(Pane::Attempts);
    let shown = screen((80, 24), &state, &mut choice);
    assert!(shown.contains("next attempt in 24s: by kubelet's back-off"), "{shown}");
    let mut summary = sample::summary();
    summary.completeness.events_lost = 3;
    state.end(&summary);
    let shown = screen((80, 24), &state, &mut choice);
    assert!(!shown.contains("next attempt"), "{shown}");
    assert!(
        shown.contains("ended") && shown.contains("not everything seen: 3 events lost"),
        "{shown}"
    );
}

#[test]
fn calls_that_return_are_in_flight_no_more() {
    let mut state = busy(&sample::finding());
    assert_eq!(state.flights(second(60.0)).len(), 1);
    let mut over = sample::hung();
    over.over = true;
    state.tell(&Line::Hung(&over));
    assert!(state.flights(second(60.0)).is_empty());
}
