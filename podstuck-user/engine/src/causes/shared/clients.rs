//! Clients that wait for a daemon that cannot answer or is busy.

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
/// A client that is connected for this long was not answered at once.
const WAITS: Duration = Duration::from_secs(3);
/// A client that was connected for longer before `begun` keeps its connection open, and waits for nothing.
const BEFORE: Duration = Duration::from_secs(60);
/// Commands that stay connected as long as they run.
const STREAMS: [&str; 8] = ["attach", "events", "exec", "logs", "run", "start", "stats", "wait"];

/// Adds a fact about the clients that wait: connected for some time, and at most since a minute before `begun`.
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

/// Adds a fact about these clients.
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
        format!("still connected to {daemon}: {}{more}", named.join(", ")),
        Source::Look("sock_diag and /proc"),
    );
}
