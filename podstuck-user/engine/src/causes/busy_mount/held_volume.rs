//! Volumes of a pod to be deleted that a process uses, found by a scan and not by a failed unmount: kubelet tries to
//! unmount them only after the pod's containers are gone, and with a back-off of up to two minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    causes::{
        busy_mount::{
            in_use::{cause, explanation},
            nested::EMPTY_DIR,
        },
        shared::{
            holders::{culprits, free, tell},
            pending_deletion::{ToGo, Word},
        },
    },
    command::View,
    event::{Event, What},
    model::{
        evidence::Source,
        finding::Severity,
        holder::{About, Holder, How, Snapshot},
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        path::{JsonPath, safe_path},
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// A use shorter than this does not count: a process that reads every file of a node holds each briefly.
const STILL: Duration = Duration::from_secs(2);
/// Interval between two scans of a reported volume, so that its end is reported.
const REPORTED_AGAIN: Duration = Duration::from_secs(10);
/// Interval between two scans of a volume that no process used.
const AGAIN: Duration = Duration::from_secs(60);
/// kubelet unmounts the volumes of a pod within this time after its containers have ended, if nothing is wrong. No process
/// is searched for before, except in a run about the pod: on a node that deletes hundreds of pods an hour, that would be
/// most of the searches.
const USUAL: Duration = Duration::from_secs(4);
/// Plugins whose volumes are scanned last: kubelet makes them for the pod alone, so other processes rarely use them.
const LAST: [&str; 4] = [
    "kubernetes.io~projected",
    "kubernetes.io~secret",
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
];

/// Process id and start time of a user.
type Who = (Option<u32>, Option<u64>);

/// A volume that is scanned for users.
pub(crate) struct Looked {
    pub(crate) pod: PodState,
    pub(crate) volume: VolumeState,
    /// kubelet waits for the pod's containers: for their processes, or for the runtime to release one that has ended.
    waits: bool,
    /// The first scan of a deletion that may still be a usual one.
    usual: Option<Monotonic>,
    asked: Option<Monotonic>,
    /// Since when every scan finds the same user.
    since: Option<Monotonic>,
    /// The users in the last scan.
    who: BTreeSet<Who>,
    reported: bool,
}

/// The volumes scanned, by target.
#[derive(Default)]
pub(crate) struct HeldVolumes {
    looked: BTreeMap<u64, Looked>,
    to_go: ToGo,
}

impl HeldVolumes {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.looked);
        for pod in sample.pods.iter().filter(|pod| self.to_go.is_over(context, sample, pod)) {
            let waits = pod.populated != Some(false)
                || sample.rootfs.iter().any(|left| left.pod == pod.uid);
            let since = self.to_go.known_since(context, &pod.uid);
            let has_begun_now = since.is_some_and(|since| since > context.begun);
            let is_asked = context.asked == Some(pod.uid.as_str());
            let usual = (has_begun_now && !is_asked).then_some(at);
            for volume in
                pod.volumes.iter().filter(|it| it.target_id != 0 && unmounted(it).is_some())
            {
                let target_id = volume.target_id;
                let subject = Subject { target_id, path: &volume.path, pod: &pod.uid, at };
                if context.is_explained(tracker, &subject) {
                    continue;
                }
                let new = || Looked {
                    pod: pod.clone(),
                    volume: volume.clone(),
                    waits,
                    usual,
                    asked: None,
                    since: None,
                    who: BTreeSet::new(),
                    reported: false,
                };
                let mut looked = before.remove(&target_id).unwrap_or_else(new);
                (looked.pod, looked.volume, looked.waits) = (pod.clone(), volume.clone(), waits);
                self.looked.insert(target_id, looked);
            }
        }
        let gone = before.into_iter().filter(|(_, looked)| looked.reported);
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
        // Each scan reads the descriptors of all processes: one per sample.
        let due = self.looked.iter_mut().filter(|(_, looked)| looked.is_due(at));
        let first =
            due.min_by_key(|(_, looked)| (looked.since.is_none(), looked.asked, looked.is_last()));
        if let Some((target_id, looked)) = first
            && let Some(mount) = looked.mount()
        {
            let (pid, namespace, path) = (mount.pid, mount.namespace, mount.point.clone());
            looked.asked = Some(at);
            let wants =
                Wants::Holders(About::Mount { pid, namespace, path: JsonPath(path.clone()) });
            steps.ask([Query { tracker, target_id: *target_id, path, wants }]);
        }
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        taken: &Snapshot,
        steps: &mut Steps,
    ) {
        let (tracker, target_id) = (self.id(), query.target_id);
        let Some(looked) = self.looked.get_mut(&target_id) else { return };
        // The pod's own processes end with its containers.
        let is_own =
            |holder: &&Holder| holder.pod.as_ref().is_some_and(|pod| pod.uid == looked.pod.uid);
        let found: Vec<&Holder> = culprits(taken).filter(|holder| !is_own(holder)).collect();
        if found.is_empty() {
            looked.since = None;
            let over = Verdict::Over { tracker, target_id, at: context.now };
            steps.say(std::mem::take(&mut looked.reported).then_some(over));
            return;
        }
        let who: BTreeSet<Who> = found.iter().map(|holder| (holder.pid, holder.started)).collect();
        if looked.who.is_disjoint(&who) {
            looked.since = None;
        }
        looked.who = who;
        let since = *looked.since.get_or_insert(taken.at);
        if taken.at.since(since) >= STILL {
            looked.reported = true;
            let word = self.to_go.word(&looked.pod.uid);
            steps.found([draft(context, looked, word, since, taken, &found)]);
        }
    }
}

