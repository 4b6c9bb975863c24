//! Renders which component waits for which, from the deletion of a pod to what holds it.

use super::nouns::text;
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::chain::Link;

/// All links below a heading; empty when there are none.
pub(crate) fn chain(all: &[Link], not_visible: Option<&str>, style: Style) -> String {
    if all.is_empty() {
        return String::new();
    }
    let heading = style.paint(Ink::Label, "who waits for whom");
    let end = not_visible.map(|why| style.wrap("  not visible: ", "     ", &text(why)));
    format!("\n{heading}\n{}{}", links(all, style), end.unwrap_or_default())
}

/// All links, the API server's first.
pub(crate) fn links(links: &[Link], style: Style) -> String {
    let mut out = String::new();
    for (number, link) in links.iter().enumerate() {
        let since = link.since.map(|at| format!(" since {}", words::moment(at)));
        let line = format!(
            "{}; {}{} [{}]",
            duty(link),
            text(&link.fact()),
            since.unwrap_or_default(),
            text(&link.source())
        );
        out.push_str(&style.wrap(&format!("  {}. ", number + 1), "     ", &line));
    }
    out
}

/// The component that must act, its task, and what it waits for.
pub(crate) fn duty(link: &Link) -> String {
    let waits = link.waits_for.as_ref().map(|what| format!(", and waits for {}", text(what)));
    // A relative clause ends with a comma.
    let comma = if link.who.more.contains(", which ") { "," } else { "" };
    let who = text(&link.who.to_string());
    format!("{who}{comma} must {}{}", text(&link.must), waits.unwrap_or_default())
}
