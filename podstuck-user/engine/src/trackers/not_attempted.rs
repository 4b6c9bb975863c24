//! Mounted, nobody is left who uses it, and nobody unmounts it: what is wrong shows only in the
//! state of the node and in what does not happen. A pod that is deleted in good health passes
//! through the same states for moments, so each must last.

mod kubelets_log;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use nix::errno::Errno;
use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    event::{Event, Thresholds, What},
    model::{
        call::{Call, Outcome},
        holder::{About, Snapshot},
        hung::MountPoint,
        identity::TargetKind,
        node::{
            DriverProcess, Halted, Mounted, NodeSample, PodState, Registration, VolumeData,
            VolumeState,
        },
        node_record::NodeRecord,
        operation::Operation,
        path::JsonPath,
        pod_record::PodRecord,
        time::Monotonic,
    },
    query::{Answer, Query, Wants},
    rules::{
        csi_driver, mount_in_use,
        not_attempted::{self, Fault, Suspect},
        standing::Standing,
    },
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    trackers::{
        is_clean_up,
        to_go::ToGo,
        unmounts::{Tried, Unmounts},
    },
    verdict::{Draft, Verdict},
};
use kubelets_log::{KubeletsLog, Told};

/// Pods and targets remembered.
const REMEMBERED: usize = 4096;
/// What shows by itself (a driver's socket, a file) must last for this part of the threshold, a
/// minute by default: a driver that is restarted comes back before.
const PART: u32 = 4;
/// A server may end later.
const ASKED_AGAIN: Duration = Duration::from_secs(30);
/// A log begins at most so long after the start of whoever writes it.
const AT_ITS_START: Duration = Duration::from_secs(10);

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
    to_go: ToGo,
    /// By UID: what the API server says of pods.
    records: BTreeMap<String, PodRecord>,
    log: KubeletsLog,
    /// What the API server says of this node.
    node: Option<NodeRecord>,
    /// By the id of the mount: FUSE file systems that were asked, when, and whether they have no server.
    fuse: BTreeMap<u32, (Monotonic, bool)>,
    /// By the id of the mount: who holds it was asked, and nobody was found then.
    held: BTreeMap<u32, Option<Monotonic>>,
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
            to_go: ToGo::default(),
            records: BTreeMap::new(),
            log: KubeletsLog::default(),
            node: None,
            fuse: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

struct Followed {
    fault: Fault,
    mounts: Vec<u32>,
    /// The thread of the driver that waits.
    thread: Option<u32>,
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

