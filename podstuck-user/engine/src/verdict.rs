//! The outputs of a tracker: a finding without history, or the end of one.

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
        chain::Who,
        evidence::{Certainty, Source},
        finding::Severity,
        identity::{Actor, Pod, Target, TargetKind},
        operation::Operation,
        remedy::Remedy,
        said::{self, NOT_ROOTS, Said},
        time::Monotonic,
    },
    tracker::TrackerId,
};

/// Maximum number of processes whose waits become facts.
const LINKS: usize = 4;

/// A change of a finding.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The finding exists; its current facts.
    Found(Box<Draft>),
    /// The final count, for a finding that is about to be cleared.
    Counted {
        /// The finding's tracker.
        tracker: TrackerId,
        /// The target.
        target_id: u64,
        /// The count.
        count: u64,
    },
    /// The object, or everything of the target, was removed.
    Cleared {
        /// The target.
        target_id: u64,
        /// The object; `None` if the whole target is gone.
        path: Option<PathBuf>,
        /// The time.
        at: Monotonic,
    },
    /// A reported state has ended.
    Over {
        /// The finding's tracker.
        tracker: TrackerId,
        /// The target.
        target_id: u64,
        /// The time.
        at: Monotonic,
    },
}

/// A fact, its source, and the time since which it is known.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) fact: String,
    pub(crate) source: Source,
    /// `None`: since the finding itself.
    pub(crate) since: Option<Monotonic>,
}

/// A cause that is ruled out.
#[derive(Clone, Debug)]
pub(crate) struct NotThis {
    pub(crate) cause: CauseId,
    pub(crate) fact: String,
    /// `None`: since the finding itself.
    pub(crate) since: Option<Monotonic>,
}

/// Whether an advised unmount would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unmounting {
    /// Not refused, as far as known.
    #[default]
    Free,
    /// The users of the mount are unknown.
    NotLooked,
    /// The mount is in use.
    Refused,
}

/// A tracker's conclusion.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The tracker: with the target, it is the finding's key.
    pub(crate) tracker: TrackerId,
    /// The cause.
    pub(crate) cause: &'static Cause,
    /// Its severity.
    pub(crate) severity: Severity,
    /// Whether it blocks the pod; `None` if unknown.
    pub(crate) blocks_deletion: Option<bool>,
    /// Hash that names the target.
    pub(crate) target_id: u64,
    /// The target.
    pub(crate) target: Arc<Target>,
    /// The caller; `None` if the fault is that no call is made.
    pub(crate) actor: Option<Arc<Actor>>,
    /// The call.
    pub(crate) call: Option<Call>,
    /// Its outcome.
    pub(crate) outcome: Option<Outcome>,
    /// The object.
    pub(crate) path: PathBuf,
    /// Number of calls.
    pub(crate) count: u64,
    /// The first time.
    pub(crate) first: Monotonic,
    /// The last time.
    pub(crate) last: Monotonic,
    /// The holder, in a few words, safe to show.
    pub(crate) held_by: Option<Who>,
    /// What the holder must do other than release the object.
    pub(crate) must: Option<&'static str>,
    /// What the holder waits for, where that is known. Safe to show.
    pub(crate) waits_for: Option<String>,
    /// The evidence.
    pub(crate) evidence: Vec<Fact>,
    /// The meaning.
    pub(crate) explanation: String,
    /// Remedies.
    pub(crate) remedies: Vec<Remedy>,
    /// Whether the mounts that they unmount are in use.
    pub(crate) unmounting: Unmounting,
    /// Causes that are ruled out.
    pub(crate) ruled_out: Vec<NotThis>,
    /// Look-alikes that may hold as well: they do not matter, since this cause suffices.
    pub(crate) beside: Vec<CauseId>,
    /// Required facts that were not observed.
    pub(crate) missing: Vec<&'static str>,
    /// Whether it rests on a logged call that no probe saw.
    pub(crate) is_logged: bool,
    /// Whether watching longer adds nothing: it has lasted longer than the interval of all possible new facts.
    pub(crate) is_settled: bool,
    /// Whether it blocks the pod only after the node has done its part.
    pub(crate) is_later: bool,
    /// Unnamed alternatives, each by the fact that would distinguish it.
    pub(crate) doubts: Vec<&'static str>,
}

impl Draft {
    /// A draft about an operation, to be completed.
    pub(crate) fn about(tracker: TrackerId, cause: &'static Cause, op: &Operation) -> Self {
        Self {
            actor: Some(op.actor.clone()),
            call: Some(op.call),
            outcome: Some(op.outcome),
            is_logged: op.logged_in.is_some(),
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

    /// A draft about a static state, seen at `at`, to be completed.
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
            waits_for: None,
            evidence: Vec::new(),
            explanation: String::new(),
            remedies: Vec::new(),
            unmounting: Unmounting::default(),
            ruled_out: Vec::new(),
            beside: Vec::new(),
            missing: Vec::new(),
            is_logged: false,
            is_settled: false,
            is_later: false,
            doubts: Vec::new(),
        }
    }

