//! Mounted, nobody is left who uses it, and nobody unmounts it: what is wrong shows only in the
//! state of the node and in what does not happen. A pod that is deleted in good health passes
//! through the same states for moments, so each must last.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podstuck_common::record::reason;

use crate::{
    backoff,
    bounded::Bounded,
    event::{Event, Thresholds, What},
    model::{
        call::{Call, Outcome},
        identity::TargetKind,
        node::{NodeSample, PodState, Registration, VolumeData, VolumeState},
        operation::Operation,
        said::{Complaint, Said},
        time::Monotonic,
    },
    rules::not_attempted::{self, Fault, Suspect},
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    trackers::{
        is_clean_up,
        unmounts::{Tried, Unmounts},
    },
    verdict::Verdict,
};

/// Pods and targets remembered.
const REMEMBERED: usize = 4096;
/// What shows by itself (a driver's socket, a file) must last for this part of the threshold, a
/// minute by default: a driver that is restarted comes back before.
const PART: u32 = 4;

/// What is followed from sample to sample.
pub(crate) struct NotAttempted {
    begun: Option<Monotonic>,
    /// By target.
    suspects: BTreeMap<u64, Followed>,
    /// Targets on which a call failed, and when the last did.
    failed: Bounded<u64, Monotonic>,
    /// By UID: pods of which a volume was removed or unmounted.
    taken_down: Bounded<String, Monotonic>,
    /// By UID: pods that had tokens at some time.
    had_tokens: BTreeSet<String>,
    /// By their id: mounts of volumes, and when each was first seen.
    mounted: BTreeMap<u32, Monotonic>,
    /// By UID, what is said, and the volume, which is unknown where kubelet has lost what it knew of it.
    said: Bounded<(String, Complaint, String), Told>,
}

impl Default for NotAttempted {
    fn default() -> Self {
        Self {
            begun: None,
            suspects: BTreeMap::new(),
            failed: Bounded::new(REMEMBERED),
            taken_down: Bounded::new(REMEMBERED),
            had_tokens: BTreeSet::new(),
            mounted: BTreeMap::new(),
            said: Bounded::new(REMEMBERED),
        }
    }
}

/// What would be complained of, if this is at fault.
fn complaint_about(fault: Fault) -> Option<Complaint> {
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => Some(Complaint::NoDriver),
        Fault::DriverError => Some(Complaint::DriverError),
        Fault::NoData => Some(Complaint::NoData),
        _ => None,
    }
}

/// Said for the first and the last time.
struct Told {
    first: Monotonic,
    last: Monotonic,
    /// By so many lines.
    lines: u64,
    said: Said,
}

struct Followed {
    fault: Fault,
    mounts: Vec<u32>,
    since: Monotonic,
    told: bool,
}

impl NotAttempted {
    /// Takes note of what was done to pods.
    fn observe(&mut self, op: &Operation) {
        if !is_clean_up(op) {
            return;
        }
        if op.outcome != Outcome::OK {
            self.failed.insert(op.target_id, op.end);
        } else if let Some(pod) = &op.target.pod
            && op.target.kind == TargetKind::PodVolume
            // In a volume that stays kubelet removes old tokens, too, all the time.
            && (op.call == Call::Umount2 || op.has(reason::ROOT_GONE))
        {
            self.taken_down.insert(pod.uid.clone(), op.end);
        }
    }

