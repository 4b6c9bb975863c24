//! What a tracker says: a finding before it has a history, or that one is over.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use podstuck_common::component::name_hash;

use crate::{
    cause::{Cause, CauseId, LookAlike},
    command::Step,
    model::{
        call::{Call, Outcome},
        chain::Link,
        evidence::{Certainty, Source},
        finding::Severity,
        identity::{Actor, Pod, Target, TargetKind},
        operation::Operation,
        remedy::Remedy,
        said::{self, NOT_ROOTS},
        time::Monotonic,
    },
    tracker::TrackerId,
};

/// Processes of which it is said what they wait for.
const LINKS: usize = 4;

/// Something to tell about a finding.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// It exists, and this is what is known now.
    Found(Box<Draft>),
    /// How often it happened in the end, for a finding that is about to be cleared.
    Counted {
        /// Whose finding.
        tracker: TrackerId,
        /// The target.
        target_id: u64,
        /// How often.
        count: u64,
    },
    /// The object was removed, or everything of the target.
    Cleared {
        /// The target.
        target_id: u64,
        /// The object; `None` when the whole target is gone.
        path: Option<PathBuf>,
        /// When.
        at: Monotonic,
    },
    /// A state that was told does not hold any more.
    Over {
        /// Whose finding.
        tracker: TrackerId,
        /// The target.
        target_id: u64,
        /// When.
        at: Monotonic,
    },
}

/// A sentence, where it was read, and since when it is known.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) fact: String,
    pub(crate) source: Source,
    /// `None` for as long as the finding itself.
    pub(crate) since: Option<Monotonic>,
}

/// A cause that it is not.
#[derive(Clone, Debug)]
pub(crate) struct NotThis {
    pub(crate) cause: CauseId,
    pub(crate) fact: String,
    /// `None` for as long as the finding itself.
    pub(crate) since: Option<Monotonic>,
}

/// Whether an unmount that is advised would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unmounting {
    /// Not as far as is known.
    #[default]
    Free,
    /// Nobody has looked who uses the mount.
    NotLooked,
    /// Somebody uses it.
    Refused,
}

/// What a tracker concludes.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Which tracker: with the target, the finding's key.
    pub(crate) tracker: TrackerId,
    /// The cause.
    pub(crate) cause: &'static Cause,
    /// How bad.
    pub(crate) severity: Severity,
    /// Whether the pod waits for it.
    pub(crate) blocks_deletion: Option<bool>,
    /// Hash that names the target.
    pub(crate) target_id: u64,
    /// The target.
    pub(crate) target: Arc<Target>,
    /// Who called; `None` when the fault is that nobody does.
    pub(crate) actor: Option<Arc<Actor>>,
    /// What was called.
    pub(crate) call: Option<Call>,
    /// How it ended.
    pub(crate) outcome: Option<Outcome>,
    /// The object.
    pub(crate) path: PathBuf,
    /// How often.
    pub(crate) count: u64,
    /// First time.
    pub(crate) first: Monotonic,
    /// Last time.
    pub(crate) last: Monotonic,
    /// Who or what holds it, in a few words, safe to be shown.
    pub(crate) held_by: Option<String>,
    /// What that one must do where it is more than to let go.
    pub(crate) must: Option<&'static str>,
    /// Facts.
    pub(crate) evidence: Vec<Fact>,
    /// Meaning.
    pub(crate) explanation: String,
    /// Ways out.
    pub(crate) remedies: Vec<Remedy>,
    /// Whether what they unmount is in use.
    pub(crate) unmounting: Unmounting,
    /// What it is not.
    pub(crate) ruled_out: Vec<NotThis>,
    /// What may be as well: it does not matter, since what was found suffices.
    pub(crate) beside: Vec<CauseId>,
    /// Facts that the cause requires and that were not observed.
    pub(crate) missing: Vec<&'static str>,
    /// Whether it rests on a call that no probe saw.
    pub(crate) is_told: bool,
    /// Whether to watch for longer adds nothing: it has lasted for longer than all that could come is apart.
    pub(crate) is_settled: bool,
    /// Whether it holds the pod only when the node has done its part.
    pub(crate) is_later: bool,
    /// What else could be behind it, and which fact would tell: for what has no name of its own.
    pub(crate) doubts: Vec<&'static str>,
}

