//! The full text about one object. The object that has to be released first comes first.

use podstuck_engine::cluster::{Answer, Case, Found, State};
use podstuck_model::{
    evidence::Source,
    path::safe,
    remedy::{Remedy, RemedyKind},
};

use super::{Kubectl, Report, age, footer};

pub(super) fn one(report: &Report, kubectl: &Kubectl, color: bool) -> String {
    let Some(answer) = report.answers.first() else { return String::new() };
    let paint = Paint(color);
    let mut out = format!("{}\n", headline(answer, report));
    if !answer.below.is_empty() {
        out.push_str(&format!("\n{}\n", paint.bold("What waits for what")));
        for link in answer.links() {
            let waits = link
                .waits_for
                .unwrap_or_else(|| "something that the API server does not show".into());
            out.push_str(&format!("  {} waits for {waits}\n", link.who));
        }
    }
    let leaf = answer.leaf();
    findings(&mut out, leaf, kubectl, paint);
    examine(&mut out, leaf, report, kubectl);
    let all: Vec<&Case> = answer.cases().collect();
    for pair in all.windows(2) {
        let [case, next] = pair else { continue };
        // The chain already names the object that this one waits for. What else keeps it is not in the chain.
        let next = next.key.to_string();
        let is_named =
            |found: &Found| found.held_by.as_ref().is_some_and(|who| who.to_string() == next);
        for (at, found) in case.findings.iter().enumerate() {
            if at > 0 || !is_named(found) {
                finding(&mut out, case, found, kubectl, paint);
            }
        }
    }
    let footer = footer(report, kubectl);
    if !footer.is_empty() {
        out.push_str(&format!("\n{footer}"));
    }
    out
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

fn findings(out: &mut String, case: &Case, kubectl: &Kubectl, paint: Paint) {
    for found in &case.findings {
        finding(out, case, found, kubectl, paint);
    }
    if case.findings.is_empty() && case.examine.is_none() && case.state != State::NotDeleted {
        out.push_str(&format!("\nThe API server does not show what keeps {}.\n", show(case)));
    }
}

fn finding(out: &mut String, case: &Case, found: &Found, kubectl: &Kubectl, paint: Paint) {
    let held = found
        .held_by
        .as_ref()
        .map(|it| format!(": {}", safe(it.to_string().as_bytes())))
        .unwrap_or_default();
    let later = if found.later { ", later" } else { "" };
    let head = format!("{} ({}{later}) of {}{held}", found.id, found.certainty.word(), show(case));
    out.push_str(&format!("\n{}\n  {}\n", paint.bold(&head), found.explanation));
    out.push_str("  Evidence\n");
    for evidence in &found.evidence {
        let source = match evidence.source {
            Source::Api(_) | Source::Record => "[API]".to_owned(),
            _ => format!("[{}]", evidence.source),
        };
        out.push_str(&format!("    - {} {source}\n", evidence.fact));
    }
    if !found.remedies.is_empty() {
        out.push_str("  What to do, the safest first\n");
    }
    for (at, remedy) in found.remedies.iter().enumerate() {
        out.push_str(&way(at + 1, remedy, kubectl));
    }
    for other in &found.likely_causes_ruled_out {
        out.push_str(&format!("  Not {other}\n"));
    }
    for unknown in &found.not_known {
        out.push_str(&format!("  Not known: {unknown}\n"));
    }
}

fn way(number: usize, remedy: &Remedy, kubectl: &Kubectl) -> String {
    let mut out = match (remedy.kind, &remedy.does, &remedy.command) {
        (RemedyKind::Command, Some(does), Some(command)) => {
            format!("    {number}. {does}\n         {}\n", kubectl.command(command))
        }
        _ => format!("    {number}. {}\n", remedy.words()),
    };
    if !remedy.only_looks() && !remedy.risk.is_empty() {
        out.push_str(&format!("       risk: {}\n", remedy.risk));
    }
    if let Some(guard) = &remedy.guard {
        out.push_str(&format!("       only if {guard}\n"));
    }
    if let Some(verify) = &remedy.verify {
        out.push_str(&format!("       it worked if this succeeds: {}\n", kubectl.command(verify)));
    }
    out
}

fn examine(out: &mut String, case: &Case, report: &Report, kubectl: &Kubectl) {
    let Some(node) = &case.examine else { return };
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
struct Paint(bool);

impl Paint {
    fn bold(self, text: &str) -> String {
        if self.0 { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
