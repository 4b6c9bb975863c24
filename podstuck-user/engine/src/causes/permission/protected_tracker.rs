//! What in the volumes of a pod that is to go, or in the layers of a container, has attributes that forbid its
//! removal, found by a look and not by an attempt that failed: whoever comes late may wait two minutes for the
//! next one, and dockerd makes none.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use crate::{
    causes::{permission::protected, shared::pending_deletion::ToGo},
    event::{Event, What},
    model::{
        container::{ContainerPart, ContainerState},
        identity::{Target, TargetKind},
        node::{NodeSample, PodState, VolumeState},
        object,
        time::Monotonic,
    },
    query::{Answer, Query, Wants},
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

/// Whose a tree is, at the last look at the node.
#[derive(Clone)]
pub(crate) enum Owner {
    /// A pod that is to go.
    Pod(PodState),
    /// A container whose removal dockerd has begun.
    Container(ContainerState),
}

impl Owner {
    fn pod(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.uid,
            Self::Container(state) => state.container.pod.as_ref().map_or("", |pod| &pod.uid),
        }
    }
}

/// A volume or a layer that is to be deleted.
pub(crate) struct Tree {
    pub(crate) owner: Owner,
    pub(crate) target_id: u64,
    pub(crate) target: Arc<Target>,
    pub(crate) path: PathBuf,
    /// Who sees it there: a process, and its mount namespace.
    pub(crate) seen_by: (u32, u32),
    /// Whether it should be gone.
    is_late: bool,
}

/// One that was looked at.
pub(crate) struct Looked {
    pub(crate) tree: Tree,
    asked: Option<Monotonic>,
    looks: u32,
    /// When something was found first.
    pub(crate) since: Option<Monotonic>,
}

/// Volumes and layers that are to go, by target.
#[derive(Default)]
pub(crate) struct Protections {
    looked: BTreeMap<u64, Looked>,
    to_go: ToGo,
}

impl Protections {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.looked);
        for tree in self.trees(context, sample) {
            let (target_id, path) = (tree.target_id, &tree.path);
            let subject = Subject { target_id, path, pod: tree.owner.pod(), at };
            if context.is_explained(tracker, &subject) {
                continue;
            }
            let known = before.remove(&target_id);
            let (is_known, since) = (known.is_some(), known.as_ref().and_then(|it| it.since));
            let (asked, looks) = known.map_or((None, 0), |it| (it.asked, it.looks));
            let pause = if since.is_some() { TOLD_AGAIN } else { AGAIN };
            let may = since.is_some() || looks < LOOKS;
            // A pod that is deleted in good health is through its volumes by the second look.
            let lasts = is_known || tree.is_late;
            let is_due = may && lasts && asked.is_none_or(|asked| at.since(asked) >= pause);
            if is_due {
                let wants = Wants::Protected { pid: tree.seen_by.0, directory: path.clone() };
                steps.ask([Query { tracker, target_id, path: path.clone(), wants }]);
            }
            let asked = if is_due { Some(at) } else { asked };
            let looked = Looked { tree, asked, looks: looks + u32::from(is_due), since };
            self.looked.insert(target_id, looked);
        }
        let gone = before.into_iter().filter(|(_, looked)| looked.since.is_some());
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }

    /// What kubelet or dockerd would delete now.
    fn trees(&self, context: &Context<'_>, sample: &NodeSample) -> Vec<Tree> {
        let mut trees = Vec::new();
        for pod in &sample.pods {
            let is_late = self.to_go.is_late(context, pod);
            let is_to_go = is_late || self.to_go.is_going(sample, pod);
            let Some(seen_by) = pod.seen_by.filter(|_| is_to_go) else { continue };
            let volumes = pod.volumes.iter().filter(|volume| is_deleted_by_kubelet(volume));
            trees.extend(volumes.map(|volume| Tree {
                owner: Owner::Pod(pod.clone()),
                target_id: volume.target_id,
                target: volume.target.clone(),
                path: volume.path.clone(),
                seen_by,
                is_late,
            }));
        }
        for state in sample.containers.iter().filter(|it| it.to_go && it.init.is_none()) {
            // dockerd unmounts it before it deletes the layer.
            let Some(seen_by) = state.seen_by.filter(|_| state.mounts.is_empty()) else { continue };
            let is_layer = |part: &&ContainerPart| {
                part.kind == TargetKind::ContainerLayer && part.target_id != 0
            };
            trees.extend(state.parts.iter().filter(is_layer).map(|part| Tree {
                owner: Owner::Container(state.clone()),
                target_id: part.target_id,
                target: part.target.clone(),
                path: part.path.clone(),
                seen_by,
                is_late: false,
            }));
        }
        trees
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
        let word = self.to_go.word(looked.tree.owner.pod());
        steps.found(protected::draft(context, looked, found, word));
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
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Answer::Protected(Ok(found)) = &**answer {
                    self.conclude(context, query, found, steps);
                }
            }
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

#[cfg(test)]
#[path = "protected_tracker_tests.rs"]
mod tests;