    /// A draft about a whole pod: by its directory, or by its record if no scan has found one.
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

    /// Sets the holder; the first one set is kept.
    pub(crate) fn held_by(&mut self, who: Who) {
        self.held_by.get_or_insert(who);
    }

    /// Adds a fact.
    pub(crate) fn fact(&mut self, fact: impl Into<String>, source: Source) {
        self.take(Fact { fact: fact.into(), source, since: None });
    }

    /// Adds a component's message.
    pub(crate) fn quote(&mut self, who: &str, said: &Said) {
        self.fact(said.quote(who), Source::Log(said.source.clone()));
    }

    /// Adds a fact that is known since a time.
    pub(crate) fn fact_since(&mut self, fact: impl Into<String>, source: Source, at: Monotonic) {
        self.take(Fact { fact: fact.into(), source, since: Some(at) });
    }

    /// Adds the waits of the processes behind the first one as facts.
    pub(crate) fn links(&mut self, links: &[Link]) {
        for link in links.iter().skip(1).take(LINKS) {
            let waits = link.waits_for.as_ref().map(|what| format!(" waits for {what}:"));
            let hidden =
                link.not_visible.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            let fact = format!("{}{} {}{hidden}", link.who, waits.unwrap_or_default(), link.fact());
            self.fact(fact, Source::proc(link.source()));
        }
    }

    fn take(&mut self, fact: Fact) {
        const FORGED: &str =
            "whether the component wrote that log entry: a name with a line break can imitate one";
        let is_unproven = matches!(&fact.source, Source::Log(log) if said::is_unproven(log));
        if is_unproven && !self.doubts.contains(&FORGED) {
            self.doubts.push(FORGED);
        }
        self.evidence.push(fact);
    }

    /// Rules out a cause by a fact. A cause that is no look-alike is ignored, so that related causes can share one
    /// rule.
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

    /// Declares that this cause suffices whether or not the other one holds as well.
    pub(crate) fn suffices_beside(&mut self, other: CauseId) {
        self.beside.push(other);
    }

    /// Adds a required fact that was not observed.
    pub(crate) fn lacks(&mut self, fact: &'static str) {
        self.missing.push(fact);
    }

    /// Adds an unknown fact that would distinguish it from an unnamed alternative.
    pub(crate) fn doubt(&mut self, fact: &'static str) {
        self.doubts.push(fact);
    }

    /// Name of the cause.
    #[cfg(test)]
    pub(crate) fn id(&self) -> &'static str {
        self.cause.id.as_str()
    }

    /// Panics if the cause or the certainty differs, and prints what is not known.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn assert_is(&self, id: &str, certainty: Certainty) {
        let found = (self.id(), self.certainty());
        assert_eq!(found, (id, certainty), "not known: {:#?}", self.not_known());
    }

    /// The certainty, by the rule of [`Certainty`].
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

    /// A required fact without evidence from one of its origins. It is named if nothing else is unknown.
    fn unproven(&self) -> Option<&'static str> {
        let origins: Vec<_> = self.evidence.iter().filter_map(|it| it.source.origin()).collect();
        let is_firm = self.by_unknown() == Certainty::Firm && !self.cause.is_admission();
        self.cause.unproven(&origins).filter(|_| is_firm)
    }

    /// Whether it rests on a log that users other than root can write.
    fn is_hearsay(&self) -> bool {
        let is_not_roots =
            |it: &Fact| matches!(&it.source, Source::Log(log) if log.contains(NOT_ROOTS));
        self.evidence.iter().any(is_not_roots)
    }

    /// Why it is not firm: facts that were not observed, and look-alikes that are not ruled out.
    pub(crate) fn not_known(&self) -> Vec<String> {
        let facts = self.missing.iter().chain(&self.doubts).map(|fact| (*fact).to_owned());
        let open = self.open().map(|other| {
            format!("whether it is {} (it is not if {})", other.cause, other.differs_by)
        });
        let hearsay = self.is_hearsay().then(|| format!("whether a log {NOT_ROOTS} is correct"));
        let unproven = self.unproven().map(|fact| format!("whether {fact}"));
        facts.chain(open).chain(hearsay).chain(unproven).collect()
    }

    /// Look-alikes that no fact rules out.
    fn open(&self) -> impl Iterator<Item = &'static LookAlike> {
        let is_ruled_out = |id| self.ruled_out.iter().any(|other| other.cause == id);
        let is_excluded = move |id| is_ruled_out(id) || self.beside.contains(&id);
        self.cause.look_alikes.iter().filter(move |other| !is_excluded(other.cause))
    }

    /// Adds a remedy. The safest comes first.
    pub(crate) fn remedy(&mut self, step: Step, risk: impl Into<String>) -> &mut Remedy {
        self.remedies.push_mut(step.remedy(risk))
    }

    /// Adds an action or a decision for the administrator that no command performs.
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
    use super::*;
    use crate::{causes::device::causes::STILL_REFERENCED, model::errno::Errno, testing::failed};

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
