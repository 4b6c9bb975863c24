//! Colours by name, of which every terminal has sixteen, light or dark; without colour, weight alone.

use ratatui::style::{Color, Modifier, Style};

use podstuck_model::finding::Severity;

/// Whether colours are used.
#[derive(Clone, Copy, Debug)]
pub(in crate::tui) struct Ink {
    pub(in crate::tui) color: bool,
}

impl Ink {
    fn colored(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Critical => self.colored(Color::Red).add_modifier(Modifier::BOLD),
            Severity::Warning => self.colored(Color::Yellow).add_modifier(Modifier::BOLD),
            Severity::Info => self.colored(Color::Cyan),
        }
    }

    pub(super) fn good(self) -> Style {
        self.colored(Color::Green)
    }

    pub(super) fn warn(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(super) fn label(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn bar(self) -> Style {
        self.colored(Color::Blue)
    }

    pub(super) fn heat(self) -> Style {
        self.colored(Color::Magenta)
    }

    pub(super) fn border(self, is_chosen: bool) -> Style {
        if is_chosen { self.colored(Color::Cyan) } else { self.label() }
    }
}
