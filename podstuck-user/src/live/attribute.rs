//! Names everything that enters the engine: targets, pods, and the component of a process.

mod look;
mod stuck;

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_common::record;
use podstuck_engine::bounded::Bounded;

use crate::{
    event::{Count, What},
    model::{
        call::{Call, Outcome},
        identity::{Actor, Component, Pod, Target},
        operation::Operation,
        said::NamedCall,
        time::Monotonic,
    },
};
use podstuck_confine::{role::Role, timed_read::TimedReader};
use podstuck_node::{
    identity::{
        NameSource, component_for,
        containers::Container,
        kubelet_trees::KubeletTrees,
        living::may_be_root,
        names::PodNames,
        process::{ActorCache, Looked, Who},
        target_roots::TargetRoots,
        targets::Targets,
    },
    scope::Scope,
    state::logs::{Attempt, NamedPod},
};
use podstuck_probe::{decode::Record, source::tables::Drained};

/// Limit of answers remembered until the next sample of the node.
const GIVEN_MAX: usize = 4096;

/// What a record is.
pub(crate) enum Named {
    /// A call.
    Operation(Box<Operation>),
    /// A call of no interest.
    Other,
    /// A call that no probe reports.
    Unknown,
}

/// Knows targets and processes by name, even after they are gone.
pub(crate) struct Attributor {
    targets: Targets,
    actors: ActorCache,
    /// Reads about callers. A process that hangs where it executes a program may block the reader, and containers may
    /// have many: processes of the node are read separately from them.
    reader: TimedReader<Looked>,
    others_reader: TimedReader<Looked>,
    trees: Arc<KubeletTrees>,
    /// By mount namespace and target: whether the namespace has kubelet's directory of the target.
    given: Bounded<(u32, u64), bool, GIVEN_MAX>,
    scope: Scope,
}

impl Attributor {
    /// Starts with the pod names and the containers of this node.
    pub(crate) fn new(
        names: PodNames,
        scope: Scope,
        roots: TargetRoots,
        containers: &[Arc<Container>],
    ) -> Self {
        let mut targets = Targets::new(names, roots);
        targets.containers_are(containers);
        let reader = || TimedReader::new("callers", || Role::Look.assume());
        Self {
            scope,
            targets,
            actors: ActorCache::default(),
            reader: reader(),
            others_reader: reader(),
            trees: Arc::default(),
            given: Bounded::default(),
        }
    }

    /// The roots of targets.
    pub(crate) fn roots(&mut self) -> &mut TargetRoots {
        self.targets.roots()
    }

    /// Takes the pod names of a log.
    pub(crate) fn learn(&mut self, pods: Vec<NamedPod>) {
        let names = pods.into_iter().map(|pod| (pod.namespace, pod.name, pod.uid));
        self.targets.names().learn(NameSource::Log, names);
    }

    /// Names everything in a record.
    pub(crate) fn operation(&mut self, record: &Record) -> Named {
        let head = &record.head;
        let path = record.path();
        let target = self.targets.learn(head.target, &path);
        // The probes do not filter by container.
        if !self.scope.includes_container(&target) {
            return Named::Other;
        }
        let actor = self.actor_on(head.tgid, &head.actor, (head.target, &target));
        let Some(call) = Call::from_code(head.call) else { return Named::Unknown };
        Named::Operation(Box::new(Operation {
            end: Monotonic(head.end_ns),
            duration: Duration::from_nanos(head.duration_ns),
            call,
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
            logged_in: None,
        }))
    }

    /// A call whose directory was unknown when the probes reported it, if it is of interest.
    pub(crate) fn late(&mut self, record: &Record) -> Option<Box<Operation>> {
        let path = record.path();
        let (target_id, target) = self.targets.of(&path)?;
        if !self.scope.includes(&target, Some(&path)) {
            return None;
        }
        let mut record = record.clone();
        record.head.target = target_id;
        record.head.reason |= record::reason::FAILED;
        match self.operation(&record) {
            Named::Operation(op) => Some(op),
            _ => None,
        }
    }

    /// A call that a log reports, if it is about the log entry's pod.
    pub(crate) fn logged(&mut self, attempt: &Attempt, end: Monotonic) -> Option<Operation> {
        let NamedCall { call, path, outcome } = attempt.call.clone()?;
        let (target_id, target) = self.targets.of(&path)?;
        let same_pod = target.pod.as_ref().is_some_and(|pod| pod.uid == attempt.said.uid);
        if !same_pod || !self.scope.includes(&target, Some(&path)) {
            return None;
        }
        let mut actor = self.actor_on(attempt.pid, &attempt.caller, (target_id, &target));
        // Only logs of proven components are read; this one has ended since.
        if actor.component == Component::Workload {
            Arc::make_mut(&mut actor).component = Component::Other;
        }
        Some(Operation {
            end,
            duration: Duration::ZERO,
            call,
            outcome,
            reason: record::reason::FAILED,
            flaws: 0,
            flags: 0,
            path,
            target_id,
            target,
            actor,
            tid: attempt.pid,
            mnt_ns: attempt.caller.mnt_ns,
            directory: (0, 0),
            mount_id: 0,
            depth: 0,
            mount_depth: 0,
            suppressed: 0,
            logged_in: Some(attempt.said.source.as_str().into()),
        })
    }

