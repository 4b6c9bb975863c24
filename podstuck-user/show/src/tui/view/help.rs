//! The keys.

use ratatui::text::{Line, Span};

use super::Look;

const KEYS: &[(&str, &str)] = &[
    ("j k ↓ ↑", "next, previous: finding, row or line"),
    ("PgDn PgUp", "ten lines down or up, in the text of the finding"),
    ("Enter, Esc", "the pane alone, and back; Esc also drops the filter"),
    ("Tab, 1 to 6", "next pane, or that one"),
    ("/", "show what contains a text: names, paths, causes"),
    ("g", "rates and latency of pods, volumes or processes"),
    ("s", "sort rates: deletions per second, failures, p99, name"),
    ("p", "pause the screen; the run continues"),
    ("y", "copy the finding's first command (OSC 52)"),
    ("e", "write the files of --export now"),
    ("q", "end the run, and print what was found"),
    ("Ctrl-C", "the same; a second one aborts"),
    ("? h", "this, and back"),
];

pub(super) fn lines(look: Look) -> Vec<Line<'static>> {
    let line = |(key, what): &(&str, &str)| {
        Line::from(vec![
            Span::styled(format!(" {key:<12}"), look.ink.strong()),
            Span::raw((*what).to_owned()),
        ])
    };
    KEYS.iter().map(line).collect()
}
