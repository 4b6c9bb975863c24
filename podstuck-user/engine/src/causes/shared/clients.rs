//! Who waits for a daemon that cannot answer, or is busy with something else.

use std::time::Duration;

use crate::{
    model::{
        client::{Client, Request},
        evidence::Source,
        identity::Component,
        time::Monotonic,
    },
    verdict::Draft,
};

/// Clients named.
const NAMED: usize = 4;
/// Who has been connected for so long has not been answered at once.
const WAITS: Duration = Duration::from_secs(3);
/// Who was there for longer before it began keeps his connection, and waits for nothing.
const BEFORE: Duration = Duration::from_secs(60);
/// What stays connected for as long as it runs.
const STREAMS: [&str; 8] = ["attach", "events", "exec", "logs", "run", "start", "stats", "wait"];

/// Tells of those that have been connected for some time, at most since a minute before `begun`.
pub(crate) fn wait(
    draft: &mut Draft,
    daemon: &str,
    clients: &[Client],
    (begun, now): (Monotonic, Monotonic),
) {
    let waits = |client: &&Client| {
        let is_daemon = matches!(
            client.component,
            Component::Kubelet | Component::Containerd | Component::Dockerd | Component::CriO
        );
        let is_stream = client.command.split(' ').any(|word| STREAMS.contains(&word));
        !is_daemon
            && (client.request != Request::Read || !is_stream)
            && now.since(client.since) >= WAITS
            && begun.since(client.since) <= BEFORE
    };
    let waiting: Vec<&Client> = clients.iter().filter(waits).collect();
    if !waiting.is_empty() {
        tell(draft, daemon, &waiting, now);
    }
}

/// Tells of these.
pub(crate) fn tell(draft: &mut Draft, daemon: &str, waiting: &[&Client], now: Monotonic) {
    let name = |client: &&Client| {
        let Client { pid, since, command, request, .. } = client;
        let seconds = now.since(*since).as_secs();
        let how = match request {
            Request::Pending => "not accepted yet",
            Request::Unread => "its request not read",
            Request::Read => "its request read",
        };
        format!("{command} (pid {pid}, for {seconds} s, {how})")
    };
    let named: Vec<String> = waiting.iter().take(NAMED).map(name).collect();
    let more = waiting.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    draft.fact(
        format!("connected to {daemon} without having ended: {}{more}", named.join(", ")),
        Source::Look("sock_diag and /proc"),
    );
}
