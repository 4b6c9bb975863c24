//! Targets by the ids that the probes give them, also after they are gone, with their pods by name.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use podstuck_common::component::name_hash;
use podstuck_engine::bounded::Bounded;

use super::{PodNames, classify::classify, target_roots::TargetRoots};
use crate::model::identity::{Pod, Target, TargetKind};

/// Targets remembered by name. A node has some thousands.
const TARGETS_MAX: usize = 16 << 10;

/// A target, by its id.
pub(crate) type Known = (u64, Arc<Target>);

/// What is known of them.
pub(crate) struct Targets {
    by_id: Bounded<u64, Arc<Target>>,
    names: PodNames,
    roots: TargetRoots,
    unknown: Arc<Target>,
    /// Those learnt since somebody asked.
    learned: Vec<Known>,
}

impl Targets {
    /// None yet, with the pod names that this node tells.
    pub(crate) fn new(names: PodNames, roots: TargetRoots) -> Self {
        let unknown = Arc::new(Target::unknown());
        Self { by_id: Bounded::new(TARGETS_MAX), names, roots, unknown, learned: Vec::new() }
    }

    /// Where targets are.
    pub(crate) fn roots(&mut self) -> &mut TargetRoots {
        &mut self.roots
    }

    /// How many targets and names were forgotten because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.by_id.dropped() + self.names.dropped()
    }

    /// Those that were learnt since this was asked last.
    pub(crate) fn learned(&mut self) -> Vec<Known> {
        std::mem::take(&mut self.learned)
    }

    /// No target.
    pub(crate) fn unknown(&self) -> Arc<Target> {
        self.unknown.clone()
    }

    /// That of an id, if it was learnt.
    pub(crate) fn get(&self, id: u64) -> Arc<Target> {
        self.by_id.get(&id).unwrap_or(&self.unknown).clone()
    }

    /// That of an id, learnt from the path of something in it.
    pub(crate) fn learn(&mut self, id: u64, path: &Path) -> Arc<Target> {
        if let Some(known) = self.known(id) {
            return known;
        }
        if id == 0 {
            return self.unknown();
        }
        // The probes walked the same path; a different answer means that it was cut or changed
        // meanwhile, and then its text proves nothing about the id.
        let Some(root) = self.roots.find(id, path) else { return self.unknown() };
        self.learn_root(id, root)
    }

    /// One that was learnt. What had no name then may have been slow to tell it, or was just being made.
    fn known(&mut self, id: u64) -> Option<Arc<Target>> {
        let known = self.by_id.get_mut(&id)?.clone();
        let nameless = known.pod.as_ref().filter(|pod| pod.name.is_none());
        let Some(nameless) = nameless.cloned() else { return Some(known) };
        let pod = self.named(nameless);
        if pod.name.is_none() {
            return Some(known);
        }
        Some(self.keep(id, Target { pod: Some(pod), ..Target::clone(&known) }))
    }

    fn learn_root(&mut self, id: u64, root: PathBuf) -> Arc<Target> {
        if let Some(known) = self.known(id) {
            return known;
        }
        let mut target = classify(&root);
        if target.pod.is_some() {
            self.names.learn_root(&root);
            target.pod = target.pod.map(|pod| self.named(pod));
        }
        self.keep(id, target)
    }

    fn keep(&mut self, id: u64, target: Target) -> Arc<Target> {
        let target = Arc::new(target);
        self.by_id.insert(id, target.clone());
        self.learned.push((id, target.clone()));
        target
    }

    /// That in which a path of the node lies.
    pub(crate) fn of(&mut self, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate(path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// The same in a mount namespace that has proven views.
    pub(crate) fn of_in(&mut self, namespace: u32, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate_in(namespace, path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// That of a pod of which there is no path, with the id that stands for it.
    pub(crate) fn of_pod(&mut self, uid: &str) -> Known {
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        let kind = TargetKind::PodDirectory;
        let target = Target { kind, pod: Some(pod), ..Target::unknown() };
        (name_hash(uid.as_bytes()), Arc::new(target))
    }

    /// That of an id, which belongs to this pod although its path does not say so.
    pub(crate) fn belongs_to(&mut self, id: u64, uid: &str) -> Arc<Target> {
        let Some(target) = self.by_id.get(&id).cloned() else { return self.unknown() };
        if target.pod.as_ref().is_some_and(|pod| pod.uid == uid) {
            return target;
        }
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        self.keep(id, Target { pod: Some(pod), ..Target::clone(&target) })
    }

    /// A pod, by name if this node tells it.
    pub(crate) fn named(&mut self, pod: Pod) -> Pod {
        match self.names.lookup(&pod.uid) {
            Some((namespace, name)) => {
                Pod { uid: pod.uid, namespace: Some(namespace), name: Some(name) }
            }
            None => pod,
        }
    }
}
