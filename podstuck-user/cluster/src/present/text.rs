//! The full text about one object. The object that has to be released first comes first.

use podstuck_engine::cluster::{Answer, Case, Found, State};
use podstuck_model::{
    evidence::Source,
    path::safe,
    remedy::{Place, Remedy, RemedyKind},
};

use super::{Kubectl, Report, age, footer, on_node};
use crate::{examine::NodesAnswer, ranking::ranked};

pub(super) fn one(report: &Report, kubectl: &Kubectl, color: bool) -> String {
    let Some(answer) = report.answers.first() else { return String::new() };
    let mut out = about(answer, report, kubectl, color);
    let footer = footer(report, kubectl);
    if !footer.is_empty() {
        out.push_str(&format!("\n{footer}"));
    }
    out
}

/// What keeps one object, with what was found on the node of the object that must be released first.
pub(super) fn about(answer: &Answer, report: &Report, kubectl: &Kubectl, color: bool) -> String {
    let paint = Paint(color);
    let leaf = answer.leaf();
    let said = report.said_about(leaf);
    let node = said.and_then(|said| said.answer.as_ref());
    let mut out = format!("{}\n", headline(answer, report));
    chain(&mut out, answer, node, paint);
    let ranked = ranked(leaf, node);
    let is_alone = ranked.len() == 1;
    for (at, it) in ranked.iter().enumerate() {
        let number = if is_alone { String::new() } else { format!("{}. ", at + 1) };
        finding(&mut out, leaf, &it.found, &number, kubectl, paint);
    }
    let is_stuck = leaf.state != State::NotDeleted;
    if let Some(said) = said {
        on_node::rest(&mut out, said, ranked.is_empty(), kubectl, paint);
    } else if ranked.is_empty() && leaf.examine.is_none() && is_stuck {
        out.push_str(&format!("\nThe API server does not show what keeps {}.\n", show(leaf)));
    }
    examine(&mut out, leaf, report, said.is_some(), kubectl);
    let all: Vec<&Case> = answer.cases().collect();
    for pair in all.windows(2) {
        let [case, next] = pair else { continue };
        // The chain already names the object that this one waits for. What else keeps it is not in the chain.
        let next = next.key.to_string();
        let is_named =
            |found: &Found| found.held_by.as_ref().is_some_and(|who| who.to_string() == next);
        for (at, found) in case.findings.iter().enumerate() {
            if at > 0 || !is_named(found) {
                finding(&mut out, case, found, "", kubectl, paint);
            }
        }
    }
    out
}

/// Which object waits for which, and then which component of the node.
fn chain(out: &mut String, answer: &Answer, node: Option<&NodesAnswer>, paint: Paint) {
    let on_node = node.map(|node| node.chain.as_slice()).unwrap_or_default();
    if answer.below.is_empty() && on_node.is_empty() {
        return;
    }
    out.push_str(&format!("\n{}\n", paint.bold("What waits for what")));
    let objects = if on_node.is_empty() { answer.cases().count() } else { answer.below.len() };
    for link in answer.links().into_iter().take(objects) {
        let waits =
            link.waits_for.unwrap_or_else(|| "something that the API server does not show".into());
        out.push_str(&format!("  {} waits for {waits}\n", link.who));
    }
    for link in on_node {
        let waits = link.waits_for.as_ref().map(|what| format!(", and waits for {what}"));
        let (who, must) = (&link.who, &link.must);
        let comma = if who.more.contains(", which ") { "," } else { "" };
        let duty = format!("{who}{comma} must {must}{}", waits.unwrap_or_default());
        let since = link.since.map(|at| format!(" since {at:.0}")).unwrap_or_default();
        let fact = format!("{}{since} [{}]", link.fact(), tag(&link.source()));
        let line = format!("{duty}: {fact}");
        out.push_str(&format!("  {}\n", near(&safe(line.as_bytes()), &answer.leaf().uid)));
    }
    if let Some(why) = node.and_then(|node| node.not_visible.as_ref()) {
        out.push_str(&format!("  not visible: {}\n", safe(why.as_bytes())));
    }
}

fn headline(answer: &Answer, report: &Report) -> String {
    let case = &answer.case;
    let name = show(case);
    let what = match (case.state, case.requested) {
        (State::NotDeleted, _) => return format!("{name} is not being deleted."),
        (_, Some(since)) => {
            format!("{name} was deleted {} ago and still exists", age(since, report.now))
        }
        (_, None) => format!("{name} is deleted and still exists"),
    };
    match case.step {
        Some(step) => format!("{what}: {}.", step.meaning()),
        None => format!("{what}."),
    }
}

fn show(case: &Case) -> String {
    safe(case.key.to_string().as_bytes()).into_owned()
}

