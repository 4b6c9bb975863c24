//! How text is laid out on standard output.

use std::io::IsTerminal;

use crate::present::style::Style;

/// As wide as the terminal, within what reads well, and coloured unless `NO_COLOR` is set; plain in files and pipes.
pub(super) fn style() -> Style {
    if !std::io::stdout().is_terminal() {
        return Style::PLAIN;
    }
    Style {
        color: std::env::var_os("NO_COLOR").is_none(),
        width: usize::from(console::Term::stdout().size().1).clamp(60, 120),
        elides: true,
    }
}
