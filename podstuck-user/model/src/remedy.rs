//! Remedies as they are printed.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    evidence::Certainty, holder::About, identity::Pod, path::JsonPath, shell::is_object_name,
    time::Clock,
};

/// A remedy. podstuck itself never runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remedy {
    /// Whether it is a command.
    pub kind: RemedyKind,
    /// The effect of the command, as a short imperative sentence; `None` for advice, which is one itself.
    pub does: Option<String>,
    /// A shell command with quoted arguments; `None` for advice.
    pub command: Option<String>,
    /// An action that no command performs; `None` for a command.
    pub advice: Option<String>,
    /// What it may break.
    pub risk: String,
    /// Where to run it; `None` for advice.
    #[serde(rename = "where")]
    pub place: Option<Place>,
    /// What the command checks before it acts, since it may be run long after it was printed.
    pub guard: Option<String>,
    /// Others that it affects.
    pub affects: Vec<String>,
    /// A command that succeeds once the remedy has worked.
    pub verify: Option<String>,
    /// Reasons to withhold it.
    #[serde(skip)]
    pub withheld: Withheld,
    /// The mount that it unmounts, if the kernel may refuse that: podstuck searches for its holders.
    #[serde(skip)]
    pub unmounts: Option<Box<Unmount>>,
    /// The position in `does` at which the start of the named process is inserted, and that start in ticks since
    /// boot.
    #[serde(skip)]
    pub started: Option<(usize, u64)>,
}

/// A remedy as another podstuck has written it.
#[derive(Deserialize)]
struct Written {
    does: Option<String>,
    command: Option<String>,
    advice: Option<String>,
    risk: String,
    guard: Option<String>,
    affects: Vec<String>,
    verify: Option<String>,
}

impl<'de> Deserialize<'de> for Remedy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut remedy = match (written.command, written.advice) {
            (Some(command), _) => Self::command("", command, written.risk),
            (None, advice) => Self::advice(advice.unwrap_or_default(), written.risk),
        };
        remedy.does = written.does;
        let Written { guard, affects, verify, .. } = written;
        Ok(Self { guard, affects, verify, ..remedy })
    }
}

/// A mount that a remedy unmounts. The kernel refuses that while it is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmount {
    /// A process in a mount namespace other than the reader's, through which the command enters it.
    pub process: Option<u32>,
    /// A process that sees the mount, and its mount namespace; `None` if unknown.
    pub seen_by: Option<(u32, u32)>,
    /// The mount point.
    pub point: PathBuf,
}

impl Unmount {
    /// The subject of a search for its holders; `None` if no process that sees it is known.
    pub fn about(&self) -> Option<About> {
        let (pid, namespace) = self.seen_by?;
        Some(About::Mount { pid, namespace, path: JsonPath(self.point.clone()) })
    }
}

/// The effect of a command, as a sentence that fits one or two lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Does {
    words: String,
    started: Option<(usize, u64)>,
}

/// Maximum columns of that sentence; below, the columns of a pid and of a process's start in it.
pub const SENTENCE: usize = 100;
const LONGEST_PID: usize = "4194304".len();
const START: usize = ", started 2026-11-26".len();

impl Does {
    /// A sentence that names no process.
    pub fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), started: None }
    }

    /// A sentence that names a process, whose start in ticks since boot is inserted between both parts.
    pub fn of_process(before: String, started: Option<u64>, after: &str) -> Self {
        let started = started.map(|ticks| (before.len(), ticks));
        Self { words: before + after, started }
    }

    /// Appends a clause if it fits.
    pub fn push(&mut self, clause: &str) {
        let start = if self.started.is_some() { START } else { 0 };
        if self.columns() + start + clause.chars().count() <= SENTENCE {
            self.words.push_str(clause);
        }
    }

    /// Counts each pid with the maximum number of digits, so that the sentence does not depend on the pid.
    fn columns(&self) -> usize {
        let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
        let missing = |rest| LONGEST_PID.saturating_sub(digits(rest));
        self.words.chars().count() + self.words.split("pid ").skip(1).map(missing).sum::<usize>()
    }
}

impl From<&str> for Does {
    fn from(words: &str) -> Self {
        Self::new(words)
    }
}

/// Facts that must be known before a command is printed; each field has the effect of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// It could hit another object: no check compares the object with the one that was seen.
    pub unchecked: Option<String>,
    /// It takes a file system away from all its users.
    pub forced: Option<String>,
    /// These users are unknown.
    pub others_unknown: bool,
    /// It passes a name through `xargs`; its effect and object.
    pub by_xargs: Option<String>,
}

/// Whether a remedy is a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemedyKind {
    /// A command.
    Command,
    /// An action or a decision for the administrator.
    Advice,
}

/// The place where a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the node, as root.
    Node,
    /// Where kubectl is configured.
    Kubectl,
}

impl Place {
    /// The place, by the command's program.
    pub fn of(command: &str) -> Self {
        let is_kubectl =
            ["kubectl ", "[ \"$(kubectl "].iter().any(|first| command.starts_with(first));
        if is_kubectl { Self::Kubectl } else { Self::Node }
    }
}

