//! What a workload does to its own pod's volumes changes nothing that is told of another pod: each incident is
//! played again with a neighbour who is at work all the time.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podstuck_common::component::path_hash;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{
    play::{Node, Play, Step},
    *,
};
use crate::{
    engine::{Engine, Output},
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        identity::{Actor, Component, Pod, Target, TargetKind, Volume},
        operation::Operation,
        path::JsonPath,
        time::Monotonic,
    },
    testing::run,
};

/// The neighbour.
const UID: &str = "99999999-aaaa-bbbb-cccc-dddddddddddd";
/// His own mount namespace.
const NAMESPACE: u32 = 77;

/// Something that he does, at some place of the incident, on his own volumes.
#[derive(Clone, Debug)]
struct Deed {
    place: Index,
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

impl Deed {
    fn any() -> impl Strategy<Value = Self> {
        let volume = select(vec![
            "kubernetes.io~empty-dir/data",
            "kubernetes.io~csi/pv",
            "kubernetes.io~nfs/x",
        ]);
        // What the victims' objects are called, too.
        let object =
            select(vec!["", "m", "mount", "mount/a/b", "log", "d", "0", "x/y", "vol_data.json"]);
        let errno = select(vec![0_u16, 1, 2, 5, 11, 13, 16, 20, 21, 22, 28, 30, 39, 107, 116, 117]);
        let what = (any::<Index>(), volume, object, select(&Call::ALL[..]), errno, 0..256_u32);
        let where_ = ((0..6_u8, 0..6_u8), 1000..1010_u64, 1000..1010_u32, 0..100_000_u64);
        (what, where_).prop_map(|(what, (depths, inode, mount_id, millis))| {
            let (place, volume, object, call, errno, reason) = what;
            let took = Duration::from_millis(millis);
            let object = object.to_owned();
            Self { place, volume, object, call, errno, reason, depths, inode, mount_id, took }
        })
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
        let actor = Actor {
            pid: 4711,
            started: None,
            comm: "kubelet".into(),
            cgroup: Some(format!("/kubepods/pod{UID}/{}", "a".repeat(64))),
            component: Component::Workload,
            pod: Some(pod.clone()),
            parent: None,
        };
        Operation {
            end,
            duration: self.took,
            call: self.call,
            outcome: Outcome(self.errno),
            reason: self.reason,
            flaws: 0,
            flags: 0,
            path: if self.object.is_empty() { root.clone() } else { root.join(&self.object) },
            target_id: path_hash(root.to_str().unwrap().as_bytes()),
            target: Arc::new(Target {
                kind: TargetKind::PodVolume,
                root,
                pod: Some(pod),
                volume: Some(volume),
                container: None,
            }),
            actor: Arc::new(actor),
            tid: 4711,
            mnt_ns: NAMESPACE,
            directory: (1, self.inode),
            mount_id: self.mount_id,
            depth: self.depths.0,
            mount_depth: self.depths.1,
            suppressed: 0,
            told_by: None,
        }
    }
}

/// A run of the engine.
struct Run {
    engine: Engine,
    /// Findings about others than the neighbour, in the order of telling.
    told: Vec<serde_json::Value>,
}

impl Run {
    fn take(&mut self, node: &Node, at: Monotonic, what: What) {
        for output in self.engine.take(&Event { at, what }) {
            match output {
                Output::Finding(finding) => {
                    let of = finding.pod.as_ref().map(|pod| pod.uid.as_str());
                    if of != Some(UID) {
                        let mut told = serde_json::to_value(finding).unwrap();
                        // His own findings are numbered, too.
                        told.as_object_mut().unwrap().remove("instance");
                        self.told.push(told);
                    }
                }
                Output::Query(query) => {
                    let answer = Box::new(node.answer(&query));
                    self.take(node, at, What::Answer { query, answer });
                }
                Output::Hung(_) | Output::Progress(_) => {}
            }
        }
    }
}

/// Plays an incident again, with what the neighbour does between its steps.
fn told(steps: &[Step], deeds: &[Deed]) -> Vec<serde_json::Value> {
    let mut play = Run { engine: Engine::new(run()), told: Vec::new() };
    for (number, Step { node, at, what }) in steps.iter().enumerate() {
        let now = deeds.iter().filter(|deed| deed.place.index(steps.len()) == number);
        for deed in now {
            play.take(node, *at, What::Operation(Box::new(deed.operation(*at))));
        }
        play.take(node, *at, what.clone());
    }
    play.told
}

fn all() -> Vec<(&'static str, Play)> {
    let all = [
        removals::busy(),
        removals::crossed_and_dead_mounts(),
        refusals::refused_and_failed(),
        removals::not_empty(),
        removals::orphan(),
        states::not_attempted(),
        states::arrived_late(),
        states::unkillable(),
        states::pinned_device(),
        states::hung_call(),
        states::disk_full(),
        states::pod_record(),
        logs::runtime_says(),
        removals::bulk_delete(),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn a_workload_changes_nothing_that_is_told_of_another_pod() {
    let config = Config {
        cases: 24,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Config::default()
    };
    for (name, play) in all() {
        let alone = told(&play.steps, &[]);
        assert!(!alone.is_empty(), "{name}");
        let tried = TestRunner::new(config.clone()).run(&vec(Deed::any(), 1..40), |deeds| {
            let beside = told(&play.steps, &deeds);
            prop_assert_eq!(&alone, &beside);
            Ok(())
        });
        tried.unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}
