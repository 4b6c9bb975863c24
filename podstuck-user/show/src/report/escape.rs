//! Escapes text of others in a page or in Markdown.

use std::fmt::Write as _;

use maud::{Render, html};

use podstuck_model::path::safe;

/// Text of an element or an attribute of a page: invisible characters are spelled out, and nothing of it is markup.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl Render for Shown<'_> {
    fn render_to(&self, out: &mut String) {
        safe(self.0.as_bytes()).as_ref().render_to(out);
    }
}

/// Sentences in a page, in which text between backticks is a command or a name. A backtick has no other effect,
/// whatever its origin.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl Render for Prose<'_> {
    fn render_to(&self, out: &mut String) {
        let parts: Vec<_> = self.0.split('`').collect();
        if parts.len() % 2 == 0 {
            return Shown(self.0).render_to(out);
        }
        for (number, part) in parts.into_iter().enumerate() {
            if number % 2 == 0 {
                Shown(part).render_to(out);
            } else {
                html! { code { (Shown(part)) } }.render_to(out);
            }
        }
    }
}

/// A block of Markdown in which nothing is markup. Its line ends are kept, and nothing else is a control character.
pub(super) fn fence(language: &str, text: &str) -> String {
    let lines: Vec<_> =
        text.trim_end_matches('\n').split('\n').map(|l| safe(l.as_bytes())).collect();
    let text = lines.join("\n");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest.max(2) + 1);
    let mut out = String::new();
    let _ = writeln!(out, "{ticks}{language}\n{text}\n{ticks}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_backticks_is_code() {
        let prose = |text: &str| html! { (Prose(text)) }.into_string();
        assert_eq!(prose("run `ls <x>` here"), "run <code>ls &lt;x&gt;</code> here");
        assert_eq!(prose("one ` alone\u{1b}"), "one ` alone\\x1b");
    }

    #[test]
    fn markup_and_invisible_characters_are_text() {
        let name = Shown("<b title=\"x\">&\u{1b}[2J\u{202e}'");
        let page = html! { p title=(name) { (name) } }.into_string();
        let text = "&lt;b title=&quot;x&quot;&gt;&amp;\\x1b[2J\\xe2\\x80\\xae'";
        assert_eq!(page, format!("<p title=\"{text}\">{text}</p>"));
    }

    #[test]
    fn a_fence_is_longer_than_any_in_it() {
        assert_eq!(fence("", "a\n"), "```\na\n```\n");
        assert_eq!(fence("sh", "a ```` b\n`"), "`````sh\na ```` b\n`\n`````\n");
        assert_eq!(fence("", "a\u{1b}\r\nb"), "```\na\\x1b\\x0d\nb\n```\n");
    }
}
