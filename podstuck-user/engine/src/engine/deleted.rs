//! All pods of the node with a deletion under way, by whoever says so: the API server's records, kubelet's log, or
//! what was found of a pod.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Engine;
use crate::{
    bounded::Bounded,
    event::What,
    model::{
        deleted::Deleted,
        diagnosis::{PodStage, Stage, Terminating},
        evidence::Certainty,
        finding::{Finding, FindingState},
        identity::Pod,
        pod_record::PodRecord,
        said::Report,
    },
    rank, stage,
};

/// Pods remembered, of those that a log names.
const REMEMBERED: usize = 4096;

/// Who is to go.
pub(super) struct ToGo {
    /// By UID: the pod, and when that was asked for.
    records: BTreeMap<String, (Pod, Timestamp)>,
    /// By UID: the first time that kubelet has heard so.
    logs: Bounded<String, Timestamp>,
}

impl Default for ToGo {
    fn default() -> Self {
        Self { records: BTreeMap::new(), logs: Bounded::new(REMEMBERED) }
    }
}

impl ToGo {
    /// Takes note of who says so.
    pub(super) fn listen(&mut self, what: &What) {
        match what {
            What::Record { record, .. } => {
                if let Some(since) = asked_for(record) {
                    self.records.insert(record.pod.uid.clone(), (record.pod.clone(), since));
                }
            }
            What::Node(node) => {
                node.missing.iter().for_each(|pod| drop(self.records.remove(&pod.uid)));
            }
            What::Said(said) if said.report == Some(Report::ToGo) => {
                let first = self.logs.get(&said.uid).map_or(said.at, |known| said.at.min(*known));
                self.logs.insert(said.uid.clone(), first);
            }
            _ => {}
        }
    }
}

impl ToGo {
    /// Since when a pod is to go, and who says so.
    pub(super) fn since(&self, uid: &str) -> Option<Terminating> {
        let known = |since, by: &str| Terminating { since, by: by.into() };
        let record = self.records.get(uid).map(|(_, since)| known(*since, "its record"));
        record.or_else(|| self.logs.get(&uid.to_owned()).map(|at| known(*at, "kubelet's log")))
    }
}

/// The record has the time at which the grace ends.
fn asked_for(record: &PodRecord) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(i64::try_from(record.grace_s).unwrap_or(i64::MAX));
    let by = record.deletion?;
    Some(by.checked_sub(grace).unwrap_or(by))
}

impl Engine {
    /// All of them: those first that wait for longest.
    pub fn deleted(&self) -> Vec<Deleted> {
        let mut pods: BTreeMap<&str, Pod> = BTreeMap::new();
        for finding in self.ledger.all().filter(|finding| holds(finding)) {
            if let Some(pod) = &finding.pod {
                pods.entry(&pod.uid).or_insert_with(|| pod.clone());
            }
        }
        // Of a pod that only a log names, something must be left: it may be gone since.
        for state in self.sample.iter().flat_map(|sample| &sample.pods) {
            if self.deletions.logs.get(&state.uid).is_some() {
                pods.entry(&state.uid).or_insert_with(|| state.named());
            }
        }
        for (uid, (pod, _)) in &self.deletions.records {
            pods.insert(uid, pod.clone());
        }
        let mut names: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
        let others: Vec<(&str, Pod)> = self
            .sample
            .iter()
            .flat_map(|sample| &sample.pods)
            .map(|state| (state.uid.as_str(), state.named()))
            .collect();
        let listed = pods.iter().map(|(uid, pod)| (*uid, pod));
        for (uid, pod) in listed.chain(others.iter().map(|(uid, pod)| (*uid, pod))) {
            if let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name) {
                names.entry((namespace.clone(), name.clone())).or_default().insert(uid);
            }
        }
        let is_ambiguous = |pod: &Pod| {
            let name = pod.namespace.clone().zip(pod.name.clone());
            name.and_then(|name| names.get(&name)).is_some_and(|uids| uids.len() > 1)
        };
        let mut all: Vec<Deleted> = pods
            .into_values()
            .map(|pod| Deleted { is_ambiguous: is_ambiguous(&pod), ..self.of_pod(pod) })
            .collect();
        all.sort_by_key(|it| (it.since.is_none(), it.since));
        all
    }

    fn of_pod(&self, pod: Pod) -> Deleted {
        let own = |finding: &&Finding| {
            finding.state != FindingState::Cleared
                && finding.pod.as_ref().is_some_and(|it| it.uid == pod.uid)
        };
        let cause = self.ledger.all().filter(own).min_by_key(|finding| rank::order(finding));
        let mut stage = self.sample.as_ref().and_then(|sample| stage::stage(&pod, sample));
        if let Some(stage) = stage.as_mut().filter(|_| cause.is_none()) {
            stage.chain = self.chain(stage, &[]);
        }
        let since = self.deletions.since(&pod.uid).map(|it| it.since);
        Deleted {
            is_known: is_known(stage.as_ref(), cause),
            is_ambiguous: false,
            cause: cause.cloned(),
            stage,
            since,
            pod,
        }
    }

    /// Findings that hold and are of no pod in the list.
    pub fn beside_deleted(&self, listed: &[Deleted]) -> u64 {
        let is_listed = |finding: &Finding| {
            let pod = finding.pod.as_ref();
            pod.is_some_and(|pod| listed.iter().any(|it| it.pod.uid == pod.uid))
        };
        let all = self.ledger.all().filter(|it| it.state != FindingState::Cleared);
        all.filter(|finding| !is_listed(finding)).count() as u64
    }

    /// Whether to look for longer would add nothing to the list: somebody has looked, and each has a cause that
    /// is certain, or nothing on this node but its record.
    pub fn knows_deleted(&self) -> bool {
        self.sample.is_some() && self.deleted().iter().all(|it| it.is_known)
    }

    /// Whether a pod is to go, by whoever says so.
    pub fn is_to_go(&self, uid: &str) -> bool {
        self.deletions.since(uid).is_some()
    }

    /// Whether anybody says which of the node's pods are to go, if there are any: the API server that knows the node, or
    /// a kubelet that runs, in its log.
    pub fn hears_of_deletions(&self) -> bool {
        let acts = self.sample.as_ref().is_some_and(|sample| {
            let halted = |pid: &u32| sample.halted_kubelets.iter().any(|it| it.pid == *pid);
            sample.pods.is_empty() || sample.kubelets.iter().any(|pid| !halted(pid))
        });
        acts || !self.nodes.is_empty()
    }

    /// Whether somebody has looked at the whole node.
    pub fn saw_all_pods(&self) -> bool {
        self.sample.as_ref().is_some_and(|sample| sample.unread.is_empty())
    }
}

/// Whether a pod's line would not become better: its cause is certain, or nothing of it is on this node but its record.
fn is_known(stage: Option<&PodStage>, cause: Option<&Finding>) -> bool {
    stage.is_some_and(|it| it.stage == Stage::Gone)
        || cause.is_some_and(|cause| cause.certainty == Certainty::Firm)
}

/// Whether a pod waits for it, and it is not over.
fn holds(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared && finding.blocks_deletion == Some(true)
}

#[cfg(test)]
#[path = "deleted_tests.rs"]
mod tests;
