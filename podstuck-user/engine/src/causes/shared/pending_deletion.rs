//! Pods that are known to be deleted, and the source: the record at the API server, or else a line of kubelet's log that
//! it has received the deletion.

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

/// The source that says that a pod is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The pod's record, with the end of its grace period (`deletionTimestamp`).
    Record(Timestamp),
    /// A line of kubelet's log: when, and which log.
    Log(Monotonic, String),
}

/// Pods to be deleted, by UID.
#[derive(Default)]
pub(crate) struct ToGo {
    /// The records; `None` if the pod is not being deleted.
    records: BTreeMap<String, Option<Word>>,
    logs: Bounded<String, Word, REMEMBERED>,
}

impl ToGo {
    /// Records what an event says about the deletion of pods.
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

    /// The source for a pod. A record takes precedence over a log, which is older.
    pub(crate) fn word(&self, uid: &str) -> Option<&Word> {
        self.records.get(uid).map_or_else(|| self.logs.get(uid), Option::as_ref)
    }

    /// When the pod was known to be deleted: by kubelet's log, or at the latest at the end of its grace period.
    pub(crate) fn known_since(&self, context: &Context<'_>, uid: &str) -> Option<Monotonic> {
        match self.logs.get(uid).or_else(|| self.records.get(uid)?.as_ref())? {
            Word::Log(at, _) => Some(*at),
            Word::Record(deletion) => Some(context.when(*deletion)),
        }
    }

    /// Whether the pod should be gone by its record.
    pub(crate) fn is_late(&self, context: &Context<'_>, pod: &PodState) -> bool {
        let word = self.word(&pod.uid);
        matches!(word, Some(Word::Record(deletion)) if *deletion <= context.calendar)
    }

    /// Whether the pod is known to be deleted and its grace period to be over. One alone is not enough: an ended pod
    /// may stay for weeks, and a deleted one may have an hour.
    pub(crate) fn is_going(&self, sample: &NodeSample, pod: &PodState) -> bool {
        let has_ended = pod.populated == Some(false);
        let is_torn_down = pod.started && has_ended && pod.volume_removed.is_some();
        let is_killed = || {
            let mut groups = sample.cgroups.iter().filter(|group| group.uid == pod.uid);
            groups.any(|group| group.tasks.iter().any(|task| task.killed))
        };
        let is_logged = matches!(self.word(&pod.uid), Some(Word::Log(..)));
        is_torn_down || (is_logged && (has_ended || is_killed()))
    }

    /// Whether the pod's grace period is over, by its record or by the state of the node.
    pub(crate) fn is_over(
        &self,
        context: &Context<'_>,
        sample: &NodeSample,
        pod: &PodState,
    ) -> bool {
        self.is_late(context, pod) || self.is_going(sample, pod)
    }

    /// Whether the pod's record says that no deletion was requested.
    pub(crate) fn is_to_stay(&self, uid: &str) -> bool {
        matches!(self.records.get(uid), Some(None))
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.logs.dropped()
    }
}

impl Word {
    /// Adds the source as a fact.
    pub(crate) fn tell(&self, draft: &mut Draft) {
        match self {
            Self::Record(_) => {
                draft.fact("the pod's record has a deletionTimestamp", Source::Record);
            }
            Self::Log(at, log) => {
                let fact = "kubelet has received the pod's deletion from the API server";
                draft.fact_since(fact, Source::Log(log.clone()), *at);
            }
        }
    }
}
