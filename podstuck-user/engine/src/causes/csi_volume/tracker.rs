//! Tracks volumes that are mounted and unused, and that no process unmounts: the fault shows only in the state of the
//! node and in the absence of calls. A pod that is deleted normally passes through the same states briefly, so each
//! state must last. Also holds the questions about their mounts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    causes::{
        csi_volume::{
            self,
            fault::{Looked, is_met, needed},
            kubelets_log::KubeletsLog,
            verdict::{Fault, Suspect},
        },
        dead_fuse,
        shared::{clean_up::is_clean_up, holders, pending_deletion::ToGo, standing::Standing},
    },
    event::{Event, Thresholds, What},
    model::{
        call::{Call, Outcome},
        halted::Halted,
        holder::{About, Snapshot},
        hung::MountPoint,
        identity::TargetKind,
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        node_record::NodeRecord,
        operation::Operation,
        path::JsonPath,
        pod_record::PodRecord,
        time::Monotonic,
    },
    query::{Query, Question, ReachFuseMounts, Wants},
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    unmounts::Tried,
    verdict::{Draft, Verdict},
};

/// Pods and targets remembered.
const REMEMBERED: usize = 4096;

/// State that is kept from sample to sample.
#[derive(Default)]
pub(crate) struct NotAttempted {
    begun: Option<Monotonic>,
    /// By target.
    suspects: BTreeMap<u64, Followed>,
    /// By target: when the last call failed.
    failed: Bounded<u64, Monotonic, REMEMBERED>,
    /// By UID: when a volume of the pod was removed or unmounted.
    pub(super) taken_down: Bounded<String, Monotonic, REMEMBERED>,
    /// UIDs of pods that had tokens at some time.
    had_tokens: BTreeSet<String>,
    /// By mount id: when a mount of a volume was first seen.
    mounted: BTreeMap<u32, Monotonic>,
    pub(super) to_go: ToGo,
    /// By UID: the pod's record at the API server.
    records: BTreeMap<String, PodRecord>,
    pub(super) log: KubeletsLog,
    /// The node's record at the API server.
    node: Option<NodeRecord>,
    pub(super) questions: Questions,
}

struct Followed {
    fault: Fault,
    mounts: Vec<u32>,
    /// Those of `mounts` in the mount namespace by which the volume is followed.
    own: Vec<u32>,
    /// The driver's thread that waits.
    thread: Option<u32>,
    since: Monotonic,
    /// The silent fault that a short wait of the driver interrupts, and its start.
    silence: Option<(Fault, Monotonic)>,
    reported: bool,
}

impl Followed {
    /// Whether a failed call on the volume contradicts the fault. It does not if nothing is mounted, where the driver
    /// may have tried, nor if kubelet's data is lost.
    fn is_refuted(&self) -> bool {
        self.fault != Fault::NoData && !self.mounts.is_empty()
    }

    /// The silent fault that continues when the fault changes: a driver that waits briefly, as for its disk, has neither
    /// answered nor unmounted anything.
    fn silence(self, thresholds: Thresholds, at: Monotonic) -> Option<(Fault, Monotonic)> {
        if self.fault.is_silence() {
            return Some((self.fault, self.since));
        }
        let hangs = Fault::DriverHangs;
        let is_moment = self.fault == hangs && at.since(self.since) < needed(hangs, thresholds);
        self.silence.filter(|_| is_moment)
    }
}

impl NotAttempted {
    /// Records clean-up calls on pods.
    fn observe(&mut self, op: &Operation, at: Monotonic, steps: &mut Steps) {
        if !is_clean_up(op) {
            return;
        }
        if op.outcome != Outcome::OK {
            self.failed.insert(op.target_id, op.end);
            // A component does try. Logs may show that only after the first sample.
            let refuted = |it: &mut Followed| it.is_refuted() && std::mem::take(&mut it.reported);
            if self.suspects.get_mut(&op.target_id).is_some_and(refuted) {
                let (tracker, target_id) = (self.id(), op.target_id);
                steps.say([Verdict::Over { tracker, target_id, at }]);
            }
        } else if let Some(pod) = &op.target.pod
            && op.target.kind == TargetKind::PodVolume
            // kubelet also keeps removing old tokens inside a volume that stays.
            && (op.call == Call::Umount2 || op.has(reason::ROOT_GONE))
        {
            self.taken_down.insert(pod.uid.clone(), op.end);
        }
    }

