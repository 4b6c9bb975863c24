//! A cause as a value: its meaning, the facts that confirm it, its look-alikes, its remedies.
//!
//! Rules decide by it, documents are generated from it, labs and tests refer to it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::{degraded::Feed, diagnosis::Stage};

/// The name of a cause, in kebab-case: a part of the contract `podstuck/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CauseId(&'static str);

impl CauseId {
    /// Creates a name. In a constant, a name that is not kebab-case is a compile error.
    pub const fn new(name: &'static str) -> Self {
        assert!(is_kebab_case(name.as_bytes()), "the id of a cause is in kebab-case");
        Self(name)
    }

    /// The name in documents, in JSON and in output.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Whether a name consists of lower-case letters, digits and single dashes between them, a letter first.
const fn is_kebab_case(name: &[u8]) -> bool {
    let mut at = 0;
    let mut after_dash = true;
    while at < name.len() {
        match name[at] {
            b'-' if !after_dash => after_dash = true,
            b'a'..=b'z' => after_dash = false,
            b'0'..=b'9' if at > 0 => after_dash = false,
            _ => return false,
        }
        at += 1;
    }
    !after_dash
}

impl fmt::Display for CauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl Serialize for CauseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

/// Whether a finding names a cause or admits that none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The reason why a deletion is stuck or slow.
    Cause,
    /// No cause is known. Its certainty is at most possible, and any cause ranks before it.
    Admission,
}

/// How a cause was tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TriedWith {
    /// By a lab with the cause's name.
    Lab,
    /// By a test that produces the fault on this machine in another way.
    Test,
    /// With a real containerd or dockerd.
    RealRuntime,
    /// With a real kubelet.
    RealKubelet,
    /// With data captured on a real node: logs, the pod's record, mounts, directories and control groups.
    Recording,
    /// By a test against a real API server.
    ApiServer,
    /// With objects of the documented form that a test constructs.
    Objects,
}

impl TriedWith {
    /// The text in output.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lab => "a lab",
            Self::Test => "a test that makes it",
            Self::RealRuntime => "a real container runtime",
            Self::RealKubelet => "a real kubelet",
            Self::Recording => "a recording of a real node",
            Self::ApiServer => "a real API server",
            Self::Objects => "constructed objects of the documented form",
        }
    }
}

/// The kind of source of a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Calls that the probes saw.
    Calls,
    /// The mount table of a process.
    Mounts,
    /// `/proc` and control groups.
    Proc,
    /// Other files, or their presence.
    Files,
    /// A system call of podstuck itself on the object.
    Look,
    /// A component's log.
    Log,
    /// The pod's record and other objects of the API server.
    Api,
    /// kubelet's list of its pods, from its `/pods` endpoint.
    Kubelet,
    /// A comparison of several scans of the node.
    Scans,
}

impl Origin {
    /// The text in output.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Calls => "the probes",
            Self::Mounts => "mountinfo",
            Self::Proc => "`/proc`",
            Self::Files => "files",
            Self::Look => "a check of the object",
            Self::Log => "a log",
            Self::Api => "the API server",
            Self::Kubelet => "kubelet's `/pods`",
            Self::Scans => "several scans",
        }
    }
}

/// A fact that confirms a cause, and its proof. JSON has the sentence only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The fact, as a sentence.
    pub fact: &'static str,
    /// The proof.
    pub by: By,
}

impl Proof {
    /// Whether podstuck has no source for it.
    pub const fn is_hidden(&self) -> bool {
        matches!(self.by, By::Seen([]))
    }
}

/// How a fact is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By evidence: a firm finding has evidence from one of these origins. An empty list means that the fact is
    /// hidden from podstuck.
    Seen(&'static [Origin]),
    /// By evidence that can stand in for the preceding fact.
    OrSeen(&'static [Origin]),
    /// By absence, which counts only while this feed is complete.
    Absent(Feed),
}

impl Serialize for Proof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_hidden() {
            true => {
                serializer.collect_str(&format_args!("{} (not visible to podstuck)", self.fact))
            }
            false => serializer.serialize_str(self.fact),
        }
    }
}

/// Creates a proof by evidence.
pub const fn seen(fact: &'static str, from: &'static [Origin]) -> Proof {
    Proof { fact, by: By::Seen(from) }
}

/// Creates a proof that can stand in for the preceding one.
pub const fn or_seen(fact: &'static str, from: &'static [Origin]) -> Proof {
    Proof { fact, by: By::OrSeen(from) }
}

/// A fact for which podstuck has no source. A cause with one such fact is at most likely, with two at most possible.
pub const fn hidden(fact: &'static str) -> Proof {
    seen(fact, &[])
}

