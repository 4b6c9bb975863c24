//! What in the volumes of a pod that is to go has attributes that forbid its removal, found by a look and
//! not by an attempt that failed: whoever comes late may wait two minutes for the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    event::{Event, What},
    model::{
        node::{NodeSample, PodState, VolumeState},
        object,
        time::Monotonic,
    },
    query::{Answer, Query, Wants},
    rules::refused::protected,
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    verdict::Verdict,
};

/// Volumes whose contents kubelet deletes itself, on the node's own disk (pkg/volume/emptydir,
/// `teardownDefault`). What is mounted is unmounted.
const DELETED_BY_KUBELET: &str = "kubernetes.io~empty-dir";
/// What was found is looked at again after this long, so that it is told when it is over.
const TOLD_AGAIN: Duration = Duration::from_secs(6);
/// Where nothing was found.
const AGAIN: Duration = Duration::from_secs(30);
/// A look reads up to 50,000 inodes; more than this many are not made in vain.
const LOOKS: u32 = 3;

/// A volume that was looked at.
pub(crate) struct Looked {
    /// Its pod at the last look at the node.
    pub(crate) pod: PodState,
    /// The volume.
    pub(crate) volume: VolumeState,
    asked: Option<Monotonic>,
    looks: u32,
    /// When something was found first.
    pub(crate) since: Option<Monotonic>,
}

/// Volumes of pods that are to go, by target.
#[derive(Default)]
pub(crate) struct Protections {
    looked: BTreeMap<u64, Looked>,
    /// By UID: pods that the API server's record says are being deleted.
    deleted: BTreeSet<String>,
}

impl Protections {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.looked);
        for pod in &sample.pods {
            let Some((pid, _)) = pod.seen_by.filter(|_| self.is_to_go(pod)) else { continue };
            for volume in pod.volumes.iter().filter(|volume| is_deleted_by_kubelet(volume)) {
                let (target_id, path) = (volume.target_id, &volume.path);
                let subject = Subject { target_id, path, pod: &pod.uid, at };
                if context.is_explained(tracker, &subject) {
                    continue;
                }
                let known = before.remove(&target_id);
                let (is_known, since) = (known.is_some(), known.as_ref().and_then(|it| it.since));
                let (asked, looks) = known.map_or((None, 0), |it| (it.asked, it.looks));
                let pause = if since.is_some() { TOLD_AGAIN } else { AGAIN };
                let may = since.is_some() || looks < LOOKS;
                // A pod that is deleted in good health is through its volumes by the second look.
                let lasts = is_known || self.deleted.contains(&pod.uid);
                let is_due = may && lasts && asked.is_none_or(|asked| at.since(asked) >= pause);
                if is_due {
                    let wants = Wants::Protected { pid, directory: path.clone() };
                    steps.ask([Query { tracker, target_id, path: path.clone(), wants }]);
                }
                let looked = Looked {
                    pod: pod.clone(),
                    volume: volume.clone(),
                    asked: if is_due { Some(at) } else { asked },
                    looks: looks + u32::from(is_due),
                    since,
                };
                self.looked.insert(target_id, looked);
            }
        }
        let gone = before.into_iter().filter(|(_, looked)| looked.since.is_some());
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }

    /// Whether it is known that the pod is being deleted: an ended one may stay for weeks.
    fn is_to_go(&self, pod: &PodState) -> bool {
        let is_torn_down = pod.populated == Some(false) && pod.volume_removed.is_some();
        self.deleted.contains(&pod.uid) || (pod.started && is_torn_down)
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        found: &object::Protected,
        steps: &mut Steps,
    ) {
        let tracker = self.id();
        let Some(looked) = self.looked.get_mut(&query.target_id) else { return };
        if found.objects.is_empty() {
            let over = Verdict::Over { tracker, target_id: query.target_id, at: context.now };
            steps.say(looked.since.take().map(|_| over));
            return;
        }
        looked.since.get_or_insert(context.now);
        steps.found(protected::draft(context, looked, found));
    }
}

fn is_deleted_by_kubelet(volume: &VolumeState) -> bool {
    let plugin = volume.path.parent().and_then(|plugin| plugin.file_name());
    let is_kubelets = plugin.is_some_and(|name| name == DELETED_BY_KUBELET);
    is_kubelets && volume.target_id != 0 && volume.mounts.is_empty()
}

impl Tracker for Protections {
    fn id(&self) -> TrackerId {
        TrackerId::Protected
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Record { record, .. }
                if record.deletion.is_some_and(|deletion| deletion <= context.calendar) =>
            {
                self.deleted.insert(record.pod.uid.clone());
            }
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Answer::Protected(Ok(found)) = &**answer {
                    self.conclude(context, query, found, steps);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "protected_tests.rs"]
mod tests;