fn finding(
    out: &mut String,
    case: &Case,
    found: &Found,
    number: &str,
    kubectl: &Kubectl,
    paint: Paint,
) {
    let held = found
        .held_by
        .as_ref()
        .map(|it| format!(": {}", safe(it.to_string().as_bytes())))
        .unwrap_or_default();
    let later = if found.later { ", later" } else { "" };
    let certainty = found.certainty.word();
    let head = format!("{number}{} ({certainty}{later}) of {}{held}", found.id, show(case));
    // A finding of the node was read from a log: it is not trusted to be harmless.
    let clean = |text: &str| near(&safe(text.as_bytes()), &case.uid);
    out.push_str(&format!("\n{}\n  {}\n", paint.bold(&head), clean(&found.explanation)));
    out.push_str("  Evidence\n");
    for evidence in &found.evidence {
        let source = match evidence.source {
            Source::Api(_) => "API".to_owned(),
            _ => tag(&evidence.source.to_string()),
        };
        out.push_str(&format!("    - {}\n", clean(&format!("{} [{source}]", evidence.fact))));
    }
    if !found.remedies.is_empty() {
        out.push_str("  What to do, the safest first\n");
    }
    for (at, remedy) in found.remedies.iter().enumerate() {
        out.push_str(&way(at + 1, remedy, case.node.as_deref(), kubectl));
    }
    for other in &found.likely_causes_ruled_out {
        out.push_str(&format!("  Not {}\n", clean(&other.to_string())));
    }
    for unknown in &found.not_known {
        out.push_str(&format!("  Not known: {}\n", clean(unknown)));
    }
}

/// A text with the pod's directory as `…`, as podstuck shows it on the node.
pub(super) fn near(text: &str, uid: &str) -> String {
    let directory = format!("/pods/{uid}/");
    let mut parts = text.split(&directory);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A path begins after a blank, a quote or a bracket.
        let start = out.rfind(|c: char| c.is_whitespace() || "'\"[(".contains(c));
        let start = start.map_or(0, |at| at + out[at..].chars().next().map_or(1, char::len_utf8));
        out.truncate(start);
        out.push_str("…/");
        out.push_str(part);
    }
    out
}

/// The source of a fact as it is shown.
fn tag(source: &str) -> String {
    let record = Source::Record.to_string();
    if source == record { "API".into() } else { source.replace(&format!("{record}, "), "API, ") }
}

pub(super) fn way(number: usize, remedy: &Remedy, node: Option<&str>, kubectl: &Kubectl) -> String {
    let mut out = match (remedy.kind, &remedy.does, &remedy.command) {
        (RemedyKind::Command, Some(does), Some(command)) => {
            format!("    {number}. {does}\n         {}\n", kubectl.command(command))
        }
        _ => format!("    {number}. {}\n", remedy.words()),
    };
    if let (Some(Place::Node), Some(node)) = (remedy.place, node) {
        out.push_str(&format!("       where: {node}, as root\n"));
    }
    if !remedy.only_looks() && !remedy.risk.is_empty() {
        out.push_str(&format!("       risk: {}\n", remedy.risk));
    }
    if let Some(guard) = &remedy.guard {
        out.push_str(&format!("       only if {guard}\n"));
    }
    if !remedy.affects.is_empty() {
        out.push_str(&format!("       also affects {}\n", remedy.affects.join(", ")));
    }
    if let Some(verify) = &remedy.verify {
        out.push_str(&format!("       it worked if this succeeds: {}\n", kubectl.command(verify)));
    }
    out.lines().map(|line| safe(line.as_bytes()) + "\n").collect()
}

fn examine(out: &mut String, case: &Case, report: &Report, is_examined: bool, kubectl: &Kubectl) {
    let Some(node) = &case.examine else { return };
    if is_examined {
        if let Some(said) = &case.kubelet {
            out.push_str(&format!("\n{said} [kubelet /pods]\n"));
        }
        return;
    }
    let node = safe(node.as_bytes()).into_owned();
    let why =
        format!("\nThe API server does not show why kubelet on {node} has not ended the pod.");
    if report.examines {
        if let Some(said) = &case.kubelet {
            out.push_str(&format!("\n{said} [kubelet /pods]\n"));
        }
        out.push_str(&format!("{why} podstuck's own pod on that node reports:\n\n"));
        return;
    }
    let namespace = case.key.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", case.key.name);
    let name = safe(name.as_bytes()).into_owned();
    let by_pod = kubectl.command(&format!("kubectl podstuck {name}"));
    out.push_str(&format!(
        "{why} Examine that node by podstuck's own pod:\n    {by_pod}\n\
         or on the node itself, as root:\n    podstuck diagnose --pod {name}\n"
    ));
    match &case.kubelet {
        Some(said) => out.push_str(&format!("\n{said} [kubelet /pods]\n")),
        None if !report.asks_kubelets => {
            let by_proxy = kubectl.command(&format!("kubectl podstuck {name} --via-node-proxy"));
            out.push_str(&format!(
                "kubelet's own list of its pods shows whether kubelet has seen the deletion; reading it \
                 needs the right to get nodes/proxy:\n    {by_proxy}\n"
            ));
        }
        None => {}
    }
    if !report.tries_requests {
        let by_dry_run = kubectl.command(&format!("kubectl podstuck {name} --via-dry-run"));
        out.push_str(&format!(
            "A dry run of kubelet's last requests shows whether admission refuses them; it needs the right to \
             impersonate the node:\n    {by_dry_run}\n"
        ));
    }
}

/// Whether to use bold text (on a terminal).
#[derive(Clone, Copy)]
pub(super) struct Paint(bool);

impl Paint {
    pub(super) fn bold(self, text: &str) -> String {
        if self.0 { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
