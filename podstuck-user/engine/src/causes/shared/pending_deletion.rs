//! Pods that are known to be to go, by who says so: the API server's record, or else kubelet's log of what the
//! API server has told it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    bounded::Bounded,
    event::What,
    model::{
        evidence::Source,
        node::{NodeSample, PodState},
        said::Report,
        time::Monotonic,
    },
    tracker::Context,
    verdict::Draft,
};

/// Pods remembered.
const REMEMBERED: usize = 4096;

/// Who says that a pod is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Its record, which says when its grace ends (`deletionTimestamp`).
    Record(Timestamp),
    /// kubelet's log: when, and which.
    Log(Monotonic, String),
}

/// By UID.
pub(crate) struct ToGo {
    /// What the records say, also that a pod is not to go.
    records: BTreeMap<String, Option<Word>>,
    logs: Bounded<String, Word>,
}

impl Default for ToGo {
    fn default() -> Self {
        Self { records: BTreeMap::new(), logs: Bounded::new(REMEMBERED) }
    }
}

impl ToGo {
    /// Takes note of what says so.
    pub(crate) fn listen(&mut self, context: &Context<'_>, what: &What) {
        match what {
            What::Record { record, .. } => {
                self.records.insert(record.pod.uid.clone(), record.deletion.map(Word::Record));
            }
            What::Said(said) if said.report == Some(Report::ToGo) => {
                let word = Word::Log(context.when(said.at), said.source.clone());
                self.logs.insert(said.uid.clone(), word);
            }
            _ => {}
        }
    }

    /// Who says it of a pod. A record counts for more than a log, which is older.
    pub(crate) fn word(&self, uid: &str) -> Option<&Word> {
        self.records.get(uid).map_or_else(|| self.logs.get(uid), Option::as_ref)
    }

    /// Whether the pod should be gone by its record.
    pub(crate) fn is_late(&self, context: &Context<'_>, pod: &PodState) -> bool {
        let word = self.word(&pod.uid);
        matches!(word, Some(Word::Record(deletion)) if *deletion <= context.calendar)
    }

    /// Whether it is known that the pod is being deleted, and that its grace is over: an ended one may stay
    /// for weeks, and one that is to go may have an hour.
    pub(crate) fn is_going(&self, sample: &NodeSample, pod: &PodState) -> bool {
        let has_ended = pod.populated == Some(false);
        let is_torn_down = pod.started && has_ended && pod.volume_removed.is_some();
        let is_killed = || {
            let mut groups = sample.cgroups.iter().filter(|group| group.uid == pod.uid);
            groups.any(|group| group.tasks.iter().any(|task| task.killed))
        };
        let is_told = matches!(self.word(&pod.uid), Some(Word::Log(..)));
        is_torn_down || (is_told && (has_ended || is_killed()))
    }

    /// Either of them.
    pub(crate) fn is_over(
        &self,
        context: &Context<'_>,
        sample: &NodeSample,
        pod: &PodState,
    ) -> bool {
        self.is_late(context, pod) || self.is_going(sample, pod)
    }

    /// Whether its record says that nobody has asked for it to be deleted.
    pub(crate) fn is_to_stay(&self, uid: &str) -> bool {
        matches!(self.records.get(uid), Some(None))
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.logs.dropped()
    }
}

impl Word {
    /// Tells it as a fact.
    pub(crate) fn tell(&self, draft: &mut Draft) {
        match self {
            Self::Record(_) => {
                draft.fact("the pod's record has a deletionTimestamp", Source::Record);
            }
            Self::Log(at, log) => {
                let fact = "kubelet knows from the API server that the pod is to be deleted";
                draft.fact_since(fact, Source::Log(log.clone()), *at);
            }
        }
    }
}
