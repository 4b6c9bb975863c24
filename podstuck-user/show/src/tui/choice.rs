//! The user's choices, and the effects of keys.

use crossterm::event::KeyEvent;

use super::{
    keys::{self, Action, Typing},
    rates::{Group, Sort},
    state::{State, is_over},
};
use crate::present::text::nouns;
use podstuck_model::{finding::Finding, path::safe, time::Monotonic};

/// The content of a part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Findings,
    Flight,
    Rates,
    Latency,
    Progress,
    Attempts,
}

impl Pane {
    pub(super) const ALL: [Self; 6] =
        [Self::Findings, Self::Flight, Self::Rates, Self::Latency, Self::Progress, Self::Attempts];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Findings => "Findings",
            Self::Flight => "In flight",
            Self::Rates => "Rates",
            Self::Latency => "Latency",
            Self::Progress => "Progress",
            Self::Attempts => "Attempts",
        }
    }

    fn by(self, steps: usize) -> Self {
        Self::ALL[(self as usize + steps) % Self::ALL.len()]
    }
}

/// An effect beyond drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Quit,
    Interrupt,
    Pause,
    Export,
    Copy(String),
}

/// The current choices.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) pane: Pane,
    /// Whether the pane alone is shown, or the chosen finding.
    pub(super) is_whole: bool,
    pub(super) has_help: bool,
    pub(super) is_paused: bool,
    /// In lowercase.
    pub(super) filter: String,
    /// The filter before the user began to edit it.
    typing: Option<String>,
    /// The instance of the chosen finding; the first one if it is not among those shown.
    finding: Option<String>,
    /// The name of the chosen row of rates.
    row: Option<String>,
    /// Lines scrolled past, in each pane.
    pub(super) scroll: [usize; Pane::ALL.len()],
    pub(super) group: Group,
    pub(super) sort: Sort,
    /// The effect of the last key, until the next.
    pub(super) notice: Option<String>,
}

impl Choice {
    pub(super) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    /// The findings that are shown.
    pub(super) fn findings<'a>(&self, state: &'a State) -> Vec<&'a Finding> {
        state.findings.iter().filter(|finding| self.fits(finding)).collect()
    }

    fn fits(&self, finding: &Finding) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.filter);
        let volume = finding.volume.as_ref();
        self.filter.is_empty()
            || has(finding.id.as_str())
            || has(&nouns::path(&finding.call.path))
            || finding.pod.as_ref().is_some_and(|pod| has(&nouns::pod(pod)))
            || volume.is_some_and(|volume| has(&nouns::volume(volume)))
            || finding.held_by.as_ref().is_some_and(|who| has(&safe(who.to_string().as_bytes())))
    }

    /// Index of the chosen finding among those shown.
    pub(super) fn place(&self, shown: &[&Finding]) -> usize {
        let chosen = self.finding.as_ref();
        shown.iter().position(|it| Some(&it.instance) == chosen).unwrap_or(0)
    }

    /// Index of the chosen row; `None` for the sum of all.
    pub(super) fn row(&self, rows: &[(&str, &super::heat::Heat)]) -> Option<usize> {
        let chosen = self.row.as_deref()?;
        rows.iter().position(|(name, _)| *name == chosen)
    }

    /// Takes a key.
    pub(super) fn take(&mut self, key: &KeyEvent, state: &State, now: Monotonic) -> Effect {
        if self.typing.is_some() {
            return self.typed(keys::typing(key));
        }
        let action = keys::action(key);
        if action != Action::None {
            self.notice = None;
        }
        if self.has_help && !matches!(action, Action::Interrupt | Action::Quit | Action::None) {
            self.has_help = false;
            return Effect::None;
        }
        match action {
            Action::Quit => return Effect::Quit,
            Action::Interrupt => return Effect::Interrupt,
            Action::Pause => return Effect::Pause,
            Action::Export => return Effect::Export,
            Action::Copy => return self.copy(state),
            Action::Help => self.has_help = true,
            Action::Filter => self.typing = Some(std::mem::take(&mut self.filter)),
            Action::Enter => self.is_whole = true,
            Action::Back if self.is_whole => self.is_whole = false,
            Action::Back => self.filter.clear(),
            Action::NextPane => self.pane = self.pane.by(1),
            Action::PreviousPane => self.pane = self.pane.by(Pane::ALL.len() - 1),
            Action::Pane(digit) => self.pane = Pane::ALL[usize::from(digit) % Pane::ALL.len()],
            Action::Group => (self.group, self.row) = (self.group.next(), None),
            Action::Sort => self.sort = self.sort.next(),
            Action::Up => self.step(-1, state, now),
            Action::Down => self.step(1, state, now),
            Action::PageUp => self.scroll(-10),
            Action::PageDown => self.scroll(10),
            Action::First => self.step(isize::MIN, state, now),
            Action::Last => self.step(isize::MAX, state, now),
            Action::None => {}
        }
        Effect::None
    }

    fn typed(&mut self, typing: Typing) -> Effect {
        match typing {
            // The typed text is shown, and compared with shown text.
            Typing::Put(c) if safe(c.encode_utf8(&mut [0; 4]).as_bytes()).chars().eq([c]) => {
                self.filter.extend(c.to_lowercase());
            }
            Typing::Erase => drop(self.filter.pop()),
            Typing::Done => self.typing = None,
            Typing::Cancel => self.filter = self.typing.take().unwrap_or_default(),
            Typing::Interrupt => return Effect::Interrupt,
            Typing::Put(_) | Typing::None => {}
        }
        Effect::None
    }

    fn step(&mut self, by: isize, state: &State, now: Monotonic) {
        match self.pane {
            Pane::Findings if !self.is_whole => {
                let shown = self.findings(state);
                let last = shown.len().saturating_sub(1);
                let place = self.place(&shown).saturating_add_signed(by).min(last);
                self.finding = shown.get(place).map(|finding| finding.instance.clone());
                self.scroll[Pane::Findings as usize] = 0;
            }
            Pane::Rates | Pane::Latency => {
                let second = state.seconds(now);
                let rows = state.rates.rows(self.group, self.sort, &self.filter, second);
                // The sum is above the first row.
                let place = self.row(&rows).map_or(0, |row| row + 1);
                let place = place.saturating_add_signed(by).min(rows.len());
                self.row = place.checked_sub(1).map(|row| rows[row].0.to_owned());
            }
            _ => self.scroll(by),
        }
    }

    fn scroll(&mut self, by: isize) {
        let scroll = &mut self.scroll[self.pane as usize];
        *scroll = scroll.saturating_add_signed(by);
    }

    /// The command that the chosen finding gives first.
    fn copy(&mut self, state: &State) -> Effect {
        let shown = self.findings(state);
        let Some(finding) = shown.get(self.place(&shown)) else {
            self.notice = Some("there is no finding, so there is no command to copy".into());
            return Effect::None;
        };
        match finding.remedies.iter().find_map(|remedy| remedy.command.as_ref()) {
            Some(_) if is_over(finding) => {
                self.notice = Some("not copied: this finding is over".into());
                Effect::None
            }
            Some(command) => Effect::Copy(safe(command.as_bytes()).into_owned()),
            None => {
                self.notice = Some("this finding has advice, and no command to copy".into());
                Effect::None
            }
        }
    }
}