    /// Compares the node with what was done.
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let first = self.begun.is_none();
        let begun = *self.begun.get_or_insert(sample.at);
        self.remember(sample, first);
        let mut before = std::mem::take(&mut self.suspects);
        let mut suspects = BTreeMap::new();
        let mut holders = Vec::new();
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
                if before.contains_key(&volume.target_id) {
                    steps.ask(self.ask_fuse(volume, sample.at));
                }
                let looked = self.look(context, sample, pod, volume);
                let Some(fault) = self.fault(sample, pod, volume, &tried, &looked) else {
                    continue;
                };
                // One finding about a pod that nobody touches is enough.
                if fault == Fault::NotAttempted && std::mem::replace(&mut untouched, true) {
                    continue;
                }
                let earlier = before.remove(&volume.target_id);
                let was_told = earlier.as_ref().is_some_and(|earlier| earlier.told);
                let mut followed = self.follow(earlier, volume, fault, (&tried, begun, sample.at));
                if was_told && !followed.told {
                    let target_id = volume.target_id;
                    steps.say([Verdict::Over { tracker: self.id(), target_id, at: sample.at }]);
                }
                if let Some(draft) =
                    self.verdict(context, sample, (pod, volume), &tried, &looked, &followed)
                {
                    followed.told = true;
                    steps.found([draft]);
                    // A search through all processes is not for each pod that ends in good health.
                    if fault == Fault::Forgotten {
                        let mount = volume.mounts.first();
                        holders.extend(mount.map(|mount| (volume.target_id, mount)));
                    }
                }
                suspects.insert(volume.target_id, followed);
            }
        }
        self.suspects = suspects;
        for (target_id, mount) in holders {
            steps.ask(self.ask_holders(target_id, mount));
        }
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in before.into_iter().filter(|(_, followed)| followed.told) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }

    /// What is known of a volume besides its state.
    fn look(
        &self,
        context: &Context<'_>,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
    ) -> Looked<'_> {
        let unregistered = volume.csi.as_ref().and_then(|csi| csi.registry_changed);
        Looked {
            standing: Standing::of(context, sample, pod, volume, self.log.ended(pod)),
            torn_down: self.log.torn_down(pod, volume),
            no_error_since: self.log.no_error_since(pod, volume, sample.kubelets.len()),
            unregistered: unregistered.map(|at| context.when(at)),
        }
    }

    /// Asks whether the servers of a CSI driver's FUSE file systems are there.
    fn ask_fuse(&mut self, volume: &VolumeState, at: Monotonic) -> Option<Query> {
        let mount = volume.mounts.iter().find(|mount| mount.is_fuse && volume.csi.is_some())?;
        let due = |(asked, _): &(Monotonic, bool)| at.since(*asked) >= ASKED_AGAIN;
        if !self.fuse.get(&mount.id).is_none_or(due) {
            return None;
        }
        self.fuse.entry(mount.id).or_insert((at, false)).0 = at;
        let (pid, path) = (mount.pid, mount.point.clone());
        let (target_id, wants) = (volume.target_id, Wants::FuseMounts { pid, path: path.clone() });
        Some(Query { tracker: TrackerId::NotAttempted, target_id, path, wants })
    }

    /// Asks once who would make an unmount fail.
    fn ask_holders(&mut self, target_id: u64, mount: &Mounted) -> Option<Query> {
        if self.held.contains_key(&mount.id) {
            return None;
        }
        self.held.insert(mount.id, None);
        let (pid, namespace, path) = (mount.pid, mount.namespace, mount.point.clone());
        let wants = Wants::Holders(About::Mount { pid, namespace, path: JsonPath(path.clone()) });
        Some(Query { tracker: TrackerId::NotAttempted, target_id, path, wants })
    }

    /// Takes note that nobody does, if everything was looked at.
    fn unheld(&mut self, query: &Query, taken: &Snapshot) {
        let Ok(subject) = &taken.subject else { return };
        let is_free = taken.unseen.is_empty() && mount_in_use::culprits(taken).next().is_none();
        let asked = subject.mount_id.and_then(|id| self.held.get_mut(&id));
        if let Some(held) = asked.filter(|_| is_free && subject.path.0 == query.path) {
            *held = Some(taken.at);
        }
    }

    /// Takes note of which have no server.
    fn answered(&mut self, query: &Query, looked: &[(MountPoint, i32)]) {
        let dead = looked
            .iter()
            .any(|(mount, errno)| mount.point == query.path && *errno == Errno::ENOTCONN as i32);
        let suspect = self.suspects.get(&query.target_id);
        for id in suspect.into_iter().flat_map(|followed| &followed.mounts) {
            if let Some(known) = self.fuse.get_mut(id) {
                known.1 = dead;
            }
        }
    }

    fn is_dead_fuse(&self, volume: &VolumeState) -> bool {
        let mut mounts = volume.mounts.iter();
        mounts.any(|mount| self.fuse.get(&mount.id).is_some_and(|(_, dead)| *dead))
    }

    /// What there is to say, if it has lasted for long enough.
    fn verdict(
        &self,
        context: &Context<'_>,
        sample: &NodeSample,
        (pod, volume): (&PodState, &VolumeState),
        tried: &Tried,
        looked: &Looked<'_>,
        followed: &Followed,
    ) -> Option<Draft> {
        let (fault, at) = (followed.fault, sample.at);
        let window = at.since(followed.since);
        // It has lasted for longer than anybody has watched, by who met it and by what was left behind.
        let said = self.log.complaint(pod, volume, fault, at);
        let stood = match (fault, &looked.standing) {
            (Fault::DriverAbsent, _) => looked.unregistered.map(|since| at.since(since)),
            (fault, Some(standing)) if fault.is_silence() => Some(at.since(standing.since)),
            _ => None,
        };
        let lasted = window.max(kubelets_log::lasts(said, at)).max(stood.unwrap_or_default());
        let asked = looked.torn_down.filter(|_| matches!(fault, Fault::Forgotten | Fault::CutOff));
        let mounts_again = said.filter(|_| fault == Fault::KubeletLost);
        if asked.or(mounts_again).is_none() && lasted < needed(fault, context.thresholds) {
            return None;
        }
        let suspect = Suspect {
            pod,
            volume,
            tried,
            fault,
            since: followed.since,
            window,
            threshold: context.thresholds.not_attempted,
            standing: looked.standing.as_ref(),
            unregistered: looked.unregistered.filter(|_| fault == Fault::DriverAbsent),
            taken_down: self.taken_down.contains(&pod.uid),
            lost_tokens: self.had_tokens.contains(&pod.uid) && !not_attempted::has_tokens(pod),
            to_go: self.to_go.word(&pod.uid),
            record: self.records.get(&pod.uid),
            said: said.map(|told| (told.first, &told.said)),
            torn_down: looked.torn_down.map(|told| (told.last, &told.said)),
            driver_says: self.log.of_driver(pod, volume).map(|told| (told.last, &told.said)),
            no_error_since: looked.no_error_since,
            unheld: match volume.mounts.as_slice() {
                [mount] => self.held.get(&mount.id).copied().flatten(),
                _ => None,
            },
            node: self.node.as_ref(),
            kubelet_since: sample.kubelet_since,
            kubelet_runs: !sample.kubelets.is_empty(),
            at,
        };
        let (target_id, target) = (volume.target_id, volume.target.clone());
        Some(not_attempted::draft(context, &suspect, target_id, target))
    }

    fn fault(
        &self,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
        tried: &Tried,
        looked: &Looked<'_>,
    ) -> Option<Fault> {
        let at = sample.at;
        // One error may be a moment's.
        let told = |fault| self.log.complaint(pod, volume, fault, at).filter(|told| told.lines > 1);
        let says = |fault| told(fault).is_some();
        let begun = self.taken_down.contains(&pod.uid)
            || self.to_go.word(&pod.uid).is_some()
            || pod.volume_removed.is_some()
            || looked.torn_down.is_some()
            || !not_attempted::has_tokens(pod);
        // It was asked, and answered; what it does since does not matter.
        let is_forgotten = looked.torn_down.is_some() && !volume.mounts.is_empty() && !tried.any();
        let mounts_again = told(Fault::KubeletLost)
            .zip(looked.standing.as_ref())
            .is_some_and(|(told, standing)| standing.ended() < told.last);
        let is_cut_off = volume.driver().is_some_and(DriverProcess::is_cut_off);
        let found = match fault(pod, volume, tried, begun) {
            Some(_) if is_forgotten && is_cut_off => Fault::CutOff,
            Some(_) if is_forgotten => Fault::Forgotten,
            None if volume.mounts.is_empty() && says(Fault::NotIdempotent) => {
                // Otherwise many other things may have failed after the unmount.
                let told = told(Fault::NotIdempotent);
                let why = told.is_some_and(|told| csi_driver::says_not_mounted(&told.said.text));
                if pod.before_boot || why { Fault::NotIdempotent } else { Fault::DriverError }
            }
            None => return None,
            // Whatever the driver does, somebody must ask it.
            Some(Fault::Forgotten | Fault::NotAttempted) if sample.kubelets.is_empty() => {
                Fault::NotAttempted
            }
            Some(Fault::Forgotten | Fault::NotAttempted) if mounts_again => Fault::KubeletLost,
            Some(Fault::Forgotten) => match driver_fault(volume) {
                Some(fault) => fault,
                None if says(Fault::DriverDown) => Fault::DriverDown,
                None if self.is_dead_fuse(volume) => Fault::DeadFuse,
                None if says(Fault::DriverHangs) => Fault::DriverHangs,
                None if says(Fault::DriverError) => Fault::DriverError,
                None => match looked.unasked(sample) {
                    Some(fault) => fault,
                    None if is_cut_off => Fault::CutOff,
                    None => Fault::Forgotten,
                },
            },
            Some(Fault::NotAttempted) if begun => {
                looked.unasked(sample).unwrap_or(Fault::NotAttempted)
            }
            Some(fault) => fault,
        };
        // A pod that was there before the node was booted may be about to begin again.
        let is_due = pod.started || found == Fault::NoData || says(found);
        is_due.then_some(found)
    }

    /// Goes on with the same fault of the same mounts, or begins.
    fn follow(
        &self,
        before: Option<Followed>,
        volume: &VolumeState,
        fault: Fault,
        (tried, begun, at): (&Tried, Monotonic, Monotonic),
    ) -> Followed {
        let mounts: Vec<u32> = volume.mounts.iter().map(|mount| mount.id).collect();
        let thread = waiting_thread(volume).filter(|_| fault == Fault::DriverHangs);
        let is_same = |b: &Followed| b.fault == fault && b.mounts == mounts && b.thread == thread;
        let same = before.filter(is_same);
        let mut followed =
            same.unwrap_or(Followed { fault, mounts, thread, since: at, told: false });
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
        self.fuse.retain(|id, _| self.mounted.contains_key(id));
        self.held.retain(|id, _| self.mounted.contains_key(id));
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
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Said(said) => self.log.listen(context, said),
            What::Heard(heard) => self.log.heard(context, heard),
            What::Record { record, .. } => {
                self.records.insert(record.pod.uid.clone(), PodRecord::clone(record));
            }
            What::Node(node) => self.node = Some(NodeRecord::clone(node)),
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => match &**answer {
                Answer::FuseMounts(looked) => self.answered(query, looked),
                Answer::Holders(Ok(taken)) => self.unheld(query, taken),
                _ => {}
            },
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        let of_pods = self.taken_down.dropped() + self.to_go.dropped();
        self.failed.dropped() + of_pods + self.log.dropped()
    }
}

