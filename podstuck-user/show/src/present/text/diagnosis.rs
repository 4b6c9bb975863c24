//! The answer of `diagnose`: the progress of the deletion, what holds the pod, what does not, where to search next.

use jiff::Timestamp;

use super::{
    answer::answer as short,
    chain::chain,
    finding::{finding, whole},
    nouns,
    nouns::text,
    way_out,
};
use crate::present::{
    near::Near,
    quote,
    style::{Ink, Style},
    words,
};
use podstuck_model::{
    container::ContainerName,
    diagnosis::Diagnosis,
    finding::{Finding, FindingState},
    said::Said,
};

/// The full answer, which begins with the short one. Every cause is printed in full: each may be the one that helps.
pub fn diagnosis(answer: &Diagnosis, at: Timestamp, style: Style) -> String {
    let logged = || answer.said.iter().rev().take(SAID);
    let answer = quote::shortened(answer, logged());
    let mut out = short(&answer, at, style);
    let mut near = Near::default();
    near.learn(&out);
    let answer = &near.answer(&answer);
    if !answer.stages.is_empty() || !answer.containers.is_empty() {
        out.push('\n');
    }
    for stage in &answer.stages {
        let line = format!(
            "pod {}: {} ({})",
            nouns::pod(&stage.pod),
            stage.stage.meaning(),
            text(&stage.fact)
        );
        out.push_str(&style.wrap("  ", "    ", &line));
    }
    for it in &answer.containers {
        let ContainerName { id, name, pod } = &it.container;
        let of_pod = pod.as_ref().map(|pod| format!(" of pod {}", nouns::pod_short(pod)));
        let line = format!(
            "container {}{}: {} ({})",
            nouns::container(id, name.as_deref()),
            of_pod.unwrap_or_default(),
            it.stage.meaning(),
            text(&it.fact)
        );
        out.push_str(&style.wrap("  ", "    ", &line));
    }
    for stage in &answer.stages {
        out.push_str(&chain(&stage.chain, style));
    }
    for (number, cause) in answer.causes.iter().enumerate() {
        out.push_str(&format!("\n{}. ", number + 1));
        out.push_str(&whole(&as_new(cause), style));
    }
    list(&mut out, "what else matters", answer.notes.iter().map(|note| text(note)), style);
    list(&mut out, "what the logs say", logged().map(said), style);
    list(&mut out, "over", answer.over.iter().map(|over| finding(over, style)), style);
    list(
        &mut out,
        "ruled out",
        answer.ruled_out.iter().map(|other| text(&other.to_string())),
        style,
    );
    if !answer.remedies.is_empty() {
        let title = "what may release it (not proven to help; nothing is run for you)";
        out.push_str(&format!("\n{}\n", style.paint(Ink::Label, title)));
    }
    for remedy in &answer.remedies {
        out.push_str(&way_out::way_out(remedy, style));
    }
    list(&mut out, "where to look next", answer.next.iter().map(|next| text(next)), style);
    out.push('\n');
    out
}

/// Limit of log errors shown, the latest first; JSON has all.
const SAID: usize = 5;

fn said(said: &Said) -> String {
    let mut out = format!("{}: {}", words::moment(said.at), text(&said.text));
    if said.times > 1 {
        out.push_str(&format!(" ({})", words::times(said.times)));
    }
    if let Some(retry) = said.retry {
        out.push_str(&format!("; not retried before {}", words::moment(retry)));
    }
    out + &format!(" [{}]", text(&said.source))
}

/// Marks a finding as new, since only a new one is printed in full, and drops its ruled-out causes, which follow for
/// all causes together.
fn as_new(cause: &Finding) -> Finding {
    let likely_causes_ruled_out = Vec::new();
    Finding { state: FindingState::New, likely_causes_ruled_out, ..cause.clone() }
}