    /// Takes note of what kubelet says.
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let Some(complaint) = said.complaint else { return };
        let ago = context.calendar.duration_since(said.at).unsigned_abs();
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        let at = Monotonic(context.now.0.saturating_sub(ago));
        let volume = if complaint == Complaint::NoData { "" } else { &said.volume };
        let key = (said.uid.clone(), complaint, volume.to_owned());
        let new = || Told { first: at, last: at, lines: 0, said: said.clone() };
        let told = self.said.or_insert_with(key, new);
        told.first = told.first.min(at);
        told.lines += 1;
        if at >= told.last {
            (told.last, told.said) = (at, said.clone());
        }
    }

    /// Compares the node with what was done.
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let first = self.begun.is_none();
        let begun = *self.begun.get_or_insert(sample.at);
        self.remember(sample, first);
        let mut suspects = BTreeMap::new();
        for pod in sample.pods.iter().filter(|pod| has_ended(pod)) {
            let mut untouched = false;
            for volume in pod.volumes.iter().filter(|volume| volume.target_id != 0) {
                let subject = Subject {
                    target_id: volume.target_id,
                    path: &volume.path,
                    pod: &pod.uid,
                    at: sample.at,
                };
                if context.is_explained(self.id(), &subject) {
                    continue;
                }
                let mut tried = tried_on(volume, context.unmounts);
                self.forget_earlier(volume, &mut tried);
                let Some(fault) = self.fault(sample, pod, volume, &tried) else { continue };
                // One finding about a pod that nobody touches is enough.
                if fault == Fault::NotAttempted && std::mem::replace(&mut untouched, true) {
                    continue;
                }
                let mut followed = self.follow(volume, fault, &tried, begun, sample.at);
                let window = sample.at.since(followed.since);
                // It has lasted for longer than anybody has watched, by who met it.
                let said = self.complaint(pod, volume, fault, sample.at);
                let told = said.map_or(Duration::ZERO, |told| sample.at.since(told.first));
                if window.max(told) >= needed(fault, context.thresholds) {
                    followed.told = true;
                    let suspect = Suspect {
                        pod,
                        volume,
                        tried: &tried,
                        fault,
                        since: followed.since,
                        window,
                        threshold: context.thresholds.not_attempted,
                        taken_down: self.taken_down.contains(&pod.uid),
                        lost_tokens: self.had_tokens.contains(&pod.uid)
                            && !not_attempted::has_tokens(pod),
                        said: said.map(|told| (told.first, &told.said)),
                        kubelet_runs: !sample.kubelets.is_empty(),
                        at: sample.at,
                    };
                    let (target_id, target) = (volume.target_id, volume.target.clone());
                    steps.found([not_attempted::draft(context, &suspect, target_id, target)]);
                }
                suspects.insert(volume.target_id, followed);
            }
        }
        let over = std::mem::replace(&mut self.suspects, suspects);
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in over.into_iter().filter(|(_, followed)| followed.told) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }

    fn fault(
        &self,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
        tried: &Tried,
    ) -> Option<Fault> {
        match fault(pod, volume, tried, self.taken_down.contains(&pod.uid))? {
            // One error may be a moment's.
            Fault::Forgotten
                if self
                    .complaint(pod, volume, Fault::DriverError, sample.at)
                    .is_some_and(|told| told.lines > 1) =>
            {
                Some(Fault::DriverError)
            }
            // Whatever the driver does, somebody must ask it.
            Fault::Forgotten if sample.kubelets.is_empty() => Some(Fault::NotAttempted),
            fault => Some(fault),
        }
    }

    /// What kubelet's last attempts met, if it would meet it again. After a longer silence there was an
    /// attempt that met something else.
    fn complaint(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        fault: Fault,
        now: Monotonic,
    ) -> Option<&Told> {
        let name = match volume.csi.as_ref().map(|csi| &csi.data) {
            Some(VolumeData::Known { driver, handle, .. }) => {
                format!("kubernetes.io/csi/{driver}^{handle}")
            }
            _ => String::new(),
        };
        let told = self.said.get(&(pod.uid.clone(), complaint_about(fault)?, name))?;
        (now.since(told.last) <= backoff::CAP * 2).then_some(told)
    }

    /// Goes on with the same fault of the same mounts, or begins.
    fn follow(
        &mut self,
        volume: &VolumeState,
        fault: Fault,
        tried: &Tried,
        begun: Monotonic,
        at: Monotonic,
    ) -> Followed {
        let mounts: Vec<u32> = volume.mounts.iter().map(|mount| mount.id).collect();
        let before = self.suspects.remove(&volume.target_id);
        let same = before.filter(|b| b.fault == fault && b.mounts == mounts);
        let mut followed = same.unwrap_or(Followed { fault, mounts, since: at, told: false });
        // Since a try, nobody has tried for less long.
        let failed = self.failed.get(&volume.target_id).copied();
        let tries = [failed, tried.last.as_ref().map(|last| last.0)];
        let last_try = tries.into_iter().flatten().max().unwrap_or_default();
        followed.since = followed.since.max(last_try).max(begun);
        followed
    }

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
            .filter(|pod| not_attempted::has_tokens(pod) || self.had_tokens.contains(&pod.uid));
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

impl Tracker for NotAttempted {
    fn id(&self) -> TrackerId {
        TrackerId::NotAttempted
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.failed.dropped() + self.taken_down.dropped() + self.said.dropped()
    }
}

/// Containers were started, and none is left.
fn has_ended(pod: &PodState) -> bool {
    pod.started && pod.populated == Some(false)
}

fn tried_on(volume: &VolumeState, unmounts: &Unmounts) -> Tried {
    let mut all = Tried::default();
    for mount in &volume.mounts {
        let tried = unmounts.on(&mount.point);
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
    let begun = seen || !not_attempted::has_tokens(pod);
    match csi.map(|csi| csi.registration) {
        // Of a pod that is not being taken down, nobody is asked to unmount anything.
        Some(Registration::Absent) if begun => Some(Fault::DriverAbsent),
        Some(Registration::Deaf) if begun => Some(Fault::DriverDeaf),
        Some(Registration::Listening) if begun => Some(Fault::Forgotten),
        _ => Some(Fault::NotAttempted),
    }
}

/// How long it must have lasted.
fn needed(fault: Fault, thresholds: Thresholds) -> Duration {
    match fault {
        Fault::DriverError => Duration::ZERO,
        Fault::Forgotten | Fault::NotAttempted => thresholds.not_attempted,
        _ => thresholds.not_attempted / PART,
    }
}

#[cfg(test)]
#[path = "not_attempted_tests.rs"]
mod tests;
