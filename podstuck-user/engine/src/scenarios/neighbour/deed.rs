//! What a neighbour may do, and the events that show it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_common::component::path_hash;
use proptest::{
    prelude::*,
    sample::{Index, select},
};

use super::super::play::{Step, stuck};
use crate::{
    event::{Count, What},
    model::{
        call::{Call, Outcome},
        identity::{Actor, Component, Pod, Target, TargetKind, Volume},
        operation::Operation,
        path::JsonPath,
        stuck::StuckThread,
        time::Monotonic,
    },
    testing,
};

/// The neighbour.
pub(super) const UID: &str = "99999999-aaaa-bbbb-cccc-dddddddddddd";
/// Its own mount namespace.
const NAMESPACE: u32 = 77;

/// An action of the neighbour, at a place in the incident.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    pub(super) place: Index,
    /// One of the victim's targets and objects; `None` for its own volume.
    victims: Option<Index>,
    /// Its pod is unknown: the process has ended, or is in a container without a pod.
    has_no_pod: bool,
    volume: &'static str,
    object: String,
    call: Call,
    errno: u16,
    reason: u32,
    depths: (u8, u8),
    inode: u64,
    mount_id: u32,
    took: Duration,
}

/// An object of the victim: target id, target and path.
pub(super) type Victim = (u64, Arc<Target>, PathBuf);

/// The objects of an incident's events.
pub(super) fn victims(steps: &[Step]) -> Vec<Victim> {
    let mut all: Vec<Victim> = Vec::new();
    for Step { what, .. } in steps {
        match what {
            What::Operation(op) | What::Logged(op) => {
                all.push((op.target_id, op.target.clone(), op.path.clone()));
            }
            What::Stuck(seen) => {
                let path = seen.path.clone().unwrap_or_default();
                all.push((seen.target_id, seen.target.clone(), path));
            }
            What::Sample(sample) => {
                let volumes = sample.pods.iter().flat_map(|pod| &pod.volumes);
                all.extend(volumes.flat_map(|volume| {
                    let points = volume.mounts.iter().map(|mount| mount.point.clone());
                    let paths = points.chain([volume.path.clone()]);
                    paths.map(|path| (volume.target_id, volume.target.clone(), path))
                }));
                let groups = sample.cgroups.iter();
                all.extend(groups.map(|group| {
                    (group.target_id, group.target.clone(), group.target.root.clone())
                }));
            }
            _ => {}
        }
    }
    all.dedup();
    all
}

impl Deed {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let volume = select(vec![
            "kubernetes.io~empty-dir/data",
            "kubernetes.io~csi/pv",
            "kubernetes.io~nfs/x",
        ]);
        // Names of the victims' objects are among them.
        let object =
            select(vec!["", "m", "mount", "mount/a/b", "log", "d", "0", "x/y", "vol_data.json"]);
        let errno = select(vec![0_u16, 1, 2, 5, 11, 13, 16, 20, 21, 22, 28, 30, 39, 107, 116, 117]);
        let what = (any::<Index>(), volume, object, select(&Call::ALL[..]), errno, 0..256_u32);
        let where_ = ((0..6_u8, 0..6_u8), 1000..1010_u64, 1000..1010_u32, 0..100_000_u64);
        let whose = (any::<Option<Index>>(), any::<bool>());
        (what, where_, whose).prop_map(|(what, (depths, inode, mount_id, millis), whose)| {
            let (place, volume, object, call, errno, reason) = what;
            let (victims, has_no_pod) = whose;
            let took = Duration::from_millis(millis);
            let object = object.to_owned();
            Self {
                place,
                victims,
                has_no_pod,
                volume,
                object,
                call,
                errno,
                reason,
                depths,
                inode,
                mount_id,
                took,
            }
        })
    }

    /// The call as an operation, and as a hung call.
    pub(super) fn seen(&self, at: Monotonic, victims: &[Victim]) -> (Operation, StuckThread) {
        let mut op = self.operation(at);
        if let Some(index) = self.victims.filter(|_| !victims.is_empty()) {
            (op.target_id, op.target, op.path) = index.get(victims).clone();
        }
        if self.has_no_pod {
            Arc::make_mut(&mut op.actor).pod = None;
        }
        let mut seen = stuck(op.tid, self.volume, &["request_wait_answer", "fuse_rmdir"], 0.0);
        (seen.target_id, seen.target) = (op.target_id, op.target.clone());
        (seen.path, seen.actor, seen.at) = (Some(op.path.clone()), op.actor.clone(), at);
        (op, seen)
    }

    /// The same call as a count of many.
    pub(super) fn counted(&self, op: &Operation) -> Count {
        let Operation { target_id, call, outcome, .. } = *op;
        let Actor { pid, component, started, .. } = *op.actor;
        Count { target_id, pid, started, component, ..testing::count(call, outcome, 20_000) }
    }

    fn operation(&self, end: Monotonic) -> Operation {
        let root = PathBuf::from(format!("/k/pods/{UID}/volumes/{}", self.volume));
        let (plugin, name) = self.volume.split_once('/').unwrap();
        let pod = Pod { uid: UID.into(), namespace: None, name: None };
        let volume = Volume {
            name: name.into(),
            plugin: plugin.replace('~', "/"),
            path: JsonPath(root.clone()),
        };
        let target = Target {
            kind: TargetKind::PodVolume,
            root: root.clone(),
            pod: Some(pod.clone()),
            volume: Some(volume),
            ..Target::unknown()
        };
        let actor = Actor {
            pid: 4711,
            comm: "kubelet".into(),
            cgroup: Some(format!("/kubepods/pod{UID}/{}", "a".repeat(64))),
            pod: Some(pod),
            ..testing::actor(Component::Workload)
        };
        Operation {
            end,
            duration: self.took,
            reason: self.reason,
            target_id: path_hash(root.to_str().unwrap().as_bytes()),
            path: if self.object.is_empty() { root } else { root.join(&self.object) },
            target: Arc::new(target),
            actor: Arc::new(actor),
            tid: 4711,
            mnt_ns: NAMESPACE,
            directory: (1, self.inode),
            mount_id: self.mount_id,
            depth: self.depths.0,
            mount_depth: self.depths.1,
            ..testing::operation(self.call, Outcome(self.errno))
        }
    }
}
