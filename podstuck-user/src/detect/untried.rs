//! Mounted, nobody is left who uses it, and nobody unmounts it: what is wrong shows only in the
//! state of the node and in what does not happen. A pod that is deleted in good health passes
//! through the same states for moments, so each must last.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use podstuck_common::record::reason;

use super::{
    Family, Patience, Verdict, is_clean_up,
    umounts::{Tried, Umounts},
    untried_verdict::{self, Fault, Suspect},
};
use crate::{
    attribute::Attributor,
    model::{
        call::{Call, Outcome},
        identity::TargetKind,
        operation::Operation,
        time::Monotonic,
    },
    state::{
        pod_dirs::VolumeData,
        sample::{NodeSample, PodState, Registration, VolumeState},
    },
};

/// Pods and targets remembered.
const REMEMBERED: usize = 4096;
/// What shows by itself (a driver's socket, a file) must last for this part of the patience, a
/// minute by default: a driver that is restarted comes back before.
const PART: u32 = 4;

/// What is followed from sample to sample.
#[derive(Default)]
pub(super) struct Untried {
    begun: Option<Monotonic>,
    /// By target.
    suspects: HashMap<u64, Followed>,
    /// Targets on which a call failed, and when the last did.
    failed: HashMap<u64, Monotonic>,
    /// By UID: pods of which a volume was removed or unmounted.
    taken_down: HashMap<String, Monotonic>,
    /// By UID: pods that had tokens at some time.
    had_tokens: HashSet<String>,
    /// By their id: mounts of volumes, and when each was first seen.
    mounted: HashMap<u32, Monotonic>,
}

struct Followed {
    fault: Fault,
    mounts: Vec<u32>,
    since: Monotonic,
    told: bool,
}

/// What other detectors know.
pub(super) struct Others<'a> {
    /// Unmounts seen.
    pub(super) umounts: &'a Umounts,
    /// Whether a finding of theirs explains a target.
    pub(super) explain: &'a dyn Fn(u64) -> bool,
    /// Whether a pod's directory is an orphan.
    pub(super) is_orphan: &'a dyn Fn(&str) -> bool,
}

impl Untried {
    /// Takes note of what was done to pods.
    pub(super) fn observe(&mut self, op: &Operation) {
        if !is_clean_up(op) {
            return;
        }
        if op.outcome != Outcome::OK {
            make_room(&mut self.failed);
            self.failed.insert(op.target_id, op.end);
        } else if let Some(pod) = &op.target.pod
            && op.target.kind == TargetKind::PodVolume
            // In a volume that stays kubelet removes old tokens, too, all the time.
            && (op.call == Call::Umount2 || op.has(reason::ROOT_GONE))
        {
            make_room(&mut self.taken_down);
            self.taken_down.insert(pod.uid.clone(), op.end);
        }
    }

    /// Compares the node with what was done.
    pub(super) fn sampled(
        &mut self,
        sample: &NodeSample,
        patience: Patience,
        names: &mut Attributor,
        others: &Others<'_>,
    ) -> Vec<Verdict> {
        let first = self.begun.is_none();
        let begun = *self.begun.get_or_insert(sample.at);
        self.remember(sample, first);
        let mut verdicts = Vec::new();
        let mut suspects = HashMap::new();
        for pod in sample.pods.iter().filter(|pod| has_ended(pod) && !(others.is_orphan)(&pod.uid))
        {
            let taken_down = self.taken_down.contains_key(&pod.uid);
            let lost_tokens =
                self.had_tokens.contains(&pod.uid) && !untried_verdict::has_tokens(pod);
            let mut untouched = false;
            for volume in &pod.volumes {
                let Some((target_id, target)) = names.target_of(&volume.path) else { continue };
                let mut tried = tried_on(volume, others.umounts);
                self.forget_earlier(volume, &mut tried);
                let Some(fault) = fault(pod, volume, &tried, taken_down) else { continue };
                let fault = match fault {
                    // Whatever the driver does, somebody must ask it.
                    Fault::Forgotten if sample.kubelets.is_empty() => Fault::NotAttempted,
                    fault => fault,
                };
                if (others.explain)(target_id) {
                    continue;
                }
                // One finding about a pod that nobody touches is enough.
                if fault == Fault::NotAttempted && std::mem::replace(&mut untouched, true) {
                    continue;
                }
                let mounts: Vec<u32> = volume.mounts.iter().map(|mount| mount.id).collect();
                let before = self.suspects.remove(&target_id);
                let same = before.filter(|b| b.fault == fault && b.mounts == mounts);
                let mut followed =
                    same.unwrap_or(Followed { fault, mounts, since: sample.at, told: false });
                // Since a try, nobody has tried for less long.
                let tries =
                    [self.failed.get(&target_id).copied(), tried.last.as_ref().map(|last| last.0)];
                let last_try = tries.into_iter().flatten().max().unwrap_or_default();
                followed.since = followed.since.max(last_try).max(begun);
                let window = sample.at.since(followed.since);
                if window >= needed(fault, patience) {
                    followed.told = true;
                    let suspect = Suspect {
                        pod,
                        volume,
                        tried: &tried,
                        fault,
                        since: followed.since,
                        window,
                        patience: patience.untried,
                        taken_down,
                        lost_tokens,
                        kubelet_runs: !sample.kubelets.is_empty(),
                        at: sample.at,
                    };
                    let draft = untried_verdict::draft(&suspect, target_id, target);
                    verdicts.push(Verdict::Found(Box::new(draft)));
                }
                suspects.insert(target_id, followed);
            }
        }
        let over = std::mem::replace(&mut self.suspects, suspects);
        for (target_id, _) in over.into_iter().filter(|(_, followed)| followed.told) {
            verdicts.push(Verdict::Over { family: Family::Untried, target_id, at: sample.at });
        }
        verdicts
    }
}

