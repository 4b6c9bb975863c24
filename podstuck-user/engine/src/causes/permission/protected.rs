//! Objects with attributes that forbid their removal, in volumes of a pod to be deleted or in layers of a container.
//! They are found by a scan and not by a failed attempt: a run that starts late may wait two minutes for the next
//! attempt, and dockerd makes none.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use crate::{
    causes::{
        permission::{
            causes::IMMUTABLE_ATTRIBUTE,
            verdict::{ask_dockerd_again, cause_of, flag, unflag},
        },
        shared::pending_deletion::{ToGo, Word},
    },
    command::View,
    event::{Event, What},
    ids,
    model::{
        container::{ContainerPart, ContainerState},
        evidence::Source,
        identity::{Target, TargetKind},
        node::{NodeSample, PodState, VolumeState},
        object::{self, Protected},
        path::{safe, safe_path},
        time::Monotonic,
    },
    query::{FindProtected, Query, Question},
    tracker::{Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Plugin of the volumes whose contents kubelet deletes itself, on the node's own disk (pkg/volume/emptydir,
/// `teardownDefault`). Mounted ones are unmounted instead.
const DELETED_BY_KUBELET: &str = "kubernetes.io~empty-dir";
/// Interval between two scans of a reported tree, so that its end is reported.
const REPORTED_AGAIN: Duration = Duration::from_secs(6);
/// Interval between two scans of a tree in which nothing was found.
const AGAIN: Duration = Duration::from_secs(30);
/// Maximal number of scans that find nothing; each reads up to 50,000 inodes.
pub(super) const LOOKS: u32 = 3;

/// The owner of a tree, in the last sample.
#[derive(Clone)]
pub(crate) enum Owner {
    /// A pod to be deleted.
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

/// A volume or layer to be deleted.
pub(crate) struct Tree {
    pub(crate) owner: Owner,
    pub(crate) target_id: u64,
    pub(crate) target: Arc<Target>,
    pub(crate) path: PathBuf,
    /// A process that sees the tree at `path`, and its mount namespace.
    pub(crate) seen_by: (u32, u32),
    /// Whether the tree should be gone by now.
    is_late: bool,
}

/// A tree that is scanned.
pub(crate) struct Looked {
    pub(crate) tree: Tree,
    asked: Option<Monotonic>,
    looks: u32,
    /// When a protected object was first found.
    pub(crate) since: Option<Monotonic>,
}

/// Volumes and layers to be deleted, by target.
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
            let pause = if since.is_some() { REPORTED_AGAIN } else { AGAIN };
            let may = since.is_some() || looks < LOOKS;
            // The volumes of a pod that is deleted normally are gone by the second sample.
            let lasts = is_known || tree.is_late;
            let is_due = may && lasts && asked.is_none_or(|asked| at.since(asked) >= pause);
            if is_due {
                let wants = FindProtected { pid: tree.seen_by.0, directory: path.clone() }.into();
                steps.ask([Query { tracker, target_id, path: path.clone(), wants }]);
            }
            let asked = if is_due { Some(at) } else { asked };
            let looked = Looked { tree, asked, looks: looks + u32::from(is_due), since };
            self.looked.insert(target_id, looked);
        }
        let gone = before.into_iter().filter(|(_, looked)| looked.since.is_some());
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }

    /// The trees that kubelet or dockerd would delete now.
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
            // dockerd unmounts the container before it deletes the layer.
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
        // A failed attempt has shown it meanwhile, and another tracker reports it.
        let (target_id, path) = (query.target_id, looked.tree.path.as_path());
        let subject = Subject { target_id, path, pod: looked.tree.owner.pod(), at: context.now };
        if context.is_explained(tracker, &subject) {
            return;
        }
        looked.since.get_or_insert(context.now);
        let word = self.to_go.word(looked.tree.owner.pod());
        steps.found(draft(context, looked, found, word));
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
                if let Some((_, Ok(found))) = FindProtected::answered(query, answer) {
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

/// Adds the facts about the pod. Returns the component that deletes its volumes.
fn of_pod(draft: &mut Draft, pod: &PodState) -> &'static str {
    draft.blocks_deletion = Some(true);
    if pod.populated == Some(false) {
        draft.fact(
            "no process is left in the pod's control groups: kubelet deletes its volumes now",
            Source::proc("control groups"),
        );
    } else {
        draft.doubt(
            "whether kubelet has reached the volume: it waits for the pod's containers first",
        );
    }
    "kubelet"
}

