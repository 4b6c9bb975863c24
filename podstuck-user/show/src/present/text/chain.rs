//! Renders which component waits for which, from the deletion of a pod to what holds it.

use super::nouns::text;
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::chain::Link;

/// All links below a heading; empty when there are none.
pub(crate) fn chain(all: &[Link], style: Style) -> String {
    if all.is_empty() {
        return String::new();
    }
    format!("\n{}\n{}", style.paint(Ink::Label, "who waits for whom"), links(all, style))
}

/// All links, the API server's first, and why the wait of the last one is not visible.
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
    let not_visible = links.last().and_then(|link| link.not_visible.as_deref());
    if let Some(why) = not_visible {
        out.push_str(&style.wrap("  not visible: ", "     ", &text(why)));
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