    /// Compares the sample with the calls that were made.
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let first = self.begun.is_none();
        let begun = *self.begun.get_or_insert(sample.at);
        self.remember(sample, first);
        let mut before = std::mem::take(&mut self.suspects);
        let mut suspects = BTreeMap::new();
        let mut holders = Vec::new();
        let is_to_go = |pod: &PodState| self.to_go.word(&pod.uid).is_some();
        let pods: Vec<&PodState> =
            sample.pods.iter().filter(|pod| has_ended(pod, is_to_go)).collect();
        for pod in pods {
            let mut untouched = false;
            for volume in pod.volumes.iter().filter(|volume| volume.target_id != 0) {
                let subject = Subject {
                    target_id: volume.target_id,
                    path: &volume.path,
                    pod: &pod.uid,
                    at: sample.at,
                };
                let is_explained = context.is_explained(self.id(), &subject);
                if is_explained && !volume.mounts.is_empty() {
                    continue;
                }
                let points = volume.mounts.iter().map(|mount| mount.point.as_path());
                let mut tried = context.unmounts.on_any_of(points);
                self.forget_earlier(volume, &mut tried);
                if before.contains_key(&volume.target_id) {
                    steps.ask(self.questions.about_servers(volume, sample.at));
                }
                let looked = self.look(context, sample, pod, volume);
                let Some(fault) = self.fault(sample, pod, volume, &tried, &looked) else {
                    continue;
                };
                // A call that hangs behind a mount that is gone is the driver's own: the driver's fault remains.
                if is_explained && fault != Fault::DriverHangs {
                    continue;
                }
                // One finding per untouched pod is enough.
                if fault == Fault::NotAttempted && std::mem::replace(&mut untouched, true) {
                    continue;
                }
                let earlier = before.remove(&volume.target_id);
                let was_reported = earlier.as_ref().is_some_and(|earlier| earlier.reported);
                let mut followed =
                    self.follow(context, earlier, (pod, volume), fault, (&tried, begun, sample.at));
                if was_reported && !followed.reported {
                    let target_id = volume.target_id;
                    steps.say([Verdict::Over { tracker: self.id(), target_id, at: sample.at }]);
                }
                if let Some(draft) =
                    self.verdict(context, sample, (pod, volume), &tried, &looked, &followed)
                {
                    followed.reported = true;
                    steps.found([draft]);
                    // Searching all processes is too expensive for each pod that ends normally.
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
            steps.ask(self.questions.about_holders(target_id, mount));
        }
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in before.into_iter().filter(|(_, followed)| followed.reported) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }

    /// Data about a volume besides its state.
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
            attached: self.log.attached(pod, volume),
            unregistered: unregistered.map(|at| context.when(at)),
            failed_mount: {
                let to_go = self.to_go.known_since(context, &pod.uid);
                self.log.failed_mount(pod, volume, to_go, sample.kubelet_since, sample.at)
            },
            timed_out: self.log.has_timed_out(pod, volume),
            of_another: self.log.of_another(pod, volume),
            halted: volume
                .driver()
                .and_then(|driver| driver.halted.as_ref())
                .is_some_and(|halted| !matches!(halted, Halted::Waits { .. })),
        }
    }

    /// The finding, if the fault has lasted for long enough.
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
        // Logs and traces may show that it lasts for longer than it was watched.
        let said = match fault {
            Fault::KubeletLost => looked.failed_mount.as_ref().map(|it| it.logged),
            _ => self.log.complaint(pod, volume, fault, at),
        };
        let stood = match (fault, &looked.standing) {
            (Fault::DriverAbsent, _) => looked.unregistered.map(|since| at.since(since)),
            (fault, Some(standing)) if fault.is_silence() => Some(at.since(standing.since)),
            _ => None,
        };
        let said_for = super::kubelets_log::lasts(said, at);
        let lasted = window.max(said_for).max(stood.unwrap_or_default());
        let asked = looked.torn_down.filter(|_| matches!(fault, Fault::Forgotten | Fault::CutOff));
        let mounts_again = said.filter(|_| fault == Fault::KubeletLost);
        let attached = looked.attached.filter(|_| fault == Fault::KubeletLost);
        if asked.or(mounts_again).is_none()
            && attached.is_none()
            && lasted < needed(fault, context.thresholds)
            && !is_met(fault, looked, (window, said_for), context.thresholds)
        {
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
            lost_tokens: self.had_tokens.contains(&pod.uid)
                && !csi_volume::verdict::has_tokens(pod),
            to_go: self.to_go.word(&pod.uid),
            record: self.records.get(&pod.uid),
            timed_out: looked.timed_out,
            is_shared: self.log.is_shared(pod, volume),
            of_another: looked.of_another,
            said: said.map(|logged| (logged.first, &*logged.said)),
            first_error: self.log.first_error(pod, volume).filter(|_| said.is_some()),
            torn_down: looked.torn_down.map(|logged| (logged.last, &*logged.said)),
            driver_says: self.log.of_driver(pod, volume).map(|logged| (logged.last, &*logged.said)),
            no_error_since: looked.no_error_since,
            unheld: self.questions.unheld(volume),
            node: self.node.as_ref(),
            attached,
            kubelet_since: sample.kubelet_since,
            kubelet_runs: !sample.kubelets.is_empty(),
            at,
        };
        let (target_id, target) = (volume.target_id, volume.target.clone());
        Some(csi_volume::verdict::draft(context, &suspect, target_id, target))
    }

    /// Continues the same fault of the same mounts, or starts a new one.
    fn follow(
        &self,
        context: &Context<'_>,
        before: Option<Followed>,
        (pod, volume): (&PodState, &VolumeState),
        fault: Fault,
        (tried, begun, at): (&Tried, Monotonic, Monotonic),
    ) -> Followed {
        let mounts: Vec<u32> = volume.mounts.iter().map(|mount| mount.id).collect();
        let own = own_mounts(pod, volume);
        let thread = waiting_thread(volume).filter(|_| fault == Fault::DriverHangs);
        let mut followed =
            Followed { fault, mounts, own, thread, since: at, silence: None, reported: false };
        if let Some(before) = before.filter(|before| before.own == followed.own) {
            if is_one(before.fault, fault) && before.thread == thread {
                let Followed { since, silence, reported, .. } = before;
                followed = Followed { since, silence, reported, ..followed };
            } else {
                let reported = before.reported;
                followed.silence = before.silence(context.thresholds, at);
                match followed.silence {
                    Some((silence, since)) if silence == fault => {
                        followed = Followed { since, silence: None, reported, ..followed };
                    }
                    Some(_) => followed.reported = reported && fault == Fault::DriverHangs,
                    None => {}
                }
            }
        }
        // The silence starts after the last try.
        let failed = self.failed.get(&volume.target_id).copied();
        let tries = [failed, tried.last.as_ref().map(|last| last.0)];
        let last_try = tries.into_iter().flatten().max().unwrap_or_default();
        followed.since = followed.since.max(last_try).max(begun);
        followed
    }

    /// Records the mounts and tokens of each pod.
    fn remember(&mut self, sample: &NodeSample, first: bool) {
        // A mount in the first sample may be of any age.
        let since = if first { Monotonic::default() } else { sample.at };
        let volumes = sample.pods.iter().flat_map(|pod| &pod.volumes);
        let now = volumes
            .flat_map(|volume| &volume.mounts)
            .map(|mount| (mount.id, self.mounted.get(&mount.id).copied().unwrap_or(since)));
        self.mounted = now.collect();
        self.questions.keep(|id| self.mounted.contains_key(&id));
        let with_tokens = sample.pods.iter().filter(|pod| {
            csi_volume::verdict::has_tokens(pod) || self.had_tokens.contains(&pod.uid)
        });
        self.had_tokens = with_tokens.map(|pod| pod.uid.clone()).collect();
    }

    /// Drops a successful unmount that precedes all of the volume's mounts.
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
            What::Operation(op) => self.observe(op, event.at, steps),
            What::Said(said) => self.log.listen(context, said),
            What::Heard(heard) => self.log.heard(context, heard),
            What::Record { record, .. } => {
                self.records.insert(record.pod.uid.clone(), PodRecord::clone(record));
            }
            What::Node(node) => self.node = Some(NodeRecord::clone(node)),
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Some((_, looked)) = ReachFuseMounts::answered(query, answer) {
                    let suspect = self.suspects.get(&query.target_id);
                    let mounts = suspect.map_or(&[][..], |followed| &followed.mounts);
                    self.questions.servers(query, looked, mounts);
                }
                if let Some((_, Ok(taken))) = About::answered(query, answer) {
                    self.questions.holders(query, taken);
                }
            }
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        let of_pods = self.taken_down.dropped() + self.to_go.dropped();
        self.failed.dropped() + of_pods + self.log.dropped()
    }
}

