//! The meaning of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A user's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ends the run in order.
    Quit,
    /// Ends the run in order, and the second time at once.
    Interrupt,
    Help,
    Filter,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Back,
    NextPane,
    PreviousPane,
    Pane(u8),
    Group,
    Sort,
    Pause,
    Export,
    Copy,
    /// No command.
    None,
}

/// The effect of a key on a filter that is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typing {
    Put(char),
    Erase,
    Done,
    Cancel,
    Interrupt,
    None,
}

fn is_control(key: &KeyEvent, letter: char) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char(letter)
}

/// The meaning of a key on the screen.
pub(super) fn action(key: &KeyEvent) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::None;
    }
    if is_control(key, 'c') {
        return Action::Interrupt;
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return match key.code {
            KeyCode::Char('d' | 'f') => Action::PageDown,
            KeyCode::Char('u' | 'b') => Action::PageUp,
            _ => Action::None,
        };
    }
    match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Action::PageDown,
        KeyCode::Home => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Enter => Action::Enter,
        KeyCode::Esc => Action::Back,
        KeyCode::Tab | KeyCode::Right => Action::NextPane,
        KeyCode::BackTab | KeyCode::Left => Action::PreviousPane,
        KeyCode::Char(digit @ '1'..='6') => Action::Pane(digit as u8 - b'1'),
        KeyCode::Char('g') => Action::Group,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('p') => Action::Pause,
        KeyCode::Char('e') => Action::Export,
        KeyCode::Char('y') => Action::Copy,
        _ => Action::None,
    }
}

/// The effect of a key while a filter is typed.
pub(super) fn typing(key: &KeyEvent) -> Typing {
    if key.kind == KeyEventKind::Release {
        return Typing::None;
    }
    if is_control(key, 'c') {
        return Typing::Interrupt;
    }
    match key.code {
        KeyCode::Enter => Typing::Done,
        KeyCode::Esc => Typing::Cancel,
        KeyCode::Backspace => Typing::Erase,
        KeyCode::Char(c)
            if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            Typing::Put(c)
        }
        _ => Typing::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode) -> Action {
        action(&KeyEvent::from(code))
    }

    #[test]
    fn keys_mean_what_people_know() {
        for (code, meaning) in [
            (KeyCode::Char('q'), Action::Quit),
            (KeyCode::Char('?'), Action::Help),
            (KeyCode::Char('/'), Action::Filter),
            (KeyCode::Char('j'), Action::Down),
            (KeyCode::Down, Action::Down),
            (KeyCode::Char('k'), Action::Up),
            (KeyCode::Up, Action::Up),
            (KeyCode::Enter, Action::Enter),
            (KeyCode::Esc, Action::Back),
            (KeyCode::Tab, Action::NextPane),
            (KeyCode::BackTab, Action::PreviousPane),
            (KeyCode::Char('3'), Action::Pane(2)),
            (KeyCode::Char('7'), Action::None),
            (KeyCode::Char('s'), Action::Sort),
            (KeyCode::Char('g'), Action::Group),
            (KeyCode::Char('p'), Action::Pause),
            (KeyCode::Char('e'), Action::Export),
            (KeyCode::Char('y'), Action::Copy),
            (KeyCode::Char('Q'), Action::None),
        ] {
            assert_eq!(pressed(code), meaning, "{code:?}");
        }
    }

    #[test]
    fn control_c_interrupts_wherever_it_is_typed_and_control_y_copies_nothing() {
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(action(&control('c')), Action::Interrupt);
        assert_eq!(typing(&control('c')), Typing::Interrupt);
        assert_eq!(action(&control('y')), Action::None);
        assert_eq!(typing(&control('y')), Typing::None);
    }

    #[test]
    fn letters_are_letters_while_a_filter_is_typed() {
        for letter in ['q', 'j', '/', '?', 'é'] {
            assert_eq!(typing(&KeyEvent::from(KeyCode::Char(letter))), Typing::Put(letter));
        }
        let released = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::from(KeyCode::Enter) };
        assert_eq!((typing(&released), action(&released)), (Typing::None, Action::None));
    }
}