impl Untried {
    /// What each pod has now.
    fn remember(&mut self, sample: &NodeSample, first: bool) {
        // What is there at the start has been there for long.
        let since = if first { Monotonic::default() } else { sample.at };
        let volumes = sample.pods.iter().flat_map(|pod| &pod.volumes);
        let now = volumes
            .flat_map(|volume| &volume.mounts)
            .map(|mount| (mount.id, self.mounted.get(&mount.id).copied().unwrap_or(since)));
        self.mounted = now.collect();
        let with_tokens = sample
            .pods
            .iter()
            .filter(|pod| untried_verdict::has_tokens(pod) || self.had_tokens.contains(&pod.uid));
        self.had_tokens = with_tokens.map(|pod| pod.uid.clone()).collect();
    }

    /// An unmount that succeeded before any of these mounts was made says nothing about them.
    fn forget_earlier(&self, volume: &VolumeState, tried: &mut Tried) {
        let Some((when, _)) = tried.last_ok else { return };
        let made = |id: u32| self.mounted.get(&id).copied().unwrap_or_default();
        if volume.mounts.iter().all(|mount| made(mount.id) > when) {
            (tried.ok, tried.last_ok) = (0, None);
        }
    }
}

/// Containers were started, and none is left.
fn has_ended(pod: &PodState) -> bool {
    pod.started && pod.populated == Some(false)
}

fn tried_on(volume: &VolumeState, umounts: &Umounts) -> Tried {
    let mut all = Tried::default();
    for mount in &volume.mounts {
        let tried = umounts.on(&mount.point);
        all.ok += tried.ok;
        all.busy += tried.busy;
        all.other += tried.other;
        all.last_ok = all.last_ok.max(tried.last_ok);
        if tried.last.as_ref().map(|last| last.0) > all.last.as_ref().map(|last| last.0) {
            all.last = tried.last;
        }
    }
    all
}

/// What may be wrong with a volume of a pod that has ended.
fn fault(pod: &PodState, volume: &VolumeState, tried: &Tried, seen: bool) -> Option<Fault> {
    let csi = volume.csi.as_ref();
    if csi.is_some_and(|csi| matches!(csi.data, VolumeData::Missing | VolumeData::Corrupt { .. })) {
        return Some(Fault::NoData);
    }
    if volume.mounts.is_empty() {
        return None;
    }
    if let Some((_, caller)) = tried.last_ok {
        let here = volume.mounts.iter().any(|mount| mount.namespace == caller);
        return Some(if here { Fault::Stacked } else { Fault::WrongNamespace });
    }
    if tried.any() {
        // Somebody tries and fails: that is another detector's.
        return None;
    }
    let begun = seen || !untried_verdict::has_tokens(pod);
    match csi.map(|csi| csi.registration) {
        // Of a pod that is not being taken down, nobody is asked to unmount anything.
        Some(Registration::Absent) if begun => Some(Fault::DriverAbsent),
        Some(Registration::Deaf) if begun => Some(Fault::DriverDeaf),
        Some(Registration::Listening) if begun => Some(Fault::Forgotten),
        _ => Some(Fault::NotAttempted),
    }
}

/// How long it must have lasted.
fn needed(fault: Fault, patience: Patience) -> Duration {
    match fault {
        Fault::Forgotten | Fault::NotAttempted => patience.untried,
        _ => patience.untried / PART,
    }
}

fn make_room<K: Clone + Eq + std::hash::Hash>(times: &mut HashMap<K, Monotonic>) {
    if times.len() >= REMEMBERED
        && let Some(oldest) =
            times.iter().min_by_key(|(_, time)| **time).map(|(key, _)| key.clone())
    {
        times.remove(&oldest);
    }
}

#[cfg(test)]
#[path = "untried_tests.rs"]
mod tests;