/// Adds the facts about the container. Returns the component that deletes its layers.
fn of_container(draft: &mut Draft, state: &ContainerState) -> &'static str {
    draft.blocks_deletion = state.container.pod.is_none().then_some(true);
    let id = safe(state.container.id.as_bytes());
    draft.fact(
        format!("dockerd has begun to remove container {id}, and has not finished"),
        Source::file("config.v2.json of the container"),
    );
    draft.fact(
        "its first process is gone, and its root file system is not mounted",
        Source::proc("mountinfo"),
    );
    "dockerd"
}

/// The finding; `None` if nothing was found.
pub(crate) fn draft(
    context: &Context<'_>,
    looked: &Looked,
    found: &Protected,
    to_go: Option<&Word>,
) -> Option<Draft> {
    let (first, attributes) = found.objects.first()?;
    let cause = cause_of(*attributes)?;
    let Looked { tree, since, .. } = looked;
    let mut draft = Draft::about_state(
        TrackerId::Protected,
        cause,
        tree.target_id,
        tree.target.clone(),
        first.0.clone(),
        context.now,
    );
    draft.first = since.unwrap_or(context.now);
    let what = match &tree.owner {
        Owner::Pod(_) => "volume",
        Owner::Container(_) => "layer",
    };
    let look = || Source::Look("statx of what is in the tree");
    for (path, attributes) in &found.objects {
        let word = flag(cause_of(*attributes)?).1;
        draft.fact(format!("{} has the {word} attribute", safe_path(&path.0)), look());
    }
    let whole = if found.complete {
        "which are all of its objects"
    } else {
        "which are not all of its objects"
    };
    draft.fact(format!("{} objects of the {what} were examined, {whole}", found.looked), look());
    if let Some(word) = to_go {
        word.tell(&mut draft);
    }
    let who = match &tree.owner {
        Owner::Pod(pod) => of_pod(&mut draft, pod),
        Owner::Container(state) => of_container(&mut draft, state),
    };
    draft.fact("no attempt to delete it was seen yet", Source::Inference);
    draft.explanation = format!(
        "{who} deletes the contents of this {what}, and the file system refuses to remove an \
        object with this attribute, even for root. Everything else is removed, and every attempt \
        fails at the same place. Ask who set it: hardening scripts do, and so do intruders."
    );
    // If our own namespace is not known, the view of that process serves as well.
    let (pid, namespace) = tree.seen_by;
    let view = View::in_namespace(context, namespace, pid);
    let files = found.files.iter().copied().map(Some).chain(std::iter::repeat(None));
    for ((path, attributes), file) in found.objects.iter().zip(files) {
        let cause = cause_of(*attributes)?;
        let flag = flag(cause).0;
        draft.remedy(
            view.on_file(&unflag(cause), &path.0, file, |it| format!("chattr -{flag} {it}")),
            format!(
                "low: removes the protection of this one object; {who}'s next attempt deletes it"
            ),
        );
    }
    if let Owner::Container(state) = &tree.owner {
        let is_pods = state.container.pod.is_some();
        ask_dockerd_again(&mut draft, &state.container.id, is_pods);
    }
    let is_immutable = *cause == IMMUTABLE_ATTRIBUTE;
    let other = if is_immutable { ids::APPEND_ONLY_ATTRIBUTE } else { ids::IMMUTABLE_ATTRIBUTE };
    draft.rule_out(other, format!("the attribute is `{}`", flag(cause).0));
    draft.suffices_beside(ids::SWAPFILE_ACTIVE);
    Some(draft)
}