/// Creates a proof by absence.
pub const fn absent(fact: &'static str, feed: Feed) -> Proof {
    Proof { fact, by: By::Absent(feed) }
}

/// A cause with the same first symptoms.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LookAlike {
    /// Its name. podstuck may not recognise that cause.
    pub cause: CauseId,
    /// The fact that is true here and false for that cause.
    pub differs_by: &'static str,
}

/// A remedy of a cause.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WayOut {
    /// The action, in a few words; a finding has the command with its paths.
    pub action: &'static str,
    /// What it may break; empty for nothing.
    pub risk: &'static str,
}

/// A line of a component's log.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LogLine {
    /// The component.
    pub component: &'static str,
    /// The text to search for.
    pub text: &'static str,
}

/// A reason why a deletion does not complete.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cause {
    /// Its name.
    pub id: CauseId,
    /// The meaning, in one line.
    pub title: &'static str,
    /// The stage of the deletion in which it blocks the pod, or in which it is visible.
    pub stage: Stage,
    /// A cause, or the admission that none is known.
    pub kind: Kind,
    /// The mechanism, in a few sentences.
    pub meaning: &'static str,
    /// The facts that confirm it, each with its proof.
    pub confirmed_by: &'static [Proof],
    /// The log line that confirms it, if there is one.
    pub log: Option<LogLine>,
    /// Causes with the same first symptoms.
    pub look_alikes: &'static [LookAlike],
    /// Remedies, the preferred one first.
    pub ways_out: &'static [WayOut],
    /// Reports from the field: issues as `PROJECT#NUMBER`, and articles. They were read, not reproduced; empty if
    /// none is known.
    pub field: &'static [&'static str],
    /// How it was tested; empty if it was not.
    pub tried: &'static [TriedWith],
    /// Where the kernel, Kubernetes or a runtime implements it.
    pub source: &'static [&'static str],
}

impl Cause {
    /// Whether it is the admission that no cause is known.
    pub fn is_admission(&self) -> bool {
        self.kind == Kind::Admission
    }

    /// The first fact that needs evidence and has none from these origins.
    pub fn unproven(&self, evidence: &[Origin]) -> Option<&'static str> {
        let mut required: Vec<(&'static str, bool)> = Vec::new();
        for proof in self.confirmed_by {
            let is_seen = |from: &[Origin]| from.iter().any(|origin| evidence.contains(origin));
            match (proof.by, required.last_mut()) {
                (By::OrSeen(from), Some((_, known))) => *known |= is_seen(from),
                (By::Seen(from) | By::OrSeen(from), _) => {
                    required.push((proof.fact, is_seen(from)));
                }
                (By::Absent(_), _) => {}
            }
        }
        required.into_iter().find(|(_, is_seen)| !is_seen).map(|(fact, _)| fact)
    }

    /// The facts for which podstuck has no source.
    pub fn hidden(&self) -> impl Iterator<Item = &'static str> {
        self.confirmed_by.iter().filter(|proof| proof.is_hidden()).map(|proof| proof.fact)
    }

    /// The facts proven by absence, each with the feed that must be complete.
    pub fn absences(&self) -> impl Iterator<Item = (&'static str, Feed)> {
        self.confirmed_by.iter().filter_map(|proof| match proof.by {
            By::Absent(feed) => Some((proof.fact, feed)),
            By::Seen(_) | By::OrSeen(_) => None,
        })
    }

    /// The look-alike of this name, if it is one of this cause.
    pub fn look_alike(&self, id: CauseId) -> Option<&LookAlike> {
        self.look_alikes.iter().find(|look_alike| look_alike.cause == id)
    }
}

/// Causes are equal if their names are.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Cause {}

/// Creates a look-alike.
pub const fn like(cause: CauseId, differs_by: &'static str) -> LookAlike {
    LookAlike { cause, differs_by }
}

/// Creates a remedy.
pub const fn way(action: &'static str, risk: &'static str) -> WayOut {
    WayOut { action, risk }
}

/// Creates a log line that confirms a cause.
pub const fn log(component: &'static str, text: &'static str) -> Option<LogLine> {
    Some(LogLine { component, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kebab_case_is_a_name() {
        for good in ["a", "cgroup-v1-frozen", "x2-y"] {
            assert!(is_kebab_case(good.as_bytes()), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a_b", "1a", "a b", "ä"] {
            assert!(!is_kebab_case(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_name_is_printed_within_a_column() {
        let id = CauseId::new("cgroup-v1-frozen");
        assert_eq!(format!("{id:<18}|"), "cgroup-v1-frozen  |");
        assert_eq!(serde_json::to_value(id).unwrap(), "cgroup-v1-frozen");
    }
}