    /// UID of the pod that a target belongs to, if any.
    pub(crate) fn pod_of(&mut self, target_id: u64) -> Option<String> {
        self.targets.get(target_id).pod.as_ref().map(|pod| pod.uid.clone())
    }

    /// Whether a pod is of interest.
    pub(crate) fn is_wanted(&self, uid: &str) -> bool {
        self.scope.includes_pod(uid)
    }

    /// Notes a target before its path changes.
    pub(crate) fn renamed(&mut self, record: &Record) {
        self.targets.learn(record.head.target, &record.path());
    }

    /// A process in a call on a target, with its pod by name.
    fn actor_on(
        &mut self,
        pid: u32,
        seen: &record::Caller,
        (target_id, target): (u64, &Target),
    ) -> Arc<Actor> {
        let Who { mut actor, is_root } = self.actor(pid, seen);
        // A process in a container is a driver when it works on another pod's volume, and has the privileges.
        let component = component_for(&actor, target, || {
            is_root && self.is_given(seen.mnt_ns, (target_id, target))
        });
        if component != actor.component {
            Arc::make_mut(&mut actor).component = component;
        }
        actor
    }

    /// Whether a mount namespace has kubelet's directory in which a target lies.
    fn is_given(&mut self, namespace: u32, (target_id, target): (u64, &Target)) -> bool {
        let key = (namespace, target_id);
        if let Some(known) = self.given.get(&key) {
            return *known;
        }
        let is_given = self.trees.are_shown(namespace, target);
        self.given.insert(key, is_given);
        is_given
    }

    /// Number of targets, processes and names forgotten because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.targets.dropped() + self.actors.dropped()
    }

    /// Targets learnt since the last call, as events.
    pub(crate) fn learned(&mut self) -> Vec<What> {
        let named = |(target_id, target)| What::Named { target_id, target };
        self.targets.learned().into_iter().map(named).collect()
    }

    /// Targets forgotten since the last call.
    pub(crate) fn forgotten(&mut self) -> Vec<u64> {
        self.targets.forgotten()
    }

    /// Drained counts, with the component of each process.
    pub(crate) fn counts(&mut self, drained: &Drained) -> Vec<Count> {
        let counts = drained.counts.iter().filter_map(|(key, count)| {
            if !self.scope.includes_container(&self.targets.get(key.target)) {
                return None;
            }
            let (component, started) = match drained.actors.get(&key.process()) {
                Some(seen) => {
                    let target = self.targets.get(key.target);
                    let actor = self.actor_on(key.tgid, seen, (key.target, &target));
                    (actor.component, actor.started)
                }
                None => (Component::Other, None),
            };
            Some(Count {
                target_id: key.target,
                pid: key.tgid,
                started,
                call: Call::from_code(key.call())?,
                outcome: Outcome(key.errno()),
                component,
                bucket: key.bucket(),
                calls: count.calls,
                total_ns: count.total_ns,
                min_ns: count.min_ns,
                max_ns: count.max_ns,
            })
        });
        let mut counts: Vec<Count> = counts.collect();
        // A fixed order: a table's own order changes each time.
        counts.sort_unstable_by_key(|c| {
            (c.target_id, c.pid, c.started, c.component, c.call, c.outcome, c.bucket)
        });
        counts
    }

    /// A process, with its pod by name.
    pub(crate) fn actor(&mut self, pid: u32, seen: &record::Caller) -> Who {
        let (reader, others_reader) = (&mut self.reader, &mut self.others_reader);
        let mut who = self.actors.resolve(pid, seen, |pid| {
            if pid == 0 {
                return Looked::HasEnded;
            }
            let process = PathBuf::from(format!("/proc/{pid}"));
            let reader = if may_be_root(&process) { &mut *reader } else { &mut *others_reader };
            reader.read(pid, move || Looked::at(&process)).unwrap_or(Looked::NoAnswer)
        });
        if let Some(pod) = who.actor.pod.as_ref().filter(|pod| pod.name.is_none()).cloned() {
            Arc::make_mut(&mut who.actor).pod = Some(self.targets.named(pod));
        }
        who
    }

    /// A pod, with its name if this node knows it.
    pub(crate) fn pod(&mut self, pod: Pod) -> Pod {
        self.targets.named(pod)
    }
}
