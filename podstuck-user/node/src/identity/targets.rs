//! Targets by the ids that the probes give them, also after they are gone, with their pods by name.

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

/// Targets remembered by name. A node has some thousands.
const TARGETS_MAX: usize = 4 << 10;

/// A target, by its id.
pub type Known = (u64, Arc<Target>);

/// What is known of them.
pub struct Targets {
    by_id: Bounded<u64, Arc<Target>>,
    names: PodNames,
    roots: TargetRoots,
    containers: Containers,
    unknown: Arc<Target>,
    /// Those learnt since somebody asked.
    learned: Vec<Known>,
    /// Those that had to go since somebody asked.
    forgotten: Vec<u64>,
}

impl Targets {
    /// None yet, with the pod names that this node tells.
    pub fn new(names: PodNames, roots: TargetRoots) -> Self {
        let (containers, unknown) = (Containers::default(), Arc::new(Target::unknown()));
        let by_id = Bounded::new(TARGETS_MAX);
        let (learned, forgotten) = (Vec::new(), Vec::new());
        Self { by_id, names, roots, containers, unknown, learned, forgotten }
    }

    /// What pods are called.
    pub fn names(&mut self) -> &mut PodNames {
        &mut self.names
    }

    /// Where targets are.
    pub fn roots(&mut self) -> &mut TargetRoots {
        &mut self.roots
    }

    /// How many targets and names were forgotten because there were too many.
    pub fn dropped(&self) -> u64 {
        self.by_id.dropped() + self.names.dropped() + self.containers.dropped()
    }

    /// Those that were learnt since this was asked last.
    pub fn learned(&mut self) -> Vec<Known> {
        std::mem::take(&mut self.learned)
    }

    /// Those that had to go, because there were too many, since this was asked last. Each is in
    /// [`Self::dropped`], too.
    pub fn forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// No target.
    pub fn unknown(&self) -> Arc<Target> {
        self.unknown.clone()
    }

    /// That of an id, if it was learnt. It is in use.
    pub fn get(&mut self, id: u64) -> Arc<Target> {
        self.by_id.get_mut(&id).map_or(&self.unknown, |known| known).clone()
    }

    /// That of an id, learnt from the path of something in it.
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
        // A runtime's data may lie where nothing says `docker`.
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

    /// Takes those that are there now. What was learnt of their parts before is said anew, with whose it is.
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

    /// Says whose container's a target is, and so whose pod's.
    fn attribute(&mut self, target: &mut Target) {
        if !target.kind.is_of_runtime() {
            return;
        }
        let Some(container) = self.container_with(&target.root).cloned() else { return };
        target.container = Some(container.id.clone());
        target.container_name.clone_from(&container.described.name);
        if let Some(pod) = &container.described.pod {
            let told = pod.clone();
            let known = self.named(Pod { namespace: None, name: None, ..pod.clone() });
            target.pod = Some(if known.name.is_some() { known } else { told });
        }
    }

    /// The container that the root of a target belongs to. While it is removed, it has another name.
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

    /// That in which a path of the node lies.
    pub fn of(&mut self, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate(path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// The same in a mount namespace that has proven views.
    pub fn of_in(&mut self, namespace: u32, path: &Path) -> Option<Known> {
        let (root, trail) = self.roots.locate_in(namespace, path)?;
        Some((trail.target, self.learn_root(trail.target, root)))
    }

    /// That of a pod of which there is no path, with the id that stands for it.
    pub fn of_pod(&mut self, uid: &str) -> Known {
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        let kind = TargetKind::PodDirectory;
        let target = Target { kind, pod: Some(pod), ..Target::unknown() };
        (name_hash(uid.as_bytes()), Arc::new(target))
    }

    /// That of an id, which belongs to this pod although its path does not say so.
    pub fn belongs_to(&mut self, id: u64, uid: &str) -> Arc<Target> {
        let Some(target) = self.by_id.get(&id).cloned() else { return self.unknown() };
        if target.pod.as_ref().is_some_and(|pod| pod.uid == uid) {
            return target;
        }
        let pod = self.named(Pod { uid: uid.into(), namespace: None, name: None });
        self.keep(id, Target { pod: Some(pod), ..Target::clone(&target) })
    }

    /// A pod, by name if this node tells it.
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
    fn what_is_forgotten_is_told_and_counted_and_what_is_in_use_stays() {
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
        // Counts of it come all along.
        assert_eq!(targets.get(ids[0]).kind, TargetKind::PodVolume);
        targets.of(&path(TARGETS_MAX)).unwrap();
        assert_eq!((targets.forgotten(), targets.dropped()), (vec![ids[1]], 1));
        assert_eq!(targets.get(ids[1]).kind, TargetKind::Other);
        assert_eq!(targets.get(ids[0]).kind, TargetKind::PodVolume);
        // It is told again, and is one of those that are known.
        assert_eq!(targets.learn(ids[1], &path(1)).kind, TargetKind::PodVolume);
        assert_eq!((targets.forgotten(), targets.dropped()), (vec![ids[2]], 2));
    }
}