const FORCED_IN_DOUBT: &str =
    "no command is given, because it cannot be undone, and the verdict is not firm";
const OTHERS_UNKNOWN: &str =
    "no command is given, because it is not known who else uses that file system";
const NO_XARGS: &str = "no command is given, because a name in it can be typed in no shell, and this node has no \
    xargs and sh that would take it";
const UNCHECKED: &str = "no command is given, because nothing was noted by which it could make sure that it \
    meets the same object; look for yourself before you do it";

impl Remedy {
    /// A command with its effect and its risk.
    pub fn command(
        does: impl Into<Does>,
        command: impl Into<String>,
        risk: impl Into<String>,
    ) -> Self {
        let (Does { words, started }, command) = (does.into(), command.into());
        Self {
            kind: RemedyKind::Command,
            does: Some(words),
            started,
            place: Some(Place::of(&command)),
            command: Some(command),
            advice: None,
            risk: risk.into(),
            guard: None,
            affects: Vec::new(),
            verify: None,
            withheld: Withheld::default(),
            unmounts: None,
        }
    }

    /// Advice with its risk.
    pub fn advice(advice: impl Into<String>, risk: impl Into<String>) -> Self {
        Self {
            kind: RemedyKind::Advice,
            does: None,
            advice: Some(advice.into()),
            command: None,
            place: None,
            ..Self::command("", "", risk)
        }
    }

    /// Whether it changes nothing, by its risk.
    pub fn only_looks(&self) -> bool {
        ["none", "none;", "none:", "none,"].contains(&self.risk.split(' ').next().unwrap_or(""))
    }

    /// The remedy, or advice that says why the command is withheld. A replay withholds no command for a missing
    /// check: an old recording may lack it, and its commands are not acted on.
    pub fn given(self, certainty: Certainty, is_replay: bool) -> Self {
        let Withheld { unchecked, forced, others_unknown, .. } = &self.withheld;
        let why = match (forced, unchecked) {
            (Some(what), _) if certainty != Certainty::Firm => (what, FORCED_IN_DOUBT),
            (Some(what), _) if *others_unknown => (what, OTHERS_UNKNOWN),
            (_, Some(what)) if !is_replay => (what, UNCHECKED),
            _ => return self,
        };
        let advice = format!("{}: {}", why.0, why.1);
        Self { affects: self.affects, ..Self::advice(advice, self.risk) }
    }

    /// The remedy, or advice that names the object, for a node without `xargs` or `sh`.
    pub fn without_xargs(self) -> Self {
        let Some(what) = &self.withheld.by_xargs else { return self };
        let advice = format!("{what}: {NO_XARGS}");
        Self { affects: self.affects, ..Self::advice(advice, self.risk) }
    }

    /// Inserts the start of the process that it names: the time of day, or the date if it is another day.
    pub fn dated(mut self, clock: &Clock, now: Timestamp) -> Self {
        if let (Some((at, ticks)), Some(does)) = (self.started.take(), &mut self.does) {
            let started = clock.after_boot(ticks);
            let day = |time: Timestamp| time.strftime("%F").to_string();
            let is_today = day(started) == day(now);
            let when = if is_today { started.strftime("%RZ").to_string() } else { day(started) };
            does.insert_str(at, &format!(", started {when}"));
        }
        self
    }

    /// Adds a check that the pod is gone, if the remedy has no check of its own. kubelet may retry only after two
    /// minutes.
    pub fn followed(mut self, pod: Option<&Pod>) -> Self {
        let acts = self.kind == RemedyKind::Command && !self.only_looks();
        let named = pod.and_then(|pod| pod.namespace.as_ref().zip(pod.name.as_ref()));
        let named = named
            .filter(|(namespace, name)| [*namespace, *name].iter().all(|it| is_object_name(it)));
        if let (true, None, Some((namespace, name))) = (acts, &self.verify, named) {
            self.verify = Some(format!(
                "kubectl --namespace {namespace} wait --for=delete pod/{name} --timeout=150s"
            ));
        }
        self
    }

    /// The command or the advice.
    pub fn words(&self) -> &str {
        self.command.as_deref().or(self.advice.as_deref()).unwrap_or_default()
    }

    /// Adds another affected party.
    pub fn affects(&mut self, whom: impl Into<String>) -> &mut Self {
        self.affects.push(whom.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_there_is_room_for_a_clause_does_not_depend_on_a_process_id() {
        let with = |pid: u32, name: usize| {
            let mut does = Does::new(format!("unmount {} in pid {pid}'s view", "x".repeat(name)));
            does.push(", which is still mounted");
            does.words.ends_with("mounted")
        };
        let lengths = 30..60;
        let short: Vec<bool> = lengths.clone().map(|name| with(7, name)).collect();
        assert_eq!(short, lengths.map(|name| with(4_194_304, name)).collect::<Vec<_>>());
        assert!(short.contains(&true) && short.contains(&false));
    }
}
