//! The deleted pods of a node, one line each.

use jiff::Timestamp;

use super::{
    chain::duty,
    nouns::{self, text},
};
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::{
    deleted::{Deleted, DeletionsKnown},
    diagnosis::{Diagnosis, Stage},
    finding::Finding,
    shell::{self, is_object_name, word},
};

/// The data of the lines after the list.
pub struct ListEnd<'a> {
    /// The pods.
    pub pods: &'a [Deleted],
    /// Number of findings that belong to none of them.
    pub beside: u64,
    /// The API server that was asked, or why none has answered; `None` when none was asked.
    pub api: Option<&'a str>,
    /// Whether all pods of the node were scanned.
    pub saw_all: bool,
    /// How much is known of which pods are being deleted.
    pub heard: DeletionsKnown,
    /// The parts of the tool that cannot work, a sentence each.
    pub degraded: &'a [String],
    /// The options that the list was called with, as a shell takes them.
    pub options: &'a str,
}

/// A longer name shifts only the columns of its own line.
const LONGEST_NAME: usize = 40;

/// Width of the column of names.
pub fn name_width(pods: &[Deleted]) -> usize {
    let widths = pods.iter().map(|pod| width(&name(pod))).filter(|width| *width <= LONGEST_NAME);
    widths.max().unwrap_or_default()
}

/// The line of a pod, with a column of names of this width. With `is_wide`, it has the UID and the first command,
/// too.
pub fn listed(pod: &Deleted, names: usize, is_wide: bool, at: Timestamp, style: Style) -> String {
    let name = name(pod);
    let padding = " ".repeat(names.saturating_sub(width(&name)));
    let since = pod.since.map(|since| {
        let age = at.duration_since(since).as_secs().try_into().unwrap_or(0);
        words::age(age)
    });
    let stage = pod.stage.as_ref().map_or("not scanned", |it| left(it.stage));
    let cause = match &pod.cause {
        Some(cause) => certain(cause, style),
        None => match pod.stage.as_ref().and_then(|stage| stage.chain.last()) {
            Some(last) => format!("cause not known: {}", duty(last)),
            None => "cause not known".into(),
        },
    };
    let since = since.unwrap_or_else(|| "-".into());
    let wide = if is_wide { wide(pod) } else { String::new() };
    format!("  {name}{padding}  {since:>6}  {stage:<13}  {cause}{wide}\n")
}

/// What is known while podstuck still examines the node: the first cause, or the last component that must act.
pub fn so_far(answer: &Diagnosis) -> Option<String> {
    if let Some(cause) = answer.causes.first() {
        return Some(certain(cause, Style::PLAIN));
    }
    answer.stages.first().and_then(|stage| stage.chain.last()).map(duty)
}

fn certain(Finding { id, severity, certainty, .. }: &Finding, style: Style) -> String {
    let id = style.paint(Ink::Severity(*severity), id.as_str());
    format!("{id}, {}", words::certainty(*certainty))
}

fn wide(pod: &Deleted) -> String {
    let first = pod.cause.as_ref().and_then(|cause| cause.remedies.first());
    let first = first.and_then(|remedy| remedy.command.as_ref().or(remedy.advice.as_ref()));
    format!("  {}  {}", text(&pod.pod.uid), first.map_or_else(|| "-".into(), |first| text(first)))
}

/// The pod's name, with its UID where another pod has the same name.
fn name(pod: &Deleted) -> String {
    let name = nouns::pod_short(&pod.pod);
    if pod.is_ambiguous { format!("{name} (uid {})", text(&pod.pod.uid)) } else { name }
}

/// The number of pods, the notes, and the command that asks about one.
pub fn list_end(list: &ListEnd<'_>, style: Style) -> String {
    let count = list.pods.len() as u64;
    let known = list.pods.iter().filter(|pod| pod.cause.is_some()).count() as u64;
    let mut out = match count {
        0 if list.saw_all && list.heard == DeletionsKnown::All => {
            "no pod of this node is being deleted\n".to_owned()
        }
        0 => "no pod of this node is known to be deleted\n".to_owned(),
        _ => {
            let being = words::plural(count, "pod of this node is", "pods of this node are");
            format!("{being} being deleted; a cause is known for {known}\n")
        }
    };
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
    let more =
        |first| shell::line(&format!("podstuck diagnose {}{}", target(first), list.options), false);
    if let Some(Ok(command)) = list.pods.first().map(more) {
        let label = style.paint(Ink::Label, "more:");
        out.push_str(&format!("{label} {}\n", style.paint(Ink::Command, &command.text)));
    }
    out
}

/// What is left of a pod in a stage.
const fn left(stage: Stage) -> &'static str {
    match stage {
        Stage::Containers => "containers",
        Stage::Volumes => "volumes",
        Stage::Cgroup => "cgroup",
        Stage::Directories => "directories",
        Stage::Gone | Stage::Api => "record only",
    }
}

fn notes(list: &ListEnd<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let only = "only kubelet's log and the node's state show which pods are being deleted";
    match list.api {
        None => notes.push(format!("the API server was not asked: {only}")),
        Some(why) if why.starts_with("no answer") => notes.push(format!("{}: {only}", text(why))),
        Some(_) if list.heard == DeletionsKnown::Some => {
            notes.push(format!("the API server has no node of this machine's name: {only}"));
        }
        Some(_) => {}
    }
    if list.heard == DeletionsKnown::None {
        let unknown = "no kubelet acts on this node, and no API server has a node of its name: which pods are being \
                      deleted is not known";
        notes.push(unknown.into());
    }
    if !list.saw_all {
        notes.push("not all of the node could be scanned: there may be more".into());
    }
    notes.extend(list.degraded.iter().map(|part| text(part)));
    notes
}

