//! What a workload does changes nothing that is told of another pod: each incident is played again with a
//! neighbour who is at work all the time, on his own volumes and on the victim's.

mod deed;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{
    play::{Node, Play, Step, engine},
    *,
};
use crate::{
    engine::{Engine, Output},
    event::{Event, What},
    model::time::Monotonic,
};
use deed::{Deed, UID, victims};

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
                Output::Hung(_) | Output::Progress(_) | Output::Gone(_) => {}
            }
        }
    }
}

/// Plays an incident again, with what the neighbour does between its steps.
fn told(steps: &[Step], deeds: &[Deed]) -> Vec<serde_json::Value> {
    let mut play = Run { engine: engine(steps), told: Vec::new() };
    let victims = victims(steps);
    for (number, Step { node, at, what }) in steps.iter().enumerate() {
        let mut what = what.clone();
        for deed in deeds.iter().filter(|deed| deed.place.index(steps.len()) == number) {
            let (op, stuck) = deed.seen(*at, &victims);
            // They come with those of all others.
            if let What::Counts(counts) = &mut what {
                counts.push(deed.counted(&op));
            }
            play.take(node, *at, What::Stuck(Box::new(stuck)));
            play.take(node, *at, What::Operation(Box::new(op)));
        }
        play.take(node, *at, what);
    }
    play.told
}

pub(super) fn all() -> Vec<(&'static str, Play)> {
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
        states::kubelet_state(),
        logs::runtime_says(),
        logs::told_to_go(),
        sandbox::sandbox_busy(),
        sandbox::image_volume_busy(),
        sandbox::device_busy(),
        mounts::linked_root(),
        mounts::mount_storm(),
        logs::devices(),
        runtimes::runtime_state(),
        runtimes::docker(),
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