impl Looked {
    /// The mount whose users are searched.
    pub(crate) fn mount(&self) -> Option<&Mounted> {
        unmounted(&self.volume)
    }

    fn is_due(&self, now: Monotonic) -> bool {
        let pause = match (self.since, self.reported) {
            (Some(_), false) => STILL,
            (Some(_), true) => REPORTED_AGAIN,
            (None, _) => AGAIN,
        };
        self.usual.is_none_or(|first| now.since(first) >= USUAL)
            && self.asked.is_none_or(|asked| now.since(asked) >= pause)
    }

    fn is_last(&self) -> bool {
        let plugin = self.volume.path.parent().and_then(|plugin| plugin.file_name());
        plugin.is_some_and(|name| LAST.iter().any(|last| name == *last))
    }
}

/// The volume's mount that is unmounted when the pod goes. kubelet mounts an emptyDir in memory on its own directory,
/// and does not unmount mounts deeper inside an emptyDir, in use or not.
fn unmounted(volume: &VolumeState) -> Option<&Mounted> {
    let plugin = volume.target.volume.as_ref().map(|volume| volume.plugin.as_str());
    let mut mounts = volume.mounts.iter();
    mounts.find(|mount| plugin != Some(EMPTY_DIR) || mount.point == volume.path)
}

impl Tracker for HeldVolumes {
    fn id(&self) -> TrackerId {
        TrackerId::HeldVolume
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Sample(sample) => self.sampled(context, sample, steps),
            what => {
                if let Some((query, taken)) = what.holders() {
                    self.conclude(context, query, taken, steps);
                }
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

pub(crate) fn draft(
    context: &Context<'_>,
    looked: &Looked,
    to_go: Option<&Word>,
    since: Monotonic,
    taken: &Snapshot,
    found: &[&Holder],
) -> Draft {
    let volume = &looked.volume;
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let cause = cause(false, &nested, &users);
    let (target_id, target) = (volume.target_id, volume.target.clone());
    let mount = looked.mount();
    let point = mount.map_or(&volume.path, |mount| &mount.point);
    let mut draft = Draft::about_state(
        TrackerId::HeldVolume,
        cause,
        target_id,
        target,
        point.clone(),
        taken.at,
    );
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    draft.first = since;
    let held = taken.at.since(since).as_secs();
    draft.fact_since(
        format!("{} was in use in every scan for {held} s", safe_path(point)),
        Source::proc("/proc"),
        since,
    );
    tell(&mut draft, found);
    match to_go {
        Some(word) => word.tell(&mut draft),
        None => draft.fact("kubelet has begun to remove the pod's volumes", Source::Samples),
    }
    draft.explanation = explanation(cause, &users);
    if !looked.waits {
        draft.explanation += " kubelet unmounts the pod's volumes now.";
    } else {
        // The containers hold the pod first; this volume follows once they are gone.
        draft.is_later = true;
        draft.explanation += " kubelet has not tried to unmount the volume yet: it waits for the \
            pod's containers first.";
    }
    let view =
        mount.map_or(View::OURS, |mount| View::in_namespace(context, mount.namespace, mount.pid));
    free(&mut draft, view, &nested, &users);
    // A user alone makes the unmount fail, whatever else is there.
    for other in cause.look_alikes {
        draft.suffices_beside(other.cause);
    }
    if !found.iter().any(|holder| holder.exact) {
        draft.doubt("which mount it is: only the text of a path identifies it");
    }
    draft
}