/// The arguments that name the pod on a command line.
fn target(pod: &Deleted) -> String {
    match (&pod.pod.namespace, &pod.pod.name) {
        (Some(namespace), Some(name))
            if !pod.is_ambiguous && is_object_name(namespace) && is_object_name(name) =>
        {
            format!("{namespace}/{name}")
        }
        _ => format!("--pod-uid {}", word(&pod.pod.uid)),
    }
}

fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;
    use podstuck_model::{
        chain::{Link, Who},
        diagnosis::PodStage,
        identity::Pod,
    };

    fn rendered(pods: &[Deleted], beside: u64, api: Option<&str>, saw_all: bool) -> String {
        let (at, style) = (sample::time(4000), Style { width: 80, ..Style::PLAIN });
        let names = name_width(pods);
        let lines = pods.iter().map(|pod| listed(pod, names, false, at, style));
        let options = " --kubelet-root /k";
        let end = ListEnd {
            pods,
            beside,
            api,
            saw_all,
            heard: DeletionsKnown::All,
            degraded: &[],
            options,
        };
        lines.chain([list_end(&end, style)]).collect()
    }

    fn known(pod: Pod) -> Deleted {
        let stage = PodStage::new(pod.clone(), Stage::Volumes, "");
        Deleted {
            stage: Some(stage),
            since: Some(sample::time(100)),
            cause: Some(sample::finding()),
            is_known: true,
            is_ambiguous: false,
            pod,
        }
    }

    #[test]
    fn each_pod_has_its_line_and_the_columns_are_straight() {
        let uid = "0f0e0d0c-1111-2222-3333-44445555\u{1b}".to_owned();
        let pod = Pod { uid, namespace: None, name: None };
        let nothing = Deleted { stage: None, since: None, cause: None, ..known(pod) };
        let text =
            rendered(&[known(sample::pod()), nothing], 2, Some("API server x: 3 pods"), true);
        assert_eq!(
            text,
            "  shop/cart-0                                 1h5m  volumes        volume-held-by-host-process, certain (0.95)\n  \
             uid 0f0e0d0c-1111-2222-3333-44445555\\x1b       -  not scanned    cause not known\n\
             2 pods of this node are being deleted; a cause is known for 1\n\
             2 findings are about something else: `podstuck watch`\n\
             more: podstuck diagnose shop/cart-0 --kubelet-root /k\n"
        );
    }

    #[test]
    fn without_a_cause_the_last_one_that_must_act_is_named() {
        let mut pod = Deleted { cause: None, ..known(sample::pod()) };
        let who = Who::component("kubelet", Some(1));
        let link = Link {
            waits_for: Some("CSI driver x".into()),
            ..Link::new(who, "unmount the pod's volumes", "", "")
        };
        pod.stage.as_mut().unwrap().chain.push(link);
        let text = rendered(&[pod], 0, Some("API server x: 3 pods"), true);
        let last = "cause not known: kubelet (pid 1) must unmount the pod's volumes, and waits for CSI driver x\n";
        assert!(text.contains(last), "{text}");
    }

    #[test]
    fn without_a_source_of_deletions_there_may_be_some() {
        let list = |heard| {
            let (pods, api, options) = (&[], None, "");
            let end =
                ListEnd { pods, beside: 0, api, saw_all: true, heard, degraded: &[], options };
            list_end(&end, Style { width: 200, ..Style::PLAIN })
        };
        assert!(list(DeletionsKnown::All).starts_with("no pod of this node is being deleted\n"));
        let text = list(DeletionsKnown::Some);
        assert!(text.starts_with("no pod of this node is known to be deleted\n"), "{text}");
        assert!(
            text.contains("note: the API server was not asked") && !text.contains("no kubelet"),
            "{text}"
        );
        let text = list(DeletionsKnown::None);
        assert!(text.starts_with("no pod of this node is known to be deleted\n"), "{text}");
        assert!(text.contains("note: no kubelet acts on this node, "), "{text}");
    }

    #[test]
    fn a_name_that_another_pod_has_is_shown_with_its_uid() {
        let old = Deleted { is_ambiguous: true, ..known(sample::pod()) };
        let uid = old.pod.uid.clone();
        let text = rendered(&[old], 0, Some("API server x: 3 pods"), true);
        assert!(text.contains(&format!("  shop/cart-0 (uid {uid})")), "{text}");
        assert!(text.contains(&format!("diagnose --pod-uid {uid} --kubelet-root /k\n")), "{text}");
    }

    #[test]
    fn a_wide_line_has_the_uid_and_the_first_command() {
        let pod = known(sample::pod());
        let text = listed(&pod, 0, true, sample::time(4000), Style::PLAIN);
        assert!(text.ends_with(&format!("  {}  kill 4242\n", pod.pod.uid)), "{text}");
    }

    #[test]
    fn an_empty_list_is_as_certain_as_its_sources() {
        let well = "no pod of this node is being deleted\n";
        assert_eq!(rendered(&[], 0, Some("API server x: 3 pods"), true), well);
        let doubtful = rendered(&[], 0, Some("no answer of the API server: no route"), false);
        assert!(doubtful.starts_with("no pod of this node is known to be deleted\n"), "{doubtful}");
        for words in ["no route: only kubelet's log", "there may be more"] {
            assert!(doubtful.replace("\n  ", " ").contains(words), "{doubtful}");
        }
        assert!(rendered(&[], 0, None, true).contains("was not asked"));
    }
}
