//! A workload does not change the findings about another pod: each incident is played again with a neighbour that
//! makes calls all the time, on its own volumes and on the victim's.

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
    /// Findings about other pods than the neighbour, in the order of output.
    findings: Vec<serde_json::Value>,
}

impl Run {
    fn take(&mut self, node: &Node, at: Monotonic, what: What) {
        for output in self.engine.take(&Event { at, what }) {
            match output {
                Output::Finding(finding) => {
                    let of = finding.pod.as_ref().map(|pod| pod.uid.as_str());
                    if of != Some(UID) {
                        let mut value = serde_json::to_value(finding).unwrap();
                        // The instance numbers count the neighbour's own findings, too.
                        value.as_object_mut().unwrap().remove("instance");
                        self.findings.push(value);
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

/// Plays an incident again, with the neighbour's deeds between its steps.
fn findings_of(steps: &[Step], deeds: &[Deed]) -> Vec<serde_json::Value> {
    let mut play = Run { engine: engine(steps), findings: Vec::new() };
    let victims = victims(steps);
    for (number, Step { node, at, what }) in steps.iter().enumerate() {
        let mut what = what.clone();
        for deed in deeds.iter().filter(|deed| deed.place.index(steps.len()) == number) {
            let (op, stuck) = deed.seen(*at, &victims);
            // Its counts come with all others.
            if let What::Counts(counts) = &mut what {
                counts.push(deed.counted(&op));
            }
            play.take(node, *at, What::Stuck(Box::new(stuck)));
            play.take(node, *at, What::Operation(Box::new(op)));
        }
        play.take(node, *at, what);
    }
    play.findings
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
        logs::volume_command(),
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
fn a_workload_changes_no_finding_about_another_pod() {
    let config = Config {
        cases: 24,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Config::default()
    };
    for (name, play) in all() {
        let alone = findings_of(&play.steps, &[]);
        assert!(!alone.is_empty(), "{name}");
        let tried = TestRunner::new(config.clone()).run(&vec(Deed::any(), 1..40), |deeds| {
            let beside = findings_of(&play.steps, &deeds);
            prop_assert_eq!(&alone, &beside);
            Ok(())
        });
        tried.unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}
