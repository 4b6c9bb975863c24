//! Pods that are known to be to go, by who says so: the API server's record, or else kubelet's log of what the
//! API server has told it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    bounded::Bounded,
    event::What,
    model::{evidence::Source, said::Report, time::Monotonic},
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
                let fact = "the API server has told kubelet that the pod is to be deleted";
                draft.fact_since(fact, Source::Log(log.clone()), *at);
            }
        }
    }
}
