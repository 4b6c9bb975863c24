//! From records to operations: every call gets its target, its pod and its actor by name.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use podstuck_common::{component::name_hash, record};

use crate::{
    decode::Record,
    identity::{
        classify::classify, component_for, layout::target_root, names::PodNames,
        process::ActorCache,
    },
    model::{
        call::{Call, Outcome},
        identity::{Actor, Pod, Target, TargetKind},
        operation::Operation,
        time::Monotonic,
    },
};

/// Targets remembered by name. A node has some thousands; beyond this, new ones stay nameless and
/// are counted as such.
const TARGETS_MAX: usize = 16 << 10;

/// Knows targets and processes by name, also after they are gone.
pub struct Attributor {
    targets: HashMap<u64, Arc<Target>>,
    names: PodNames,
    actors: ActorCache,
    unknown: Arc<Target>,
}

impl Attributor {
    /// Starts with the pod names that this node tells.
    pub fn new(names: PodNames) -> Self {
        Self {
            targets: HashMap::new(),
            names,
            actors: ActorCache::default(),
            unknown: Arc::new(Target::unknown()),
        }
    }

    /// Names everything in a record; `None` for a call that no probe reports.
    pub fn operation(&mut self, record: &Record) -> Option<Operation> {
        let head = &record.head;
        let path = record.path();
        let target = self.learn(head.target, &path);
        let actor = self.actor_on(head.tgid, &head.actor, &target);
        Some(Operation {
            end: Monotonic(head.end_ns),
            duration: Duration::from_nanos(head.duration_ns),
            call: Call::from_code(head.call)?,
            outcome: Outcome(head.errno),
            reason: head.reason,
            flaws: head.flaws,
            flags: head.flags,
            path,
            target_id: head.target,
            target,
            actor,
            tid: head.tid,
            mnt_ns: head.actor.mnt_ns,
            directory: (head.dir_dev, head.dir_ino),
            mount_id: head.mount_id,
            depth: head.depth,
            mount_depth: head.mount_depth,
            suppressed: head.suppressed,
        })
    }

    /// Takes note of a target before it has another path.
    pub fn renamed(&mut self, record: &Record) {
        self.learn(record.head.target, &record.path());
    }

    /// A target of which nothing is known, and the id that the counts have for calls outside any.
    pub fn nowhere(&self) -> (u64, Arc<Target>) {
        (0, self.unknown.clone())
    }

    /// A process in a call on a target, with its pod by name.
    pub fn actor_on(&mut self, pid: u32, seen: &record::Actor, target: &Target) -> Arc<Actor> {
        let mut actor = self.actor(pid, seen);
        // A process in a container is a driver when it works on another pod's volume.
        let component = component_for(&actor, target);
        if component != actor.component {
            Arc::make_mut(&mut actor).component = component;
        }
        actor
    }

    /// The target of an id that was learnt from a record.
    pub fn target(&self, id: u64) -> Option<&Arc<Target>> {
        self.targets.get(&id)
    }

    /// The target that a path of the node lies in, and its id.
    pub fn target_of(&mut self, path: &Path) -> Option<(u64, Arc<Target>)> {
        let (_, trail) = target_root(path)?;
        Some((trail.target, self.learn(trail.target, path)))
    }

    /// A pod of which there is no path, and the id that stands for it.
    pub fn pod_target(&mut self, uid: &str) -> (u64, Arc<Target>) {
        let pod = self.pod(Pod { uid: uid.into(), namespace: None, name: None });
        let kind = TargetKind::PodDirectory;
        let target = Target { kind, pod: Some(pod), ..Target::unknown() };
        (name_hash(uid.as_bytes()), Arc::new(target))
    }

    /// A process, with its pod by name.
    pub fn actor(&mut self, pid: u32, seen: &record::Actor) -> Arc<Actor> {
        let mut actor = self.actors.resolve(pid, seen);
        if let Some(pod) = actor.pod.as_ref().filter(|pod| pod.name.is_none())
            && let Some(named) = name(&mut self.names, pod)
        {
            Arc::make_mut(&mut actor).pod = Some(named);
        }
        actor
    }

    /// A pod, by name if this node tells it.
    pub fn pod(&mut self, pod: Pod) -> Pod {
        name(&mut self.names, &pod).unwrap_or(pod)
    }

    fn learn(&mut self, id: u64, path: &Path) -> Arc<Target> {
        if let Some(known) = self.targets.get(&id) {
            return known.clone();
        }
        if id == 0 {
            return self.unknown.clone();
        }
        // The probes walked the same path; a different answer means that it was cut or changed
        // meanwhile, and then its text proves nothing about the id.
        let Some((root, _)) = target_root(path).filter(|(_, trail)| trail.target == id) else {
            return self.unknown.clone();
        };
        let mut target = classify(&root);
        if let Some(pod) = &target.pod {
            self.names.learn_root(&root);
            target.pod = name(&mut self.names, pod).or(target.pod);
        }
        let target = Arc::new(target);
        if self.targets.len() < TARGETS_MAX {
            self.targets.insert(id, target.clone());
        }
        target
    }
}

fn name(names: &mut PodNames, pod: &Pod) -> Option<Pod> {
    let (namespace, name) = names.lookup(&pod.uid)?;
    Some(Pod { uid: pod.uid.clone(), namespace: Some(namespace), name: Some(name) })
}