/// The mounts of a volume in one mount namespace: the one in which kubelet's directory was read, or else the first.
/// Copies in the namespaces of other processes taken for a kubelet come and go with those processes.
fn own_mounts(pod: &PodState, volume: &VolumeState) -> Vec<u32> {
    let namespaces = || volume.mounts.iter().map(|mount| mount.namespace);
    let read_in = pod.seen_by.map(|(_, namespace)| namespace);
    let own = namespaces().find(|namespace| Some(*namespace) == read_in).or(namespaces().next());
    let is_own = volume.mounts.iter().filter(|mount| Some(mount.namespace) == own);
    is_own.map(|mount| mount.id).collect()
}

/// Whether two faults count as the same one; both kinds of unregistered driver do.
fn is_one(before: Fault, now: Fault) -> bool {
    let unregistered = |fault| matches!(fault, Fault::DriverAbsent | Fault::DriverDeaf);
    before == now || (unregistered(before) && unregistered(now))
}

/// Whether containers were started, and none is left.
fn has_ended(pod: &PodState, is_to_go: impl Fn(&PodState) -> bool) -> bool {
    pod.populated == Some(false) && (pod.started || pod.before_boot || is_to_go(pod))
}

fn waiting_thread(volume: &VolumeState) -> Option<u32> {
    match volume.driver()?.halted {
        Some(Halted::Waits { tid, .. }) => Some(tid),
        _ => None,
    }
}

