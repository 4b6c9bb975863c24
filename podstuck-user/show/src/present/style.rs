//! Colour and line width: the only place that emits escape sequences.

use std::borrow::Cow;

use anstyle::{AnsiColor, Effects};
use textwrap::{Options, WordSeparator, WordSplitter};

use super::elide;
use podstuck_model::finding::Severity;

/// Smallest width: narrower text is not readable.
const NARROWEST: usize = 40;

/// The layout of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to emit escape sequences for colour.
    pub color: bool,
    /// Columns to wrap sentences at. Paths and commands are never broken.
    pub width: usize,
    /// Whether a path longer than a line loses its middle: on a terminal. A command never does.
    pub elides: bool,
}

/// The role of a piece of text, which decides its colour.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ink {
    Severity(Severity),
    Good,
    Label,
    Command,
}

impl Style {
    /// For files and pipes.
    pub const PLAIN: Self = Self { color: false, width: 100, elides: false };

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

    /// A path on a line with `others` other columns.
    pub fn path<'a>(self, path: &'a str, others: usize) -> Cow<'a, str> {
        if self.elides {
            elide::middle(path, self.width.max(NARROWEST).saturating_sub(others))
        } else {
            path.into()
        }
    }

    /// Sentences with their paths shortened so that each fits a line. Text between backticks is to be copied, and
    /// stays.
    fn elided<'a>(self, text: &'a str, room: usize) -> Cow<'a, str> {
        if !self.elides {
            return text.into();
        }
        let mut quoted = false;
        let words = text.split(' ').map(|word| {
            let is_path = word.starts_with('/') && !quoted;
            quoted ^= word.matches('`').count() % 2 == 1;
            if is_path { elide::middle(word, room) } else { word.into() }
        });
        words.collect::<Vec<_>>().join(" ").into()
    }

    /// Wraps sentences: the first line after `first`, the others after `rest`. Ends with a newline.
    /// A word longer than a line (a path) stays whole, so that it can be copied.
    pub(crate) fn wrap(self, first: &str, rest: &str, text: &str) -> String {
        let options = Options::new(self.width.max(NARROWEST))
            .initial_indent(first)
            .subsequent_indent(rest)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation);
        let room = options.width.saturating_sub(rest.len());
        let mut out = textwrap::fill(&self.elided(text, room), options);
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_lose_their_middle_on_a_terminal_and_commands_nothing() {
        let path = "/a/bcd".repeat(10);
        let text = format!("{path} is held: `ls {path} {path}` and {path}");
        let style = Style { width: 40, elides: true, ..Style::PLAIN };
        let short = style.path(&path, 8).into_owned();
        assert!(short.chars().count() <= 32 && short.contains('…'), "{short}");
        let wrapped = style.wrap("- ", "  ", &text);
        assert_eq!(wrapped.matches(&path).count(), 2, "{wrapped}");
        assert!(
            wrapped.starts_with("- /a/bcd/a/bcd/") && wrapped.matches('…').count() == 2,
            "{wrapped}"
        );
        let piped = Style { elides: false, ..style };
        assert_eq!(piped.path(&path, 8), path);
        assert_eq!(piped.wrap("- ", "  ", &text).matches(&path).count(), 4);
    }

    #[test]
    fn words_are_never_broken_and_lines_keep_the_width() {
        let style = Style { width: 0, ..Style::PLAIN };
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
            Style { color: true, ..Style::PLAIN }.paint(ink, "x"),
            "\u{1b}[1m\u{1b}[31mx\u{1b}[0m"
        );
    }
}
