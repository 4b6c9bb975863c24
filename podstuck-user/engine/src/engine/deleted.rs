//! All pods of the node with a deletion in progress, according to the API server's records, kubelet's log, or a
//! finding.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Engine;
use crate::{
    bounded::Bounded,
    event::What,
    kubelet_steps,
    model::{
        deleted::{Deleted, DeletionsKnown},
        diagnosis::{PodStage, Stage, Terminating},
        evidence::Certainty,
        finding::{Finding, FindingState},
        identity::Pod,
        said::Report,
    },
    rank, stage,
};

/// Maximum number of stored pods from logs.
const REMEMBERED: usize = 4096;

/// The pods in deletion.
#[derive(Default)]
pub(super) struct ToGo {
    /// By UID: the pod, and the time of the request.
    records: BTreeMap<String, (Pod, Timestamp)>,
    /// By UID: the first time that kubelet's log has the deletion.
    logs: Bounded<String, Timestamp, REMEMBERED>,
}

impl ToGo {
    /// Takes records and log messages.
    pub(super) fn listen(&mut self, what: &What) {
        match what {
            What::Record { record, .. } => {
                if let Some(since) = kubelet_steps::requested(record) {
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
    /// The deletion of a pod, and its source.
    pub(super) fn since(&self, uid: &str) -> Option<Terminating> {
        let known = |since, by: &str| Terminating { since, by: by.into() };
        let record = self.records.get(uid).map(|(_, since)| known(*since, "its record"));
        record.or_else(|| self.logs.get(&uid.to_owned()).map(|at| known(*at, "kubelet's log")))
    }
}

impl Engine {
    /// All of them, the oldest request first.
    pub fn deleted(&self) -> Vec<Deleted> {
        let mut pods: BTreeMap<&str, Pod> = BTreeMap::new();
        for finding in self.ledger.all().filter(|finding| holds(finding)) {
            if let Some(pod) = &finding.pod {
                pods.entry(&pod.uid).or_insert_with(|| pod.clone());
            }
        }
        // A pod that only a log names counts if a part of it is left.
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

    /// Number of open findings about no pod of the list.
    pub fn beside_deleted(&self, listed: &[Deleted]) -> u64 {
        let is_listed = |finding: &Finding| {
            let pod = finding.pod.as_ref();
            pod.is_some_and(|pod| listed.iter().any(|it| it.pod.uid == pod.uid))
        };
        let all = self.ledger.all().filter(|it| it.state != FindingState::Cleared);
        all.filter(|finding| !is_listed(finding)).count() as u64
    }

    /// Whether watching longer would add nothing to the list: the node was scanned, and each pod has a certain
    /// cause, or nothing but its record.
    pub fn knows_deleted(&self) -> bool {
        self.sample.is_some() && self.deleted().iter().all(|it| it.is_known)
    }

    /// Whether a pod's deletion is known.
    pub fn is_to_go(&self, uid: &str) -> bool {
        self.deletions.since(uid).is_some()
    }

    /// How much is known of which pods are being deleted.
    pub fn heard_of_deletions(&self) -> DeletionsKnown {
        if !self.nodes.is_empty() {
            return DeletionsKnown::All;
        }
        self.sample.as_ref().map_or(DeletionsKnown::None, |sample| {
            let halted = |pid: &u32| sample.halted_kubelets.iter().any(|it| it.pid == *pid);
            let acts = sample.kubelets.iter().any(|pid| !halted(pid));
            match sample.pods.is_empty() {
                true => DeletionsKnown::All,
                false if acts => DeletionsKnown::Some,
                false => DeletionsKnown::None,
            }
        })
    }

    /// Whether a scan of the whole node has completed.
    pub fn saw_all_pods(&self) -> bool {
        self.sample.as_ref().is_some_and(|sample| sample.unread.is_empty())
    }
}

/// Whether watching longer would not improve a pod's line: its cause is certain, or nothing of it but its record is
/// left.
fn is_known(stage: Option<&PodStage>, cause: Option<&Finding>) -> bool {
    stage.is_some_and(|it| it.stage == Stage::Gone)
        || cause.is_some_and(|cause| cause.certainty == Certainty::Firm)
}

/// Whether it blocks a pod and is not over.
fn holds(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared && finding.blocks_deletion == Some(true)
}

#[cfg(test)]
#[path = "deleted_tests.rs"]
mod tests;
