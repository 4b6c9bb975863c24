//! The effect of keys on the screen.

use crossterm::event::{KeyCode, KeyEvent};

use super::{busy, empty, many, screen, second};
use crate::{
    present::{
        json::Line,
        sample::{self, HOSTILE},
    },
    tui::{
        choice::{Choice, Effect, Pane},
        state::State,
    },
};
use podstuck_model::path::safe;

fn typed(choice: &mut Choice, state: &State, keys: &str) -> Effect {
    let press = |choice: &mut Choice, code| choice.take(&KeyEvent::from(code), state, second(60.0));
    let mut last = Effect::None;
    for key in keys.chars() {
        last = match key {
            '\n' => press(choice, KeyCode::Enter),
            '\t' => press(choice, KeyCode::Tab),
            '\u{1b}' => press(choice, KeyCode::Esc),
            '\u{8}' => press(choice, KeyCode::Backspace),
            key => press(choice, KeyCode::Char(key)),
        };
    }
    last
}

#[test]
fn a_filter_shows_what_contains_it_and_escape_drops_it() {
    let state = many();
    let mut choice = Choice::default();
    typed(&mut choice, &state, "/CART-1q\u{8}");
    assert!(choice.is_typing());
    assert!(screen((80, 24), &state, &mut choice).contains("/cart-1▏"));
    typed(&mut choice, &state, "\n");
    // 1, and 10 to 19.
    assert_eq!((choice.is_typing(), choice.findings(&state).len()), (false, 11));
    typed(&mut choice, &state, "/nothing\u{1b}");
    assert_eq!(choice.filter, "cart-1", "what was there before");
    typed(&mut choice, &state, "\u{1b}");
    assert_eq!(choice.findings(&state).len(), 41);
    typed(&mut choice, &state, "/no such\n");
    assert!(screen((80, 24), &state, &mut choice).contains("no finding contains that"));
}

#[test]
fn keys_do_what_the_help_says() {
    let state = busy(&sample::finding());
    let mut choice = Choice::default();
    assert_eq!(typed(&mut choice, &state, "y"), Effect::Copy("kill 4242".into()));
    for (key, effect) in [("q", Effect::Quit), ("p", Effect::Pause), ("e", Effect::Export)] {
        assert_eq!(typed(&mut choice, &state, key), effect);
    }
    typed(&mut choice, &state, "?");
    assert!(screen((80, 24), &state, &mut choice).contains("print what was found"));
    typed(&mut choice, &state, "j");
    assert!(!choice.has_help && choice.pane == Pane::Findings);
    typed(&mut choice, &state, "\t\tsg");
    let shown = screen((80, 24), &state, &mut choice);
    assert!(shown.contains("Rates of volumes, by failures"), "{shown}");
    typed(&mut choice, &state, "j4");
    let shown = screen((80, 24), &state, &mut choice);
    assert!(shown.contains("Latency of shop/cart-0 data"), "{shown}");
}

#[test]
fn a_failed_copy_is_reported() {
    let mut choice = Choice::default();
    assert_eq!(typed(&mut choice, &empty(), "y"), Effect::None);
    assert!(choice.notice.unwrap().contains("no finding"));
    let mut finding = sample::finding();
    finding.remedies.clear();
    let mut choice = Choice::default();
    assert_eq!(typed(&mut choice, &busy(&finding), "y"), Effect::None);
    assert!(choice.notice.unwrap().contains("no command"));
    let mut finding = sample::finding();
    finding.remedies[0].command = Some(HOSTILE.into());
    let Effect::Copy(copied) = typed(&mut Choice::default(), &busy(&finding), "y") else {
        panic!()
    };
    assert_eq!(copied, safe(HOSTILE.as_bytes()));
}

#[test]
fn details_scroll_to_their_end_and_no_further() {
    let state = busy(&sample::finding());
    let mut choice = Choice::default();
    typed(&mut choice, &state, "\n");
    assert!(screen((80, 24), &state, &mut choice).contains("more lines below"));
    (0..9)
        .for_each(|_| drop(choice.take(&KeyEvent::from(KeyCode::PageDown), &state, second(60.0))));
    let shown = screen((80, 24), &state, &mut choice);
    assert!(shown.contains("nested-mount-under-volume: nothing is mounted below it"), "{shown}");
    assert!(!shown.contains("more lines below"), "{shown}");
}

#[test]
fn the_chosen_finding_stays_chosen_when_others_come_before_it() {
    let mut state = many();
    let mut choice = Choice::default();
    typed(&mut choice, &state, "jj");
    let chosen = |state: &State, choice: &Choice| {
        let shown = choice.findings(state);
        shown[choice.place(&shown)].instance.clone()
    };
    let before = chosen(&state, &choice);
    let mut worse = sample::finding();
    worse.instance = "worse".into();
    state.tell(&Line::Finding(&worse));
    assert_eq!(chosen(&state, &choice), before);
    assert_eq!(choice.place(&choice.findings(&state)), 3);
}

#[test]
fn many_findings_are_ranked_and_all_are_reached() {
    let state = many();
    let mut choice = Choice::default();
    insta::assert_snapshot!("many_80", screen((80, 24), &state, &mut choice));
    assert!(screen((80, 24), &state, &mut choice).contains("▸ CRITICAL"));
    typed(&mut choice, &state, "jjj");
    assert_eq!(choice.place(&choice.findings(&state)), 3);
    typed(&mut choice, &state, "G");
    assert_eq!(choice.place(&choice.findings(&state)), 40);
    assert!(screen((80, 24), &state, &mut choice).contains("▸ OVER"));
    typed(&mut choice, &state, "k");
    assert_eq!(choice.place(&choice.findings(&state)), 39);
}
