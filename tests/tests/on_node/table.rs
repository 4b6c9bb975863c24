//! The table of cases against answers in docs/on-node.md, right or wrong.

use std::{env, fmt::Write as _, fs, time::Duration};

use super::{
    Stuck,
    case::{Trouble, api_hangs, api_refuses},
    late,
};
use crate::asked::is_chosen;

/// Where the tables stand; `PODSTUCK_BLESS=1` writes that of this run there.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/on-node.md");

/// Writes it, if that is wanted.
pub fn write(all: &[Stuck], trouble: Trouble) {
    if env::var_os("PODSTUCK_BLESS").is_none() {
        return;
    }
    let from = if is_chosen("PODSTUCK_NODE_FROM", "pod") { "a debug pod" } else { "the node" };
    let api = match (api_hangs(), api_refuses()) {
        (true, _) => "an API server that hangs",
        (_, true) => "an API server that is down",
        _ => "the API server",
    };
    let docker = is_chosen("PODSTUCK_NODE_RUNTIME", "docker");
    let runtime = if docker { ", where Docker runs the containers" } else { "" };
    let trouble = match trouble {
        Trouble::None => "",
        Trouble::Advised => ", where the advice is for the whole node",
        Trouble::KubeletRestarted => ", after kubelet was restarted",
        Trouble::KubeletEnded => ", after kubelet has ended",
        Trouble::KubeletStopped => ", while kubelet is stopped",
        Trouble::RuntimeStopped => ", while the runtime is stopped",
        Trouble::RuntimeEnded => ", after the runtime has ended",
    };
    let heading = format!("## From {from}, with {api}{runtime}{trouble}\n");
    let mut text = format!("{heading}\nAsked {} s after the deletions.\n\n", late().as_secs());
    text.push_str(
        "| case | causes, in their order | certainty | answer after | pod gone after | live after |\n",
    );
    text.push_str("|---|---|---|---|---|---|\n");
    for stuck in all {
        let asked = stuck.asked.as_ref().unwrap();
        let causes = asked.causes().join(", ");
        let causes = if causes.is_empty() { "none" } else { &causes };
        let certainty = asked.first()["certainty"].as_str().unwrap_or("");
        let seconds = |time: Option<Duration>| {
            time.map(|time| format!("{:.1} s", time.as_secs_f64())).unwrap_or_default()
        };
        let live = seconds(stuck.told.after_failure.or(stuck.told.after_deletion));
        let released = stuck.released_after.map(|after| format!("{} s", after.as_secs()));
        writeln!(
            text,
            "| {} | {causes} | {certainty} | {:.1} s | {} | {live} |",
            stuck.case.name,
            asked.took.as_secs_f64(),
            released.unwrap_or_default()
        )
        .unwrap();
    }
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let begin = document.find(&heading).unwrap_or(document.len());
    let rest = &document[begin..];
    let end = rest[1.min(rest.len())..].find("\n## ").map_or(document.len(), |at| begin + at + 2);
    let before = if rest.is_empty() { "\n" } else { "" };
    let after = if document[end..].is_empty() { "" } else { "\n" };
    let (head, tail) = (&document[..begin], &document[end..]);
    fs::write(DOCUMENT, format!("{head}{before}{text}{after}{tail}")).unwrap();
}
