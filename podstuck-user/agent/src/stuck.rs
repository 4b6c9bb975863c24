//! A stuck pod, as an Event reports it.

use podstuck_model::{
    evidence::Certainty,
    finding::{FindingState, is_alarming},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::line::Finding;

/// Maximum length of an Event's note (`NoteLengthLimit` of the API server), in bytes.
const NOTE: usize = 1024;
/// Maximum length of the pod's name in an Event's name, in bytes. The API server accepts 253 characters in total.
const NAME: usize = 200;

/// A pod that has a name in the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Pod {
    /// Its UID.
    pub(crate) uid: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

/// One pod with one of its causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    /// The pod.
    pub(crate) pod: Pod,
    /// The id of the cause.
    pub(crate) cause: String,
    /// How sure it is: firm or likely.
    pub(crate) certainty: Certainty,
    /// The stage that the deletion has reached.
    pub(crate) stage: String,
    /// The note of the Event.
    pub(crate) note: String,
}

impl Stuck {
    /// Converts a finding. `None` if it is cleared, only possible, does not block the deletion, or has no named pod.
    pub(crate) fn of(finding: &Finding) -> Option<Self> {
        let is_cause = finding.state != FindingState::Cleared
            && is_alarming(finding.certainty, finding.severity, finding.blocks_deletion);
        let pod = finding.pod.as_ref().filter(|_| is_cause)?;
        let (namespace, name) = pod.namespace.clone().zip(pod.name.clone())?;
        Some(Self {
            pod: Pod { uid: pod.uid.clone(), namespace, name },
            cause: finding.id.clone(),
            certainty: finding.certainty,
            stage: finding.stage.clone(),
            note: note(finding),
        })
    }

    /// Name of the Event. It is the same after a restart, and differs when the verdict changes.
    pub(crate) fn event_name(&self) -> String {
        event_name(&self.pod.name, &[&self.pod.uid, &self.cause, self.certainty.word()])
    }
}

/// A name derived from the subject of an Event.
pub(crate) fn event_name(of: &str, about: &[&str]) -> String {
    let digest = Sha256::digest(about.join("\n"));
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{hex}", cut(of, NAME).trim_end_matches(['.', '-']))
}

/// Converts a cause to an Event reason: `immutable-attribute` to `ImmutableAttribute`.
pub(crate) fn reason(cause: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    cause.split('-').filter_map(word).collect()
}

/// Composes the note. The first command or advice comes before the explanation, because a note is short.
fn note(finding: &Finding) -> String {
    let mut note = format!("{} ({})", finding.id, finding.certainty.word());
    let mut add = |label: &str, text: &str| {
        note.push_str("; ");
        note.push_str(label);
        note.push_str(text);
    };
    if let Some(held_by) = &finding.held_by {
        add("held by ", &held_by.to_string());
    }
    if let Some(remedy) = finding.remedies.first() {
        match (&remedy.does, &remedy.command, &remedy.advice) {
            (Some(does), Some(command), _) => add("on the node: ", &format!("{does}: {command}")),
            (_, _, Some(advice)) => add("", advice),
            _ => {}
        }
    }
    if let Some(evidence) = finding.evidence.first() {
        add("seen: ", &evidence.fact);
    }
    add("", &finding.explanation);
    cut(&note, NOTE).to_owned()
}

/// The start of a text, up to a limit in bytes.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::line::Line;

    pub(crate) fn line(uid: &str, cause: &str, state: &str, certainty: &str) -> serde_json::Value {
        serde_json::json!({
            "schema": "podstuck/v1", "type": "finding", "time": "2026-11-28T13:13:05Z", "id": cause,
            "instance": format!("{cause}-1"), "state": state, "severity": "warning",
            "certainty": certainty, "stage": "volumes", "blocks_deletion": true,
            "pod": {"uid": uid, "namespace": "shop", "name": format!("cart-{uid}")},
            "explanation": "The file system refuses. ".repeat(80),
            "evidence": [{"fact": "unlinkat failed with EPERM", "source": "probe"}],
            "remedies": [{"does": "remove the attribute", "command": "chattr -i f", "advice": null}],
        })
    }

    pub(crate) fn finding(uid: &str, cause: &str, state: &str, certainty: &str) -> Finding {
        match serde_json::from_value(line(uid, cause, state, certainty)).unwrap() {
            Line::Finding(finding) => *finding,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_event_says_who_holds_and_what_to_do_within_the_api_servers_limits() {
        let stuck = Stuck::of(&finding("u", "immutable-attribute", "new", "firm")).unwrap();
        assert!(stuck.note.len() <= NOTE, "{}", stuck.note.len());
        assert!(stuck.note.starts_with(
            "immutable-attribute (certain); on the node: remove the attribute: chattr -i f; seen: "
        ));
        assert_eq!(reason(&stuck.cause), "ImmutableAttribute");
        let long = event_name(&"n".repeat(253), &["u"]);
        assert!(long.len() <= 253, "{long}");
    }

    #[test]
    fn a_name_follows_from_the_verdict_alone() {
        let name = |uid, cause, certainty| {
            Stuck::of(&finding(uid, cause, "update", certainty)).unwrap().event_name()
        };
        assert_eq!(name("u", "a", "firm"), name("u", "a", "firm"));
        let all = [
            name("u", "a", "firm"),
            name("u", "a", "likely"),
            name("u", "b", "firm"),
            name("v", "a", "firm"),
        ];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "{all:?}");
    }

    #[test]
    fn what_is_possible_or_harmless_or_over_is_no_event() {
        assert!(Stuck::of(&finding("u", "a", "new", "possible")).is_none());
        assert!(Stuck::of(&finding("u", "a", "cleared", "firm")).is_none());
        let harmless = Finding { blocks_deletion: Some(false), ..finding("u", "a", "new", "firm") };
        assert!(Stuck::of(&harmless).is_none());
        let unnamed = Finding { pod: None, ..finding("u", "a", "new", "firm") };
        assert!(Stuck::of(&unnamed).is_none());
    }
}
