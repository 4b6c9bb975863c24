//! Renders a call that does not return: its process, its place, and its object.

use super::nouns::{self, text};
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::hung::{Hung, Since};

/// Columns of the longest label, with blanks.
const LABEL: usize = 10;

/// A few lines while it lasts, one when it has returned.
pub fn hung(hung: &Hung, style: Style) -> String {
    let of = match (&hung.victim, &hung.volume) {
        (Some(pod), Some(volume)) => {
            format!(" of pod {}, volume {}", nouns::pod_short(pod), text(&volume.name))
        }
        (Some(pod), None) => format!(" of pod {}", nouns::pod_short(pod)),
        (None, _) => String::new(),
    };
    let age = words::window(hung.age_s);
    let syscall = text(&hung.syscall);
    let path = nouns::path(&hung.path);
    let call = format!("{syscall} {}{of}", style.path(&path, LABEL + syscall.len() + of.len()));
    if hung.over {
        let word = style.paint(Ink::Good, "returned");
        let how = hung.outcome.map(|outcome| format!(" ({})", outcome.name())).unwrap_or_default();
        return format!("{word} {call}\n  after {age}{how}, {}\n", by(hung));
    }
    let since = match hung.since {
        Since::Probe => "for",
        Since::ProcessStart => "for at most",
        Since::FirstLook => "for at least",
    };
    let before = if hung.since_before_start { ", since before podstuck started" } else { "" };
    let mut out = format!(
        "{} {call}\n  {since} {age}{before}: {}\n  {}",
        style.paint(Ink::Label, "stuck"),
        hung.phase.meaning(),
        by(hung)
    );
    if let Some(state) = hung.state {
        let channel = hung.wchan.as_deref().map(|f| format!(" in {}", text(f))).unwrap_or_default();
        out.push_str(&format!(", state {state}{channel}"));
    }
    out.push('\n');
    if !hung.stack.is_empty() {
        out.push_str(&style.wrap("  stack: ", "    ", &text(&hung.stack.join(" < "))));
    }
    out
}

fn by(hung: &Hung) -> String {
    let thread =
        if hung.tid == hung.pid { String::new() } else { format!(", thread {}", hung.tid) };
    format!("by {} (pid {}{thread})", text(&hung.comm), hung.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample::{self, HOSTILE};
    use podstuck_model::path::JsonPath;

    #[test]
    fn a_hung_call_is_shown_with_its_stack() {
        assert_eq!(
            hung(&sample::hung(), Style { width: 200, ..Style::PLAIN }),
            "stuck newfstatat /v/data/m of pod shop/cart-0\n  for at least 4.2 s, since before \
             podstuck started: inside the call\n  by kubelet (pid 812, thread 815), state S in \
             request_wait_answer\n  stack: request_wait_answer < fuse_do_getattr\n"
        );
    }

    #[test]
    fn its_end_is_one_line_and_names_stay_harmless() {
        let mut over = sample::hung();
        (over.over, over.outcome) = (true, Some(podstuck_model::call::Outcome(21)));
        (over.path, over.comm) = (JsonPath(HOSTILE.into()), HOSTILE.into());
        let shown = hung(&over, Style { width: 200, ..Style::PLAIN });
        assert!(shown.starts_with(r"returned newfstatat \x1b[2J"), "{shown}");
        assert!(shown.contains("after 4.2 s (EISDIR)") && !shown.contains('\u{1b}'), "{shown}");
    }
}
