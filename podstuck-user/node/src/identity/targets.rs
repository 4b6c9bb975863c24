//! Targets by the probes' ids, remembered after they are gone, with the names of their pods.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use podstuck_common::component::name_hash;
use podstuck_model::bounded::Bounded;

use super::{
    NameSource, PodNames,
    classify::{before_removal, classify, docker_volume},
    containers::{Container, Containers},
    target_roots::TargetRoots,
};
use podstuck_model::identity::{Pod, Target, TargetKind};

/// Most targets remembered. A node has some thousands.
const TARGETS_MAX: usize = 4 << 10;

/// A target, by its id.
pub type Known = (u64, Arc<Target>);

/// The known targets.
pub struct Targets {
    by_id: Bounded<u64, Arc<Target>, TARGETS_MAX>,
    names: PodNames,
    roots: TargetRoots,
    containers: Containers,
    unknown: Arc<Target>,
    /// Targets learnt since the last call of [`Self::learned`].
    learned: Vec<Known>,
    /// Ids forgotten since the last call of [`Self::forgotten`].
    forgotten: Vec<u64>,
}

impl Targets {
    /// Without targets, with the pod names of this node.
    pub fn new(names: PodNames, roots: TargetRoots) -> Self {
        let (containers, unknown) = (Containers::default(), Arc::new(Target::unknown()));
        let by_id = Bounded::default();
        let (learned, forgotten) = (Vec::new(), Vec::new());
        Self { by_id, names, roots, containers, unknown, learned, forgotten }
    }

    /// The names of pods.
    pub fn names(&mut self) -> &mut PodNames {
        &mut self.names
    }

    /// The target roots.
    pub fn roots(&mut self) -> &mut TargetRoots {
        &mut self.roots
    }

    /// How many targets and names were forgotten because there were too many.
    pub fn dropped(&self) -> u64 {
        self.by_id.dropped() + self.names.dropped() + self.containers.dropped()
    }

    /// Targets learnt since the last call.
    pub fn learned(&mut self) -> Vec<Known> {
        std::mem::take(&mut self.learned)
    }

    /// Ids forgotten since the last call, because there were too many targets. [`Self::dropped`] counts them, too.
    pub fn forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// The target for an unknown id.
    pub fn unknown(&self) -> Arc<Target> {
        self.unknown.clone()
    }

    /// The target with an id, if it was learnt. Marks it as used.
    pub fn get(&mut self, id: u64) -> Arc<Target> {
        self.by_id.get_mut(&id).map_or(&self.unknown, |known| known).clone()
    }

    /// The target with an id, learnt from the path of an object in it.
    pub fn learn(&mut self, id: u64, path: &Path) -> Arc<Target> {
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

    /// A target that was learnt. A pod without a name is looked up again: the name may not have been read or created yet.
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
        // The path of a runtime's data need not contain `docker`.
        if target.kind == TargetKind::Other && self.roots.is_volume(&root) {
            target = docker_volume(&root);
        }
        if target.pod.is_some() {
            self.names.learn_root(&root);
            target.pod = target.pod.map(|pod| self.named(pod));
        }
        self.attribute(&mut target);
        self.keep(id, target)
    }

    /// Takes the present containers. Targets that are their parts are reported again, with container and pod.
    pub fn containers_are(&mut self, now: &[Arc<Container>]) {
        if !self.containers.learn(now) {
            return;
        }
        let names = now.iter().filter_map(|container| container.described.pod.as_ref());
        let names = names
            .filter_map(|pod| Some((pod.namespace.clone()?, pod.name.clone()?, pod.uid.clone())));
        self.names.learn(NameSource::Runtime, names.collect::<Vec<_>>());
        let of_runtime = self.by_id.iter().filter(|(_, target)| target.kind.is_of_runtime());
        let of_runtime: Vec<Known> = of_runtime.map(|(id, target)| (*id, target.clone())).collect();
        for (id, target) in of_runtime {
            let mut known = Target::clone(&target);
            self.attribute(&mut known);
            if known != *target {
                self.keep(id, known);
            }
        }
    }

    /// Sets the container of a target, and so its pod.
    fn attribute(&mut self, target: &mut Target) {
        if !target.kind.is_of_runtime() {
            return;
        }
        let Some(container) = self.container_with(&target.root).cloned() else { return };
        target.container = Some(container.id.clone());
        target.container_name.clone_from(&container.described.name);
        if let Some(pod) = &container.described.pod {
            let described = pod.clone();
            let known = self.named(Pod { namespace: None, name: None, ..pod.clone() });
            target.pod = Some(if known.name.is_some() { known } else { described });
        }
    }

