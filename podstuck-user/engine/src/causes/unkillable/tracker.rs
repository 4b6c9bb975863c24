//! Processes that do not end, and control groups that do not become empty. kubelet kills before it
//! removes anything, so a process that is left waits in the kernel, is frozen, or came from elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    causes::{
        shared::{clean_up::is_clean_up, pending_deletion::ToGo, sharers, stalled::Stalled},
        unkillable,
    },
    command::View,
    event::{Event, What},
    model::{
        identity::TargetKind,
        mounted::Mounted,
        node::{NodeSample, PodState},
        operation::Operation,
        pod_group::{PodGroup, Task},
        said::{Report, Said, container_id},
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::Verdict,
    wait_channel::{WaitsFor, functions, waits_for},
};

/// How long it must last. A process of a healthy pod ends within milliseconds of SIGKILL, runc
/// freezes a group of version 1 for moments to kill all processes in it, and kubelet empties a pod's
/// group in five rounds (`podContainerManagerImpl.tryKillingCgroupProcesses`).
const LASTS: Duration = Duration::from_secs(5);
/// A snapshot or a checkpoint freezes a group for some seconds: a younger freeze may be one of these.
const FROZEN_LASTS: Duration = Duration::from_secs(10);
/// A thread that is woken repeatedly, reads or writes, or waits for a server that answers, may still finish. Some waits
/// wake a thread now and then without progress.
const WOKEN_LASTS: Duration = Duration::from_secs(120);
/// Pods remembered.
const REMEMBERED: usize = 4096;

/// What keeps a pod's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A thread, by id and start, waits where no signal reaches it.
    Unkillable { tid: u32, started: u64 },
    /// The group is frozen, and a process in it was killed.
    Frozen,
    /// The init process of a PID namespace, by id and start, waits for a zombie whose exit status no process outside
    /// collects.
    Zombie { pid: u32, started: u64 },
    /// A killed process, by id and start, is stopped by its tracer.
    Traced { pid: u32, started: u64 },
    /// The pod's volumes are gone, and there are processes in its group.
    Leftover,
}

/// A pod whose processes do not go.
pub(crate) struct Suspect<'a> {
    pub(crate) group: &'a PodGroup,
    pub(crate) fault: Fault,
    pub(crate) since: Monotonic,
    pub(crate) at: Monotonic,
    /// The tear-down was seen, and not only what it leaves.
    pub(crate) seen: bool,
    /// The record of the pod, or a log, says that its deletion was requested.
    pub(crate) is_to_go: bool,
    /// The thread gives signs of life now and then.
    pub(crate) is_alive: bool,
    /// The kill, from a log. A frozen process that was killed ends as soon as it is thawed.
    pub(crate) killed: Option<&'a Killed>,
    /// FUSE mounts in the pod's volumes whose minor number is that of the connection, and the view to reach them.
    pub(crate) fuse: Vec<(&'a Mounted, View)>,
    /// Mounts of file systems on block devices in the pod's volumes.
    pub(crate) on_disk: Vec<(&'a Mounted, View)>,
    /// Block devices that complete nothing.
    pub(crate) stalled: &'a Stalled,
    /// NFS mounts in the pod's volumes.
    pub(crate) on_nfs: Vec<OnNfs<'a>>,
}

/// An NFS mount in a volume of the pod.
pub(crate) struct OnNfs<'a> {
    pub(crate) mount: &'a Mounted,
    pub(crate) view: View,
    /// The others that have its file system.
    pub(crate) sharers: Option<Vec<String>>,
}

/// SIGKILL was sent to a container.
pub(crate) struct Killed {
    container: String,
    pub(crate) at: Monotonic,
    pub(crate) source: String,
}

impl Suspect<'_> {
    /// The process that the finding is about.
    pub(crate) fn task(&self) -> Option<&Task> {
        let tasks = &self.group.tasks;
        match self.fault {
            Fault::Unkillable { tid, .. } => tasks.iter().find(|task| task.tid == tid),
            Fault::Zombie { pid, .. } | Fault::Traced { pid, .. } => {
                tasks.iter().find(|task| task.pid == pid)
            }
            Fault::Frozen => tasks.iter().find(|task| task.killed),
            Fault::Leftover => tasks.first(),
        }
    }

    pub(crate) fn lasted(&self) -> Duration {
        self.at.since(self.since)
    }

    /// Whether a group may be frozen for a moment only.
    pub(crate) fn may_be_brief(&self) -> bool {
        self.fault == Fault::Frozen && self.lasted() < FROZEN_LASTS
    }
}

/// Counters that grow while a thread makes progress.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Signs {
    /// How often it was woken.
    woken: Option<u64>,
    /// Bytes read and written, plus the number of those calls.
    moved: Option<u64>,
    /// Bytes of replies from the servers of all NFS mounts that it sees.
    received: Option<u64>,
}