fn list(out: &mut String, title: &str, items: impl Iterator<Item = String>, style: Style) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    out.push_str(&format!("\n{}\n", style.paint(Ink::Label, title)));
    items.for_each(|item| out.push_str(&style.wrap("  - ", "    ", item.trim_end())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;
    use podstuck_model::{
        container::{ContainerProgress, ContainerStage},
        diagnosis::{Gone, PodStage, Stage, Terminating},
        evidence::{Certainty, Evidence, Source},
        finding::Progress,
        identity::Component,
        path::safe,
    };

    const PLAIN: Style = Style { width: 76, ..Style::PLAIN };

    fn rendered(answer: &Diagnosis, style: Style) -> String {
        diagnosis(answer, sample::time(300), style)
    }

    fn answer(causes: Vec<Finding>, firm: bool) -> Diagnosis {
        let pod = sample::pod();
        let fact = "1 mount below its directory".to_owned();
        Diagnosis {
            target: Some("pod shop/cart-0".into()),
            stages: vec![PodStage::new(pod, Stage::Volumes, fact)],
            containers: Vec::new(),
            firm,
            terminating: None,
            gone: None,
            progress: Vec::new(),
            window_s: 12.0,
            causes,
            notes: Vec::new(),
            over: Vec::new(),
            said: Vec::new(),
            ruled_out: vec![sample::ruled_out("nothing is mounted below it")],
            remedies: Vec::new(),
            next: Vec::new(),
        }
    }

    #[test]
    fn the_answer_comes_first() {
        let out = rendered(&answer(vec![sample::finding()], true), PLAIN);
        let first = "\
pod shop/cart-0: volume-held-by-host-process, certain (0.95)
  what   a process outside the pod uses the volume, and its unmount fails with EBUSY
  who    backup (pid 4242) of /system.slice/backup.service
  seen   since 2023-11-14 22:13:20Z, for 5m at least
  do     end backup (pid 4242), which keeps the volume busy
         kill 4242

";
        assert!(out.starts_with(first), "{out}");
        assert!(out.contains("its volumes are not (1 mount"), "{out}");
        assert!(out.contains("\nruled out\n  - nested-mount-under-volume: "), "{out}");
    }

    #[test]
    fn an_answer_that_is_not_certain_quotes_the_log_that_it_rests_on() {
        let certain = sample::finding();
        let source = Source::Log("log of kubelet".into());
        let said =
            Evidence { fact: "kubelet logged, 3 times: x".into(), source, since: certain.first };
        let evidence = [certain.evidence.clone(), vec![said]].concat();
        let of = |certainty| Finding { certainty, evidence: evidence.clone(), ..certain.clone() };
        let line = "\n  fact   kubelet logged, 3 times: x\n  seen ";
        let likely = rendered(&answer(vec![of(Certainty::Likely)], false), PLAIN);
        assert!(likely.contains(line), "{likely}");
        assert!(!rendered(&answer(vec![of(Certainty::Firm)], true), PLAIN).contains(line));
    }

    #[test]
    fn a_log_is_quoted_with_its_time_and_the_next_attempt() {
        let mut answer = answer(Vec::new(), false);
        let source = "log of kubelet (pid 7), /var/log/kubelet.log";
        let text = "unlinkat /k/f: operation not permitted";
        let said = Said::new(Component::Kubelet, source, "u", sample::time(9), text);
        answer.said = vec![Said { retry: Some(sample::time(70)), times: 3, ..said }];
        let out = rendered(&answer, Style { width: 400, ..PLAIN });
        let line = "unlinkat /k/f: operation not permitted (3 times); not retried before";
        assert!(out.contains(line) && out.contains("what the logs say"), "{out}");
    }

    #[test]
    fn a_container_has_a_stage_of_its_own() {
        let mut answer = answer(Vec::new(), false);
        answer.target = Some("container 3f (web)".into());
        answer.stages.clear();
        let name = Some("web".into());
        let container = ContainerName { id: "3f".into(), name, pod: Some(sample::pod()) };
        let (stage, fact) = (ContainerStage::Layer, "/d/overlay2/l is still there".into());
        answer.containers = vec![ContainerProgress { container, stage, fact }];
        let out = rendered(&answer, Style { width: 400, ..PLAIN });
        assert!(out.starts_with("container 3f (web): still there, and nothing"), "{out}");
        let line = "container web (id 3f) of pod shop/cart-0: it has ended, but its layer is left";
        assert!(out.contains(line), "{out}");
    }

    #[test]
    fn an_answer_without_causes_says_so() {
        let out = rendered(&answer(Vec::new(), false), PLAIN);
        let left = "pod shop/cart-0: still there, and nothing that holds it was seen";
        assert!(out.starts_with(left), "{out}");
        let mut gone = answer(Vec::new(), false);
        gone.stages[0].stage = Stage::Gone;
        let out = rendered(&gone, PLAIN);
        let nothing = "pod shop/cart-0: nothing of it is left on this node\n";
        assert!(out.starts_with(nothing), "{out}");
        let pod = sample::pod();
        gone.gone = Some(Gone { pod, after_s: 12.0 });
        let out = rendered(&gone, PLAIN);
        assert!(out.starts_with("pod shop/cart-0: gone from this node after 12 s\n"), "{out}");
    }

    #[test]
    fn the_deletion_time_precedes_the_first_observation() {
        let by = "its record".to_owned();
        let since = sample::time(-3300);
        let terminating = Some(Terminating { since, by });
        let line = "\n  since  2023-11-14 21:18:20Z, for 1h";
        for causes in [vec![sample::finding()], Vec::new()] {
            let out = rendered(
                &Diagnosis { terminating: terminating.clone(), ..answer(causes, true) },
                PLAIN,
            );
            assert!(out.contains(line) && out.contains(": Terminating, by its record\n"), "{out}");
        }
    }

    #[test]
    fn a_mass_deletion_shows_what_is_left_or_that_it_is_being_counted() {
        let mut answer = answer(vec![sample::finding()], true);
        let path = answer.causes[0].call.path.clone();
        let counted = Progress { path, ..sample::progress() };
        let uncounted = Progress {
            remaining_estimate: None,
            remaining_range: None,
            eta_s: None,
            eta_range_s: None,
            ..counted.clone()
        };
        for (progress, words) in
            [(counted, "  left   about "), (uncounted, "  left   podstuck is still counting")]
        {
            answer.progress = vec![progress];
            let out = rendered(&answer, PLAIN);
            assert!(out.contains(words) && out.contains(" per second\n"), "{out}");
        }
    }

    #[test]
    fn a_hostile_finding_stays_harmless() {
        let mut hostile = answer(vec![sample::hostile()], false);
        hostile.ruled_out = vec![sample::ruled_out(sample::HOSTILE)];
        let out = rendered(&hostile, PLAIN);
        assert_eq!(safe(out.replace('\n', "").as_bytes()), out.replace('\n', ""));
    }
}
