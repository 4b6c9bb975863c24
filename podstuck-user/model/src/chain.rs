//! The chain of waits, from the deletion of a pod to the process or object that blocks it.

use core::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};

use super::{
    cause::CauseId,
    path::{clip, safe},
};

/// A link of the chain. It waits for the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The component, process or object that must act.
    pub who: Who,
    /// The action that is due.
    pub must: String,
    /// What it waits for; `None` where that is not visible.
    pub waits_for: Option<String>,
    /// Since when; `None` if unknown.
    pub since: Option<Timestamp>,
    /// The evidence.
    pub facts: Vec<LinkFact>,
    /// The cause that explains the link: the `id` of a finding.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "not_read")]
    pub explained_by: Option<CauseId>,
    /// Why its wait is not visible, and what makes it visible. [`super::diagnosis::PodStage`] has it for the last link.
    #[serde(skip)]
    pub not_visible: Option<String>,
}

/// A name may be that of a cause which this version does not know.
fn not_read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CauseId>, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| None)
}

impl Link {
    /// A link with one fact.
    pub fn new(
        who: Who,
        must: impl Into<String>,
        fact: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        let facts = vec![LinkFact { fact: fact.into(), source: source.into() }];
        let (must, waits_for, since) = (must.into(), None, None);
        Self { who, must, waits_for, since, facts, explained_by: None, not_visible: None }
    }

    /// Its facts as one sentence.
    pub fn fact(&self) -> String {
        let facts: Vec<&str> = self.facts.iter().map(|it| it.fact.as_str()).collect();
        facts.join("; ")
    }

    /// Their sources, separated by commas.
    pub fn source(&self) -> String {
        let sources: Vec<&str> = self.facts.iter().map(|it| it.source.as_str()).collect();
        sources.join(", ")
    }
}

/// A fact about a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFact {
    /// What was observed, as a sentence.
    pub fact: String,
    /// Where.
    pub source: String,
}

/// A component, process or object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Who {
    /// What it is.
    pub kind: WhoKind,
    /// Its name: of a process its program, empty if that is unknown; of an object its path or its kind and name.
    pub name: String,
    /// The process id, if it is one process.
    pub pid: Option<u32>,
    /// When that process was started, if known.
    pub start: Option<Timestamp>,
    /// What is said after it in a sentence, such as ` of pod shop/cart-0` or `, which does not run`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub more: String,
}

/// The kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WhoKind {
    /// A component of Kubernetes or of the node: the API server, kubelet, a runtime, a driver.
    Component,
    /// Any other process.
    Process,
    /// A path, a file system or an object of the API.
    Object,
}

impl Who {
    fn new(kind: WhoKind, name: impl Into<String>, pid: Option<u32>) -> Self {
        Self { kind, name: name.into(), pid, start: None, more: String::new() }
    }

    /// A component, by its process where that is known.
    pub fn component(name: impl Into<String>, pid: Option<u32>) -> Self {
        Self::new(WhoKind::Component, name, pid)
    }

    /// A process.
    pub fn process(name: impl Into<String>, pid: u32) -> Self {
        Self::new(WhoKind::Process, name, Some(pid))
    }

    /// A process by the name that the kernel has for it, of which it keeps the first bytes. Safe to show.
    pub fn task(comm: &str, pid: u32) -> Self {
        const COMM: usize = 16;
        Self::process(clip(&safe(comm.as_bytes()), COMM), pid)
    }

    /// An object.
    pub fn object(name: impl Into<String>) -> Self {
        Self::new(WhoKind::Object, name, None)
    }

    /// Sets when its process was started.
    #[must_use]
    pub fn started(self, start: Timestamp) -> Self {
        Self { start: Some(start), ..self }
    }

    /// Adds what is said after it.
    #[must_use]
    pub fn and(mut self, more: &str) -> Self {
        self.more.push_str(more);
        self
    }

    /// Whether both are the same process; without one of `other`, whether they are of one kind and have the same name: a
    /// process may call itself after a component.
    pub fn is(&self, other: &Self) -> bool {
        fn name(who: &Who) -> &str {
            who.name.strip_prefix("the ").unwrap_or(&who.name)
        }
        match other.pid {
            Some(pid) => self.pid == Some(pid),
            None => self.kind == other.kind && name(self) == name(other),
        }
    }
}

/// Writes it as in a sentence.
pub fn as_text<S: Serializer>(who: &Option<Who>, serializer: S) -> Result<S::Ok, S::Error> {
    match who {
        Some(who) => serializer.collect_str(who),
        None => serializer.serialize_none(),
    }
}

/// `NAME (pid PID)`, and what is said after it
impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) if self.name.is_empty() => write!(formatter, "pid {pid}")?,
            Some(pid) => write!(formatter, "{} (pid {pid})", self.name)?,
            None => formatter.write_str(&self.name)?,
        }
        formatter.write_str(&self.more)
    }
}