/// Since when a fault exists, and since when its thread has given no sign of life.
#[derive(Clone, Copy)]
struct Lasting {
    since: Monotonic,
    signs: Signs,
    quiet: Monotonic,
}

#[derive(Default)]
struct Followed {
    /// The faults in the last sample.
    since: BTreeMap<Fault, Lasting>,
    /// The target ID of the finding.
    reported: Option<u64>,
}

/// The state that is kept from sample to sample.
#[derive(Default)]
pub(crate) struct Unkillables {
    /// By UID: pods whose groups were in the last sample.
    followed: BTreeMap<String, Followed>,
    /// Pods of which a volume was removed.
    torn_down: Bounded<String, (), REMEMBERED>,
    /// By UID: the kill of a container of the pod, from a log.
    killed: Bounded<String, Killed, REMEMBERED>,
    to_go: ToGo,
    stalled: Stalled,
}

impl Unkillables {
    /// Records removals of volumes.
    fn observe(&mut self, op: &Operation) {
        if op.has(reason::ROOT_GONE)
            && op.target.kind == TargetKind::PodVolume
            && is_clean_up(op)
            && let Some(pod) = &op.target.pod
        {
            self.torn_down.insert(pod.uid.clone(), ());
        }
    }

    /// Records the kill of a container: the first line about it counts.
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        if said.report != Some(Report::Killed) {
            return;
        }
        let Some(container) = container_id(&said.text) else { return };
        let (at, source) = (context.when(said.at), said.source.clone());
        let is_new = self.killed.get(&said.uid).is_none_or(|known| known.container != container);
        if is_new {
            let killed = Killed { container: container.to_owned(), at, source };
            self.killed.insert(said.uid.clone(), killed);
        }
    }

    /// The kill of a frozen container, from a log.
    fn killed(&self, group: &PodGroup, fault: Fault) -> Option<&Killed> {
        let killed = self.killed.get(&group.uid).filter(|_| fault == Fault::Frozen)?;
        let is_its = |task: &Task| {
            task.killed && task.group.to_string_lossy().contains(killed.container.as_str())
        };
        group.tasks.iter().any(is_its).then_some(killed)
    }

    /// Finds the processes that are left.
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let pods: BTreeMap<&str, &PodState> =
            sample.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        self.stalled.sampled(sample);
        let mut followed = BTreeMap::new();
        let mut over = Vec::new();
        for group in &sample.cgroups {
            let pod = pods.get(group.uid.as_str()).copied();
            let faults = self.faults(group, pod);
            let before = self.followed.remove(&group.uid).unwrap_or_default();
            let since = |fault| {
                let signs = signs(group, fault);
                let new = Lasting { since: sample.at, signs, quiet: sample.at };
                let known = before.since.get(&fault).copied().unwrap_or(new);
                let quiet = if signs.differ(known.signs) { sample.at } else { known.quiet };
                Lasting { signs: signs.or(known.signs), quiet, ..known }
            };
            let mut this = Followed {
                since: faults.into_iter().map(|fault| (fault, since(fault))).collect(),
                reported: None,
            };
            // A thread without signs of life comes first, then the oldest fault; the fault makes the choice stable.
            let still = |lasting: &Lasting| lasting.quiet > lasting.since;
            let oldest = this.since.iter().min_by_key(|(fault, l)| (still(l), l.since, **fault));
            let Some((fault, lasting)) = oldest.map(|(fault, lasting)| (*fault, *lasting)) else {
                over.extend(before.reported);
                continue;
            };
            let killed = self.killed(group, fault);
            let since = killed.map_or(lasting.since, |killed| killed.at.min(lasting.since));
            let lasting = Lasting { since, ..lasting };
            if let Some(is_alive) = lasting.is_alive_when_due(fault, sample.at) {
                this.reported = Some(group.target_id);
                let seen = self.torn_down.contains(&group.uid);
                let is_to_go = self.to_go.word(&group.uid).is_some();
                let at = sample.at;
                let mounts = pod.iter().flat_map(|pod| &pod.volumes).flat_map(|it| &it.mounts);
                let view =
                    |mount: &Mounted| View::in_namespace(context, mount.namespace, mount.pid);
                let (on_disk, others): (Vec<_>, Vec<_>) = mounts
                    .map(|mount| (mount, view(mount)))
                    .partition(|(mount, _)| mount.device.major != 0);
                let is_nfs = |(mount, _): &&(&Mounted, View)| {
                    let table = sample.mounts.tables.get(&mount.namespace);
                    let own = table.and_then(|table| table.by_id(mount.id));
                    own.is_some_and(|own| own.fs_type.starts_with("nfs"))
                };
                let on_nfs = others.iter().filter(is_nfs).map(|(mount, view)| {
                    let sharers = sharers::of(sample, mount.device, Some(&group.uid));
                    OnNfs { mount, view: *view, sharers }
                });
                let on_nfs = on_nfs.collect();
                let fuse = others.into_iter().filter(|(mount, _)| mount.is_fuse).collect();
                let suspect = Suspect {
                    group,
                    fault,
                    since,
                    at,
                    seen,
                    is_to_go,
                    is_alive,
                    killed,
                    fuse,
                    on_disk,
                    stalled: &self.stalled,
                    on_nfs,
                };
                steps.found([unkillable::verdict::draft(
                    &suspect,
                    group.target_id,
                    group.target.clone(),
                )]);
            }
            // The target gets another ID when the pod's directory is gone.
            over.extend(before.reported.filter(|before| this.reported != Some(*before)));
            followed.insert(group.uid.clone(), this);
        }
        let gone = std::mem::replace(&mut self.followed, followed);
        over.extend(gone.into_values().filter_map(|followed| followed.reported));
        let (tracker, at) = (self.id(), sample.at);
        let over = over.into_iter();
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
        self.forget_pods(sample);
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
        let traced = |task: &&Task| task.exiting && task.traced_by.is_some();
        if let Some(traced) = group.tasks.iter().find(traced) {
            return vec![Fault::Traced { pid: traced.pid, started: traced.started }];
        }
        // A shim that reaps nothing is a finding of its own.
        let is_shim = |pid: u32| group.shims.iter().any(|shim| shim.pid == pid);
        let kept = |task: &&Task| task.zombie().is_some_and(|(_, reaper)| !is_shim(reaper.pid));
        if let Some(init) = group.tasks.iter().find(kept) {
            return vec![Fault::Zombie { pid: init.pid, started: init.started }];
        }
        // A missing directory proves nothing: it may be unreadable, or its kubelet may just be restarting.
        let torn_down = self.torn_down.contains(&group.uid);
        let gone = match pod {
            None => torn_down,
            Some(pod) => {
                let left_alone = pod.started && !group.has_containers;
                pod.has_no_volumes() && (torn_down || left_alone)
            }
        };
        (gone && !group.tasks.is_empty()).then_some(Fault::Leftover).into_iter().collect()
    }

    /// Forgets pods that left nothing.
    fn forget_pods(&mut self, sample: &NodeSample) {
        let here: BTreeSet<&str> = sample.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let groups: BTreeSet<&str> =
            sample.cgroups.iter().map(|group| group.uid.as_str()).collect();
        let is_left = |uid: &String| here.contains(uid.as_str()) || groups.contains(uid.as_str());
        self.torn_down.retain(|uid, ()| is_left(uid));
        self.killed.retain(|uid, _| is_left(uid));
    }
}

