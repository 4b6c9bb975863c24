//! Colour and line width: the only place that emits escape sequences.

use anstyle::{AnsiColor, Effects};
use textwrap::{Options, WordSeparator, WordSplitter};

use crate::model::finding::Severity;

/// Narrower than this, text is no longer readable, whatever the terminal says.
const NARROWEST: usize = 40;

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour are wanted.
    pub color: bool,
    /// Columns to wrap sentences at. Paths and commands are never broken.
    pub width: usize,
}

/// What a piece of text is, which decides its colour.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ink {
    Severity(Severity),
    Good,
    Label,
    Command,
}

impl Style {
    /// For files and pipes.
    pub const PLAIN: Self = Self { color: false, width: 100 };

    /// Colours text, if wanted.
    pub(super) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let style = match ink {
            Ink::Severity(Severity::Critical) => AnsiColor::Red.on_default().bold(),
            Ink::Severity(Severity::Warning) => AnsiColor::Yellow.on_default().bold(),
            Ink::Severity(Severity::Info) => AnsiColor::Cyan.on_default(),
            Ink::Good => AnsiColor::Green.on_default(),
            Ink::Label => anstyle::Style::new().effects(Effects::DIMMED),
            Ink::Command => anstyle::Style::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }

    /// Wraps sentences: the first line after `first`, the others after `rest`. Ends with a newline.
    /// A word longer than a line (a path) stays whole, so that it can be copied.
    pub(super) fn wrap(self, first: &str, rest: &str, text: &str) -> String {
        let options = Options::new(self.width.max(NARROWEST))
            .initial_indent(first)
            .subsequent_indent(rest)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation);
        let mut out = textwrap::fill(text, options);
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_broken_and_lines_keep_the_width() {
        let style = Style { color: false, width: 0 };
        let path = "/a".repeat(50);
        let text = style.wrap(
            "- ",
            "  ",
            &format!("{path} is held by a process of the host-network kind"),
        );
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("- {path}"));
        assert!(lines[1..].iter().all(|l| l.len() <= NARROWEST && l.starts_with("  ")), "{text}");
    }

    #[test]
    fn colour_is_only_there_when_wanted() {
        let ink = Ink::Severity(Severity::Critical);
        assert_eq!(Style::PLAIN.paint(ink, "x"), "x");
        assert_eq!(
            Style { color: true, width: 80 }.paint(ink, "x"),
            "\u{1b}[1m\u{1b}[31mx\u{1b}[0m"
        );
    }
}