    /// The container of a target's root, which has another name during its removal.
    fn container_with(&self, root: &Path) -> Option<&Arc<Container>> {
        let root = before_removal(root)?;
        self.roots.as_given(&root).find_map(|path| self.containers.with(&path))
    }

    fn keep(&mut self, id: u64, target: Target) -> Arc<Target> {
        let target = Arc::new(target);
        self.forgotten.extend(self.by_id.push(id, target.clone()));
        self.learned.push((id, target.clone()));
        target
    }

    /// The target of a path of the node.
    pub fn of(&mut self, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate(path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// The same in a mount namespace with proven views.
    pub fn of_in(&mut self, namespace: u32, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate_in(namespace, path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// A target for a pod without a path, with an id derived from its UID.
    pub fn of_pod(&mut self, uid: &str) -> Known {
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        let kind = TargetKind::PodDirectory;
        let target = Target { kind, pod: Some(pod), ..Target::unknown() };
        (name_hash(uid.as_bytes()), Arc::new(target))
    }

    /// Assigns the target with an id to this pod, which its path does not show.
    pub fn belongs_to(&mut self, id: u64, uid: &str) -> Arc<Target> {
        let Some(target) = self.by_id.get(&id).cloned() else { return self.unknown() };
        if target.pod.as_ref().is_some_and(|pod| pod.uid == uid) {
            return target;
        }
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        self.keep(id, Target { pod: Some(pod), ..Target::clone(&target) })
    }

    /// A pod, with its name if it is known.
    pub fn named(&mut self, pod: Pod) -> Pod {
        match self.names.lookup(&pod.uid) {
            Some((namespace, name)) => {
                Pod { uid: pod.uid, namespace: Some(namespace), name: Some(name) }
            }
            None => pod,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::target_roots::{Holds, TargetRoot};

    #[test]
    fn a_volume_is_one_wherever_its_runtime_keeps_it() {
        let mut roots = TargetRoots::new(None);
        assert!(roots.add(TargetRoot::of_host("/srv/d", Holds::Data)));
        assert!(roots.add(TargetRoot::of_host("/srv/c", Holds::PluginData)));
        let names = PodNames::new(Vec::new(), Box::new(|_, _| Vec::new()));
        let mut targets = Targets::new(names, roots);
        let mut of = |path: &str| {
            let (_, target) = targets.of(Path::new(path))?;
            Some((target.kind, target.volume.as_ref().map(|volume| volume.name.clone())))
        };
        assert_eq!(
            of("/srv/d/volumes/web/_data/a"),
            Some((TargetKind::DockerVolume, Some("web".into())))
        );
        assert_eq!(of("/srv/c/plugin/volumes/web/_data"), Some((TargetKind::Other, None)));
        assert_eq!(of("/srv/e/volumes/web/_data/a"), None);
    }

    #[test]
    fn forgotten_targets_are_reported_and_counted_and_used_ones_stay() {
        let mut roots = TargetRoots::new(None);
        assert!(roots.add(TargetRoot::of_host("/var/lib/kubelet", Holds::Pods)));
        let names = PodNames::new(Vec::new(), Box::new(|_, _| Vec::new()));
        let mut targets = Targets::new(names, roots);
        let path = |n: usize| {
            let uid = "0f0e0d0c-1111-2222-3333-444455556666";
            PathBuf::from(format!("/var/lib/kubelet/pods/{uid}/volumes/p/v{n}"))
        };
        let ids: Vec<u64> = (0..TARGETS_MAX).map(|n| targets.of(&path(n)).unwrap().0).collect();
        assert_eq!((targets.forgotten(), targets.dropped()), (Vec::new(), 0));
        // The first target is used meanwhile.
        assert_eq!(targets.get(ids[0]).kind, TargetKind::PodVolume);
        targets.of(&path(TARGETS_MAX)).unwrap();
        assert_eq!((targets.forgotten(), targets.dropped()), (vec![ids[1]], 1));
        assert_eq!(targets.get(ids[1]).kind, TargetKind::Other);
        assert_eq!(targets.get(ids[0]).kind, TargetKind::PodVolume);
        // It is learnt again.
        assert_eq!(targets.learn(ids[1], &path(1)).kind, TargetKind::PodVolume);
        assert_eq!((targets.forgotten(), targets.dropped()), (vec![ids[2]], 2));
    }
}