impl Lasting {
    /// Whether the thread gives signs of life; `None` while the fault is too young to report.
    fn is_alive_when_due(&self, fault: Fault, now: Monotonic) -> Option<bool> {
        // A group gives no signs.
        let is_alive = fault != Fault::Frozen && now.since(self.quiet) < LASTS;
        (now.since(self.since) >= if is_alive { WOKEN_LASTS } else { LASTS }).then_some(is_alive)
    }
}

impl Signs {
    /// Whether a counter that was read both times has changed.
    fn differ(self, before: Self) -> bool {
        let changed =
            |now: Option<u64>, then: Option<u64>| now.zip(then).is_some_and(|(a, b)| a != b);
        changed(self.woken, before.woken)
            || changed(self.moved, before.moved)
            || changed(self.received, before.received)
    }

    /// Keeps the earlier value of a counter that could not be read.
    fn or(self, before: Self) -> Self {
        Self {
            woken: self.woken.or(before.woken),
            moved: self.moved.or(before.moved),
            received: self.received.or(before.received),
        }
    }
}

/// The signs of life of a fault's thread.
fn signs(group: &PodGroup, fault: Fault) -> Signs {
    let Fault::Unkillable { tid, .. } = fault else { return Signs::default() };
    let task = group.tasks.iter().find(|task| task.tid == tid);
    task.map_or_else(Signs::default, |task| {
        let functions = functions(&task.stack, task.wait_channel.as_deref());
        let waits_for_nfs = waits_for(functions) == WaitsFor::Nfs;
        let received = task.received.filter(|_| waits_for_nfs);
        // Each attempt to connect to a silent server wakes the thread, too.
        let woken = task.woken.filter(|_| received.is_none());
        Signs { woken, moved: task.moved, received }
    })
}

impl Tracker for Unkillables {
    fn id(&self) -> TrackerId {
        TrackerId::Unkillable
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        let followed = self.followed.get(subject.pod);
        followed.is_some_and(|followed| claim.is_met(followed.reported.is_some()))
    }

    fn dropped(&self) -> u64 {
        self.torn_down.dropped() + self.killed.dropped() + self.to_go.dropped()
    }
}
