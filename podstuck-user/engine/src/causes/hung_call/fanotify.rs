//! The finding about a call that waits for the permission of a fanotify listener.

use crate::{
    causes::shared::holders::{describe, let_go, place},
    command::View,
    ids,
    model::{evidence::Source, finding::Severity, holder::Holder},
    query::{Fanotify, NoAnswer},
    verdict::Draft,
};

const ONE_OF_SEVERAL: &str = "which of these listeners does not answer";
const NOT_FOUND: &str = "which process listens: none was found";
const MAY_MARK_OTHERS: &str =
    "whether the listener marks this object: it marks single files or directories";
const NOT_ALL_READ: &str = "whether another process listens, too: not all processes could be read";
/// Listeners with a remedy of their own.
const NAMED: usize = 4;

pub(super) fn fill(draft: &mut Draft, view: View, found: Option<&Result<Fanotify, NoAnswer>>) {
    draft.severity = Severity::Critical;
    for (cause, fact) in [
        (ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        (
            ids::DEVICE_NOT_RESPONDING,
            "the thread waits for a listener's permission, not for a device",
        ),
        (ids::UMOUNT_KERNEL_HANG, "the thread waits for a listener's permission, not for a device"),
        (ids::CALL_HUNG_UNEXPLAINED, "its kernel stack shows what it waits for"),
    ] {
        draft.rule_out(cause, fact);
    }
    let found = match found {
        Some(Ok(found)) => found,
        Some(Err(why)) => {
            draft.fact(format!("the listeners could not be listed: {why}"), Source::proc("/proc"));
            return not_found(draft);
        }
        None => return not_found(draft),
    };
    // Listeners that mark the whole mount or file system come before those that mark single objects.
    let (mut listeners, others): (Vec<&Holder>, Vec<&Holder>) =
        found.listeners.iter().partition(|listener| listener.exact);
    if listeners.is_empty() {
        listeners = others;
        if !listeners.is_empty() {
            draft.doubt(MAY_MARK_OTHERS);
        }
    }
    match listeners[..] {
        [] => return not_found(draft),
        [_] if found.unread > 0 => draft.doubt(NOT_ALL_READ),
        [_] => {}
        _ => draft.doubt(ONE_OF_SEVERAL),
    }
    let mut named = listeners.iter().take(NAMED).map(|it| it.who().and(&place(it)));
    if let Some(first) = named.next() {
        let others: String = named.map(|it| format!(", {it}")).collect();
        let more = listeners.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        draft.held_by(first.and(&others).and(&more));
    }
    for listener in listeners.into_iter().take(NAMED) {
        draft.fact(describe(listener), Source::proc(&listener.source));
        draft.remedies.push(let_go(view, listener, ", which does not permit the access"));
    }
}

fn not_found(draft: &mut Draft) {
    draft.doubt(NOT_FOUND);
    draft.advice(
        "restart the security agent or virus scanner of this node: `grep -ls fanotify /proc/[0-9]*/fdinfo/*` lists \
         the processes that listen",
        "accesses are not scanned meanwhile",
    );
}