/// Interval between two questions about a server, which may end at any time.
const ASKED_AGAIN: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Questions {
    /// By mount id: when a FUSE file system was asked, and whether it has no server.
    fuse: BTreeMap<u32, (Monotonic, bool)>,
    /// By mount id, once its holders were asked for: when none was found.
    held: BTreeMap<u32, Option<Monotonic>>,
}

impl Questions {
    /// Forgets mounts that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(u32) -> bool) {
        self.fuse.retain(|id, _| is_there(*id));
        self.held.retain(|id, _| is_there(*id));
    }

    /// Asks whether a CSI driver's FUSE file system has a server.
    pub(super) fn about_servers(&mut self, volume: &VolumeState, at: Monotonic) -> Option<Query> {
        let mount = volume.mounts.iter().find(|mount| mount.is_fuse && volume.csi.is_some())?;
        let due = |(asked, _): &(Monotonic, bool)| at.since(*asked) >= ASKED_AGAIN;
        if !self.fuse.get(&mount.id).is_none_or(due) {
            return None;
        }
        self.fuse.entry(mount.id).or_insert((at, false)).0 = at;
        let wants = ReachFuseMounts { pid: mount.pid, path: mount.point.clone() }.into();
        Some(query(volume.target_id, mount, wants))
    }

    /// Records whether these mounts have a server.
    pub(super) fn servers(&mut self, query: &Query, looked: &[(MountPoint, i32)], mounts: &[u32]) {
        let dead = looked
            .iter()
            .any(|(mount, errno)| mount.point == query.path && dead_fuse::is_dead(*errno));
        for id in mounts {
            if let Some(known) = self.fuse.get_mut(id) {
                known.1 = dead;
            }
        }
    }

    pub(super) fn has_no_server(&self, volume: &VolumeState) -> bool {
        let mut mounts = volume.mounts.iter();
        mounts.any(|mount| self.fuse.get(&mount.id).is_some_and(|(_, dead)| *dead))
    }

    /// Asks once for the processes that would make an unmount fail.
    pub(super) fn about_holders(&mut self, target_id: u64, mount: &Mounted) -> Option<Query> {
        if self.held.contains_key(&mount.id) {
            return None;
        }
        self.held.insert(mount.id, None);
        let path = JsonPath(mount.point.clone());
        let about = About::Mount { pid: mount.pid, namespace: mount.namespace, path };
        Some(query(target_id, mount, Wants::Holders(about)))
    }

    /// Records that no process holds the mount, if all processes could be read.
    pub(super) fn holders(&mut self, query: &Query, taken: &Snapshot) {
        let Ok(subject) = &taken.subject else { return };
        let is_free = taken.unseen.is_empty() && holders::culprits(taken).next().is_none();
        let asked = subject.mount_id.and_then(|id| self.held.get_mut(&id));
        if let Some(held) = asked.filter(|_| is_free && subject.path.0 == query.path) {
            *held = Some(taken.at);
        }
    }

    /// When no process held the volume's only mount.
    pub(super) fn unheld(&self, volume: &VolumeState) -> Option<Monotonic> {
        match volume.mounts.as_slice() {
            [mount] => self.held.get(&mount.id).copied().flatten(),
            _ => None,
        }
    }
}

fn query(target_id: u64, mount: &Mounted, wants: Wants) -> Query {
    Query { tracker: TrackerId::NotAttempted, target_id, path: mount.point.clone(), wants }
}