impl Draft {
    /// A draft about an operation, to be filled.
    pub(crate) fn about(tracker: TrackerId, cause: &'static Cause, op: &Operation) -> Self {
        Self {
            actor: Some(op.actor.clone()),
            call: Some(op.call),
            outcome: Some(op.outcome),
            is_told: op.told_by.is_some(),
            ..Self::about_state(
                tracker,
                cause,
                op.target_id,
                op.target.clone(),
                op.path.clone(),
                op.end,
            )
        }
    }

    /// A draft about a state that nobody changes, seen at `at`, to be filled.
    pub(crate) fn about_state(
        tracker: TrackerId,
        cause: &'static Cause,
        target_id: u64,
        target: Arc<Target>,
        path: PathBuf,
        at: Monotonic,
    ) -> Self {
        Self {
            tracker,
            cause,
            severity: Severity::Warning,
            blocks_deletion: None,
            target_id,
            target,
            actor: None,
            call: None,
            outcome: None,
            path,
            count: 1,
            first: at,
            last: at,
            held_by: None,
            must: None,
            evidence: Vec::new(),
            explanation: String::new(),
            remedies: Vec::new(),
            unmounting: Unmounting::default(),
            ruled_out: Vec::new(),
            beside: Vec::new(),
            missing: Vec::new(),
            is_told: false,
            is_settled: false,
            is_later: false,
            doubts: Vec::new(),
        }
    }

    /// A draft about a whole pod: by its directory, or by its record where no scan has one.
    pub(crate) fn about_pod(
        tracker: TrackerId,
        cause: &'static Cause,
        pod: Pod,
        directory: Option<&Path>,
        at: Monotonic,
    ) -> Self {
        let (id, kind) = (name_hash(pod.uid.as_bytes()), TargetKind::PodDirectory);
        let path = directory.map_or_else(|| format!("pods/{}", pod.uid).into(), Path::to_owned);
        let root = directory.map(Path::to_owned).unwrap_or_default();
        let target = Target { kind, root, pod: Some(pod), ..Target::unknown() };
        Self::about_state(tracker, cause, id, Arc::new(target), path, at)
    }

    /// Names who or what holds it; who is named first counts.
    pub(crate) fn held_by(&mut self, who: impl Into<String>) {
        self.held_by.get_or_insert_with(|| who.into());
    }

    /// Adds a fact.
    pub(crate) fn fact(&mut self, fact: impl Into<String>, source: Source) {
        self.take(Fact { fact: fact.into(), source, since: None });
    }

    /// Adds a fact that is known since a time.
    pub(crate) fn fact_since(&mut self, fact: impl Into<String>, source: Source, at: Monotonic) {
        self.take(Fact { fact: fact.into(), source, since: Some(at) });
    }

    /// Says of the processes behind the first one what they wait for.
    pub(crate) fn links(&mut self, links: &[Link]) {
        for link in links.iter().skip(1).take(LINKS) {
            let waits = link.waits_for.as_ref().map(|what| format!(" waits for {what}:"));
            let fact = format!("{}{} {}", link.who, waits.unwrap_or_default(), link.fact);
            self.fact(fact, Source::proc(link.source.clone()));
        }
    }

    fn take(&mut self, fact: Fact) {
        const FORGED: &str = "whether its component wrote that entry of the log: a name with a line break can look like one";
        let is_unproven = matches!(&fact.source, Source::Log(log) if said::is_unproven(log));
        if is_unproven && !self.doubts.contains(&FORGED) {
            self.doubts.push(FORGED);
        }
        self.evidence.push(fact);
    }

    /// Says which fact tells it apart from a cause. What does not look alike needs none, so that
    /// siblings with one rule can say it for all of them.
    pub(crate) fn rule_out(&mut self, cause: CauseId, fact: impl Into<String>) {
        self.rule_out_since(cause, fact, None);
    }

    /// The same, known since a time.
    pub(crate) fn rule_out_since(
        &mut self,
        cause: CauseId,
        fact: impl Into<String>,
        since: Option<Monotonic>,
    ) {
        let known = self.ruled_out.iter().any(|other| other.cause == cause);
        if self.cause.look_alike(cause).is_some() && !known {
            self.ruled_out.push(NotThis { cause, fact: fact.into(), since });
        }
    }

    /// Says that the cause is known whether or not that other one holds as well: what was found is
    /// enough by itself.
    pub(crate) fn suffices_beside(&mut self, other: CauseId) {
        self.beside.push(other);
    }

    /// Says which fact that the cause requires was not observed.
    pub(crate) fn lacks(&mut self, fact: &'static str) {
        self.missing.push(fact);
    }