/// What is known of a volume besides its state.
struct Looked<'a> {
    standing: Option<Standing>,
    torn_down: Option<&'a Told>,
    no_error_since: Option<(Monotonic, &'a str)>,
    unregistered: Option<Monotonic>,
}

impl Looked<'_> {
    /// What it is that kubelet's log has nothing of the volume since the pod's end, or since kubelet's own
    /// start after that; `None` where it has, or does not reach back so far.
    fn unasked(&self, sample: &NodeSample) -> Option<Fault> {
        let (standing, kubelet) = self.standing.as_ref().zip(sample.kubelet_since)?;
        let (heard, _) = self.no_error_since.filter(|_| self.torn_down.is_none())?;
        if standing.ended() < kubelet && heard.since(kubelet) <= AT_ITS_START {
            return Some(Fault::KubeletLost);
        }
        (heard <= standing.ended()).then_some(Fault::NotAttempted)
    }
}

/// Containers were started, and none is left.
fn has_ended(pod: &PodState) -> bool {
    (pod.started || pod.before_boot) && pod.populated == Some(false)
}

/// What is wrong with a driver that has registered, by its socket and its process.
fn driver_fault(volume: &VolumeState) -> Option<Fault> {
    match &volume.csi.as_ref()?.driver.as_ref()?.process {
        None => Some(Fault::DriverDown),
        Some(process) if process.halted.is_some() => Some(Fault::DriverHangs),
        Some(_) => None,
    }
}

fn waiting_thread(volume: &VolumeState) -> Option<u32> {
    match volume.driver()?.halted {
        Some(Halted::Waits { tid, .. }) => Some(tid),
        _ => None,
    }
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
        Fault::DriverError | Fault::NotIdempotent => Duration::ZERO,
        fault if fault.is_silence() => thresholds.not_attempted,
        _ => thresholds.not_attempted / PART,
    }
}

#[cfg(test)]
#[path = "not_attempted_tests.rs"]
mod tests;
