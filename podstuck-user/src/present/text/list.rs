//! The pods of a node that are being deleted, each in a line.

use jiff::Timestamp;

use super::nouns::{self, text};
use crate::{
    model::{deleted::Deleted, diagnosis::Stage, finding::Finding},
    present::{
        style::{Ink, Style},
        words,
    },
};

/// All that there is to be told.
pub struct List<'a> {
    /// The pods.
    pub pods: &'a [Deleted],
    /// Findings that are of none of them.
    pub beside: u64,
    /// Who was asked of the API, or why nobody has answered; `None` where nobody was.
    pub api: Option<&'a str>,
    /// Whether all of the node's pods were looked at.
    pub saw_all: bool,
    /// What of the tool cannot do its work.
    pub degraded: &'a [String],
    /// Now.
    pub at: Timestamp,
}

/// A name that is longer shifts the columns of its own line only.
const LONGEST_NAME: usize = 40;

/// The list.
pub fn list(list: &List<'_>, style: Style) -> String {
    let count = list.pods.len() as u64;
    let mut out = match count {
        0 if list.saw_all => "no pod of this node is being deleted\n".to_owned(),
        0 => "no pod of this node is known to be deleted\n".to_owned(),
        _ => {
            let being = words::plural(count, "pod of this node is", "pods of this node are");
            format!("{being} being deleted\n")
        }
    };
    let names: Vec<String> = list.pods.iter().map(|it| nouns::pod_short(&it.pod)).collect();
    let width = names.iter().map(|name| width(name)).filter(|n| *n <= LONGEST_NAME).max();
    let width = width.unwrap_or_default();
    for (name, pod) in names.iter().zip(list.pods) {
        out.push_str(&line(name, width, pod, list.at, style));
    }
    if list.beside > 0 {
        let found = words::plural(list.beside, "finding is", "findings are");
        out.push_str(&style.wrap(
            "",
            "",
            &format!("{found} about something else: `podstuck watch`"),
        ));
    }
    for note in notes(list) {
        out.push_str(&style.wrap("note: ", "  ", &note));
    }
    if let Some(first) = list.pods.first() {
        let command = format!("podstuck diagnose {}", target(first));
        let label = style.paint(Ink::Label, "more:");
        out.push_str(&format!("{label} {}\n", style.paint(Ink::Command, &command)));
    }
    out
}

fn line(name: &str, width: usize, pod: &Deleted, at: Timestamp, style: Style) -> String {
    let padding = " ".repeat(width.saturating_sub(self::width(name)));
    let since = pod.since.map(|since| {
        let age = at.duration_since(since).as_secs().try_into().unwrap_or(0);
        words::age(age)
    });
    let stage = pod.stage.as_ref().map_or("not looked at", |it| left(it.stage));
    let cause = match &pod.cause {
        Some(Finding { id, severity, certainty, .. }) => {
            let id = style.paint(Ink::Severity(*severity), id.as_str());
            format!("{id}, {}", words::certainty(*certainty))
        }
        None => "cause not known".into(),
    };
    let since = since.unwrap_or_else(|| "-".into());
    format!("  {name}{padding}  {since:>6}  {stage:<13}  {cause}\n")
}

/// What is left of it.
const fn left(stage: Stage) -> &'static str {
    match stage {
        Stage::Containers => "containers",
        Stage::Volumes => "volumes",
        Stage::Cgroup => "cgroup",
        Stage::Directories => "directories",
        Stage::Gone | Stage::Api => "record only",
    }
}

fn notes(list: &List<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let only =
        "which pods are to go is known by kubelet's log and by what is found on this node alone";
    match list.api {
        None => notes.push(format!("the API server was not asked: {only}")),
        Some(why) if why.starts_with("no answer") => notes.push(format!("{}: {only}", text(why))),
        Some(_) => {}
    }
    if !list.saw_all {
        notes.push("not all of the node could be looked at: there may be more".into());
    }
    notes.extend(list.degraded.iter().map(|part| text(part)));
    notes
}

/// How the pod is named on a command line.
fn target(pod: &Deleted) -> String {
    match (&pod.pod.namespace, &pod.pod.name) {
        (Some(_), Some(_)) => format!("--pod {}", nouns::pod_short(&pod.pod)),
        _ => format!("--pod-uid {}", text(&pod.pod.uid)),
    }
}

fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{diagnosis::PodStage, identity::Pod},
        present::sample,
    };

    fn told(pods: &[Deleted], beside: u64, api: Option<&str>, saw_all: bool) -> String {
        let at = sample::time(4000);
        let whole = List { pods, beside, api, saw_all, degraded: &[], at };
        list(&whole, Style { width: 80, ..Style::PLAIN })
    }

    #[test]
    fn each_pod_has_its_line_and_the_columns_are_straight() {
        let stage = |pod: &Pod, stage| PodStage { pod: pod.clone(), stage, fact: String::new() };
        let pod = sample::pod();
        let known = Deleted {
            stage: Some(stage(&pod, Stage::Volumes)),
            since: Some(sample::time(100)),
            cause: Some(sample::finding()),
            pod,
        };
        let uid = "0f0e0d0c-1111-2222-3333-44445555\u{1b}".to_owned();
        let pod = Pod { uid, namespace: None, name: None };
        let unknown = Deleted { stage: None, since: None, cause: None, pod };
        let text = told(&[known, unknown], 2, Some("API server x: 3 pods"), true);
        assert_eq!(
            text,
            "2 pods of this node are being deleted\n  \
             shop/cart-0                                 1h5m  volumes        volume-held-by-host-process, certain (0.95)\n  \
             uid 0f0e0d0c-1111-2222-3333-44445555\\x1b       -  not looked at  cause not known\n\
             2 findings are about something else: `podstuck watch`\n\
             more: podstuck diagnose --pod shop/cart-0\n"
        );
    }

    #[test]
    fn no_pod_is_told_as_sure_as_it_is() {
        let well = "no pod of this node is being deleted\n";
        assert_eq!(told(&[], 0, Some("API server x: 3 pods"), true), well);
        let doubtful = told(&[], 0, Some("no answer of the API server: no route"), false);
        assert!(doubtful.starts_with("no pod of this node is known to be deleted\n"), "{doubtful}");
        for words in ["no route: which pods", "there may be more"] {
            assert!(doubtful.replace("\n  ", " ").contains(words), "{doubtful}");
        }
        assert!(told(&[], 0, None, true).contains("was not asked"));
    }
}
