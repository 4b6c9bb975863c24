//! A cause as a value: what it means, what confirms it, what it is confused with, the way out.
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
    /// A name, checked where it is a constant: what is not kebab-case does not compile there.
    pub const fn new(name: &'static str) -> Self {
        assert!(is_kebab_case(name.as_bytes()), "the id of a cause is in kebab-case");
        Self(name)
    }

    /// As documents, JSON and people write it.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Words of lower-case letters and digits, joined by single dashes; a letter comes first.
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

/// What a finding of this name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Why something is stuck, or slow.
    Cause,
    /// That it is not known why. It is never more than possible, and any cause comes before it.
    Admission,
}

/// How a cause was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TriedWith {
    /// By a lab of the same name.
    Lab,
    /// By a test that makes the fault on this machine in another way.
    Test,
    /// With a real containerd or dockerd.
    RealRuntime,
    /// With a real kubelet.
    RealKubelet,
    /// With what was captured of a real node that has it: what its logs say, its pod's record, mounts, directories
    /// and control groups.
    Recording,
    /// By a test on a real API server.
    ApiServer,
    /// With objects of the documented form, which a test makes up.
    Objects,
}

impl TriedWith {
    /// What a person is told.
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

/// Where a fact is read: the kind of a source of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Calls that the probes have seen.
    Calls,
    /// The mounts that a process sees.
    Mounts,
    /// `/proc`, control groups.
    Proc,
    /// Other files, or their presence.
    Files,
    /// A system call of podstuck's own on the object.
    Look,
    /// A component's log.
    Log,
    /// The pod's record, and what else the API server has.
    Api,
    /// kubelet's own list of its pods, by its `/pods`.
    Kubelet,
    /// Several scans of the node.
    Scans,
}

impl Origin {
    /// What a person is told.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Calls => "the probes",
            Self::Mounts => "mountinfo",
            Self::Proc => "`/proc`",
            Self::Files => "files",
            Self::Look => "a look at the object",
            Self::Log => "a log",
            Self::Api => "the API server",
            Self::Kubelet => "kubelet's `/pods`",
            Self::Scans => "several scans",
        }
    }
}

/// A fact that confirms a cause, and what proves it. In JSON its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The sentence.
    pub fact: &'static str,
    /// What proves it.
    pub by: By,
}

impl Proof {
    /// Whether the tool reads it nowhere.
    pub const fn is_hidden(&self) -> bool {
        matches!(self.by, By::Seen([]))
    }
}

/// What proves a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It is seen: a firm finding has evidence from one of these. It is hidden from the tool where there is none.
    Seen(&'static [Origin]),
    /// It may be seen in place of the fact before it.
    OrSeen(&'static [Origin]),
    /// It is concluded from what is not there, which counts only while this part of the tool sees everything.
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

/// Shorter to write in a list of proofs.
pub const fn seen(fact: &'static str, from: &'static [Origin]) -> Proof {
    Proof { fact, by: By::Seen(from) }
}

/// Shorter to write in a list of proofs.
pub const fn or_seen(fact: &'static str, from: &'static [Origin]) -> Proof {
    Proof { fact, by: By::OrSeen(from) }
}

/// A fact that the tool reads nowhere: what takes it is never more than likely, and what takes two, possible.
pub const fn hidden(fact: &'static str) -> Proof {
    seen(fact, &[])
}

/// Shorter to write in a list of proofs.
pub const fn absent(fact: &'static str, feed: Feed) -> Proof {
    Proof { fact, by: By::Absent(feed) }
}

/// A cause that shows in the same way at first sight.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LookAlike {
    /// Its name. It may be one that podstuck does not recognise.
    pub cause: CauseId,
    /// The fact that holds here and does not hold there.
    pub told_apart_by: &'static str,
}

/// What can be done.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WayOut {
    /// In a few words; a finding has the command with its paths.
    pub action: &'static str,
    /// What it may break; empty for nothing.
    pub risk: &'static str,
}

/// A line of somebody's log.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LogLine {
    /// Whose log.
    pub component: &'static str,
    /// A text to search for.
    pub text: &'static str,
}

/// Why a deletion does not come to its end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cause {
    /// Its name.
    pub id: CauseId,
    /// What it means, in one line.
    pub title: &'static str,
    /// The stage of the deletion in which it holds the pod, or in which it shows.
    pub stage: Stage,
    /// A cause, or the admission that none is known.
    pub kind: Kind,
    /// What happens, in a few sentences.
    pub meaning: &'static str,
    /// The facts that confirm it, each with what proves it.
    pub confirmed_by: &'static [Proof],
    /// The line of a log by which an expert confirms it, where there is one.
    pub log: Option<LogLine>,
    /// What it is confused with.
    pub look_alikes: &'static [LookAlike],
    /// What can be done, the first of them first.
    pub ways_out: &'static [WayOut],
    /// Who met it: issues as `PROJECT#NUMBER`, and articles. They were read, and not played again; empty if none is
    /// known.
    pub field: &'static [&'static str],
    /// How it was tried; empty if it was not.
    pub tried: &'static [TriedWith],
    /// Where the kernel, Kubernetes or a runtime does it.
    pub source: &'static [&'static str],
}

impl Cause {
    /// Whether it only says that no cause is known.
    pub fn is_admission(&self) -> bool {
        self.kind == Kind::Admission
    }

    /// The first fact that has to be seen, and that no evidence from these states.
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

    /// The facts that the tool reads nowhere.
    pub fn hidden(&self) -> impl Iterator<Item = &'static str> {
        self.confirmed_by.iter().filter(|proof| proof.is_hidden()).map(|proof| proof.fact)
    }

    /// What it concludes from what is not there, and the part of the tool that must see everything for that.
    pub fn absences(&self) -> impl Iterator<Item = (&'static str, Feed)> {
        self.confirmed_by.iter().filter_map(|proof| match proof.by {
            By::Absent(feed) => Some((proof.fact, feed)),
            By::Seen(_) | By::OrSeen(_) => None,
        })
    }

    /// What it is confused with, if it is that.
    pub fn look_alike(&self, id: CauseId) -> Option<&LookAlike> {
        self.look_alikes.iter().find(|look_alike| look_alike.cause == id)
    }
}

/// Two causes are one if they have one name.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Cause {}

/// Shorter to write in a table of look-alikes.
pub const fn like(cause: CauseId, told_apart_by: &'static str) -> LookAlike {
    LookAlike { cause, told_apart_by }
}

/// Shorter to write in a list of ways out.
pub const fn way(action: &'static str, risk: &'static str) -> WayOut {
    WayOut { action, risk }
}

/// Shorter to write where a log confirms a cause.
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