    /// Says which other fact that would tell it apart is not known.
    pub(crate) fn doubt(&mut self, fact: &'static str) {
        self.doubts.push(fact);
    }

    /// Name of the cause.
    #[cfg(test)]
    pub(crate) fn id(&self) -> &'static str {
        self.cause.id.as_str()
    }

    /// Fails where its cause or its certainty is another one, and says what is not known.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn assert_is(&self, id: &str, certainty: Certainty) {
        let found = (self.id(), self.certainty());
        assert_eq!(found, (id, certainty), "not known: {:#?}", self.not_known());
    }

    /// How sure it is, by the rule that [`Certainty`] states.
    pub(crate) fn certainty(&self) -> Certainty {
        let proven = match self.by_unknown() {
            Certainty::Firm if self.unproven().is_some() => Certainty::Likely,
            certainty => certainty,
        };
        proven.min(Certainty::at_most(self.cause))
    }

    fn by_unknown(&self) -> Certainty {
        let hearsay = usize::from(self.is_hearsay());
        Certainty::by_unknown(self.missing.len(), self.open().count() + self.doubts.len() + hearsay)
    }

    /// A fact that the cause requires, of which there is no evidence from where it is to be read. It is named where
    /// nothing else is unknown.
    fn unproven(&self) -> Option<&'static str> {
        let origins: Vec<_> = self.evidence.iter().filter_map(|it| it.source.origin()).collect();
        let is_firm = self.by_unknown() == Certainty::Firm && !self.cause.is_admission();
        self.cause.unproven(&origins).filter(|_| is_firm)
    }

    /// Whether it rests on a log that somebody else than root may write.
    fn is_hearsay(&self) -> bool {
        let is_not_roots =
            |it: &Fact| matches!(&it.source, Source::Log(log) if log.contains(NOT_ROOTS));
        self.evidence.iter().any(is_not_roots)
    }

    /// Why it is not firm: what was not observed, and what it was not told apart from.
    pub(crate) fn not_known(&self) -> Vec<String> {
        let facts = self.missing.iter().chain(&self.doubts).map(|fact| (*fact).to_owned());
        let open = self.open().map(|other| {
            format!("whether it is {} (what would tell: {})", other.cause, other.told_apart_by)
        });
        let hearsay = self.is_hearsay().then(|| format!("whether a log is right {NOT_ROOTS}"));
        let unproven = self.unproven().map(|fact| format!("whether {fact}"));
        facts.chain(open).chain(hearsay).chain(unproven).collect()
    }

    /// Causes that look alike, and that no fact tells it apart from.
    fn open(&self) -> impl Iterator<Item = &'static LookAlike> {
        let is_ruled_out = |id| self.ruled_out.iter().any(|other| other.cause == id);
        let is_told_apart = move |id| is_ruled_out(id) || self.beside.contains(&id);
        self.cause.look_alikes.iter().filter(move |other| !is_told_apart(other.cause))
    }

    /// Adds a way out. The safest comes first.
    pub(crate) fn remedy(&mut self, step: Step, risk: impl Into<String>) -> &mut Remedy {
        self.remedies.push_mut(step.remedy(risk))
    }

    /// Adds what somebody must do or decide, which no command does.
    pub(crate) fn advice(
        &mut self,
        advice: impl Into<String>,
        risk: impl Into<String>,
    ) -> &mut Remedy {
        self.remedies.push_mut(Remedy::advice(advice, risk))
    }
}

/// `once`, `7 times`.
pub(crate) fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::{causes::device::causes::STILL_REFERENCED, testing::failed};

    #[test]
    fn nothing_firm_comes_of_an_entry_that_may_be_forged() {
        let op = failed(Call::Unlinkat, Errno::EPERM, "f", 1.0);
        let mut draft = Draft::about(TrackerId::Refused, &STILL_REFERENCED, &op);
        for other in STILL_REFERENCED.look_alikes {
            draft.rule_out(other.cause, "it is not");
        }
        draft.fact("kubelet says so", Source::Log("log".into()));
        assert_eq!(draft.certainty(), Certainty::Likely);
        assert!(draft.not_known()[0].starts_with("whether the device is mounted elsewhere"));
        draft.fact("it is mounted elsewhere", Source::mountinfo("mountinfo"));
        assert_eq!(draft.certainty(), Certainty::Firm);
        for _ in 0..2 {
            draft.fact("kubelet says more", Source::Log(said::unproven("log")));
            assert_eq!((draft.certainty(), draft.not_known().len()), (Certainty::Likely, 1));
        }
    }
}
