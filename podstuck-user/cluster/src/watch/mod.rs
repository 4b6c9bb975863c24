//! `--watch`: prints objects that become stuck and stuck objects that are removed, with the change that preceded the
//! removal. The only module that uses Kubernetes watches. It runs until it is interrupted.

mod followed;
mod stream;

use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use kube::Client;
use podstuck_engine::cluster::{Answer, State};
use podstuck_model::{
    cluster::{Facts, Key},
    exit::Failure,
};
use tokio::{sync::mpsc, time::interval};

use crate::{
    answers::{kinds, settle},
    cli::Cli,
    read::Reader,
};
use followed::{All, line};
use stream::Heard;

/// Interval between checks for objects that have become stuck.
const EACH: Duration = Duration::from_secs(5);

/// Follows every object that the list without an argument covers. Ends when `say` returns false.
///
/// # Errors
///
/// Fails if no type can be watched.
pub async fn watch(
    cli: &Cli,
    client: &Client,
    namespace: Option<&str>,
    server_now: Timestamp,
    mut say: impl FnMut(&str) -> bool,
) -> Result<(), Failure> {
    // Ages are computed with the API server's clock.
    let ahead = server_now.duration_since(Timestamp::now());
    let now = || Timestamp::now().checked_add(ahead).unwrap_or(server_now);
    let (sender, mut heard) = mpsc::channel(64);
    for kind in kinds(namespace) {
        let path = kind.path(namespace);
        let labels = cli.selector.clone();
        tokio::spawn(stream::read(client.clone(), kind, path, labels, sender.clone()));
    }
    drop(sender);
    let mut all = All::default();
    let mut ticks = interval(EACH);
    let mut refused = Vec::new();
    loop {
        let lines = tokio::select! {
            next = heard.recv() => match next {
                Some(Heard::Event(event, kind, meta)) => all.take(event, &kind, &meta, now()),
                Some(Heard::Refused(why)) => {
                    refused.push(why.clone());
                    vec![format!("not watched: {why}")]
                }
                None => {
                    return Err(Failure::CannotRun(anyhow!("nothing can be watched: {}", refused.join("; "))));
                }
            },
            _ = ticks.tick() => stuck(cli, client, all.late(now()), now()).await,
        };
        if !lines.iter().all(|line| say(line)) {
            return Ok(());
        }
    }
}

/// Returns one line for each object that still exists: its cause.
async fn stuck(cli: &Cli, client: &Client, keys: Vec<Key>, now: Timestamp) -> Vec<String> {
    if keys.is_empty() {
        return Vec::new();
    }
    let reader = Reader::new(client.clone(), cli.max_requests);
    let mut facts = Facts::new(now);
    facts.asks_kubelets = cli.via_node_proxy;
    let answers = settle(&keys, &reader, &mut facts).await;
    let remaining = answers.iter().filter(|it| it.case.state != State::Gone);
    remaining.map(|answer| line(now, &answer.case.key, &cause(answer))).collect()
}

fn cause(answer: &Answer) -> String {
    let leaf = answer.leaf();
    let behind = if answer.below.is_empty() { String::new() } else { format!(" ({})", leaf.key) };
    match (leaf.first(), &leaf.examine) {
        (Some(found), _) => {
            let held = found.held_by.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            format!("stuck{behind}: {} ({}){held}", found.id, found.certainty.word())
        }
        (None, Some(node)) => {
            format!("stuck{behind}: the API server does not show why; examine node {node}")
        }
        (None, None) => format!("stuck{behind}: the API server does not show why"),
    }
}
