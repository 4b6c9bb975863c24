//! Processes that do not end, and control groups that do not become empty. kubelet kills before it
//! removes anything, so who is left waits in the kernel, is frozen, or came from somewhere else.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use podstuck_common::record::reason;

use super::{Family, Verdict, is_clean_up, survivor_verdict};
use crate::{
    attribute::Attributor,
    model::{identity::TargetKind, operation::Operation, time::Monotonic},
    state::sample::{NodeSample, PodGroup, PodState, Task},
};

/// How long it must last. A process of a healthy pod ends within milliseconds of SIGKILL, runc
/// freezes a group of version 1 for moments to kill everybody in it, and kubelet empties a pod's
/// group in five rounds (`podContainerManagerImpl.tryKillingCgroupProcesses`).
const LASTS: Duration = Duration::from_secs(5);
/// From here on nobody expects it to end by itself.
const LASTS_LONG: Duration = Duration::from_secs(30);
/// Pods remembered.
const REMEMBERED: usize = 4096;

/// What keeps a pod's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// A thread, by id and start, waits where no signal reaches it.
    Unkillable { tid: u32, started: u64 },
    /// The group is frozen, and somebody in it was killed.
    Frozen,
    /// The pod's volumes are gone, and there are processes in its group.
    Leftover,
}

/// A pod whose processes do not go.
pub(super) struct Suspect<'a> {
    pub(super) group: &'a PodGroup,
    pub(super) fault: Fault,
    pub(super) since: Monotonic,
    pub(super) at: Monotonic,
    /// The tear-down was seen, and not only what it leaves.
    pub(super) seen: bool,
}

impl Suspect<'_> {
    /// The process that the finding is about.
    pub(super) fn task(&self) -> Option<&Task> {
        let tasks = &self.group.tasks;
        match self.fault {
            Fault::Unkillable { tid, .. } => tasks.iter().find(|task| task.tid == tid),
            Fault::Frozen => tasks.iter().find(|task| task.killed),
            Fault::Leftover => tasks.first(),
        }
    }

    pub(super) fn lasted(&self) -> Duration {
        self.at.since(self.since)
    }

    pub(super) fn lasted_long(&self) -> bool {
        self.lasted() >= LASTS_LONG
    }
}

#[derive(Default)]
struct Followed {
    /// Each fault that it has now.
    since: HashMap<Fault, Monotonic>,
    /// The target under which it was told.
    told: Option<u64>,
}

/// What is followed from sample to sample.
#[derive(Default)]
pub(super) struct Survivor {
    /// By UID.
    followed: HashMap<String, Followed>,
    /// Pods of which a volume was removed.
    torn_down: HashSet<String>,
}

impl Survivor {
    /// Takes note of what is removed.
    pub(super) fn observe(&mut self, op: &Operation) {
        if op.has(reason::ROOT_GONE)
            && op.target.kind == TargetKind::PodVolume
            && is_clean_up(op)
            && let Some(pod) = &op.target.pod
            && self.torn_down.len() < REMEMBERED
        {
            self.torn_down.insert(pod.uid.clone());
        }
    }

    /// Looks for who is left.
    pub(super) fn sampled(&mut self, sample: &NodeSample, names: &mut Attributor) -> Vec<Verdict> {
        let pods: HashMap<&str, &PodState> =
            sample.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        let mut verdicts = Vec::new();
        let mut followed = HashMap::new();
        let mut over = Vec::new();
        for group in &sample.cgroups {
            let pod = pods.get(group.uid.as_str()).copied();
            let faults = self.faults(group, pod);
            let before = self.followed.remove(&group.uid).unwrap_or_default();
            let since = |fault| before.since.get(&fault).copied().unwrap_or(sample.at);
            let mut this = Followed {
                since: faults.into_iter().map(|fault| (fault, since(fault))).collect(),
                told: None,
            };
            let oldest = this.since.iter().min_by_key(|(_, since)| **since);
            let Some((fault, since)) = oldest.map(|(fault, since)| (*fault, *since)) else {
                over.extend(before.told);
                continue;
            };
            if sample.at.since(since) >= LASTS {
                let known = pod.and_then(|pod| names.target_of(&pod.directory));
                let (target_id, target) = known.unwrap_or_else(|| names.pod_target(&group.uid));
                this.told = Some(target_id);
                let seen = self.torn_down.contains(&group.uid);
                let suspect = Suspect { group, fault, since, at: sample.at, seen };
                let draft = survivor_verdict::draft(&suspect, target_id, target);
                verdicts.push(Verdict::Found(Box::new(draft)));
            }
            // Also when the target has another id since the pod's directory is gone.
            over.extend(before.told.filter(|before| this.told != Some(*before)));
            followed.insert(group.uid.clone(), this);
        }
        let gone = std::mem::replace(&mut self.followed, followed);
        over.extend(gone.into_values().filter_map(|followed| followed.told));
        let family = Family::Survivor;
        let over = over.into_iter();
        verdicts.extend(over.map(|target_id| Verdict::Over { family, target_id, at: sample.at }));
        self.forget(sample);
        verdicts
    }

    fn faults(&self, group: &PodGroup, pod: Option<&PodState>) -> Vec<Fault> {
        if group.frozen.is_some() && group.tasks.iter().any(|task| task.killed) {
            return vec![Fault::Frozen];
        }
        let unkillable = group.tasks.iter().filter(|task| task.is_unkillable());
        let found: Vec<Fault> = unkillable
            .map(|task| Fault::Unkillable { tid: task.tid, started: task.started })
            .collect();
        if !found.is_empty() {
            return found;
        }
        // A directory that is not there proves nothing: it may be one that could not be read, or that
        // of a kubelet which is just restarting.
        let torn_down = self.torn_down.contains(&group.uid);
        let gone = match pod {
            None => torn_down,
            Some(pod) => {
                let left_alone = pod.started && !group.has_containers;
                pod.volumes.is_empty() && (torn_down || left_alone)
            }
        };
        (gone && !group.tasks.is_empty()).then_some(Fault::Leftover).into_iter().collect()
    }

    /// Forgets pods that left nothing.
    fn forget(&mut self, sample: &NodeSample) {
        let here: HashSet<&str> = sample.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let groups: HashSet<&str> = sample.cgroups.iter().map(|group| group.uid.as_str()).collect();
        let is_left = |uid: &String| here.contains(uid.as_str()) || groups.contains(uid.as_str());
        self.torn_down.retain(is_left);
    }
}

#[cfg(test)]
#[path = "survivor_tests.rs"]
mod tests;
