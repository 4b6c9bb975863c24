use std::sync::Arc;

use super::*;
use crate::{
    model::{evidence::Certainty, object::Attributes, path::JsonPath},
    testing::{Alone, pod_state},
};

const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

fn torn_down() -> PodState {
    let path = VOLUME.into();
    let volume = VolumeState {
        target_id: 1,
        target: crate::model::identity::Target::unknown().into(),
        path,
        csi: None,
        mounts: Vec::new(),
    };
    PodState {
        started: true,
        populated: Some(false),
        volume_removed: Some(jiff::Timestamp::UNIX_EPOCH),
        seen_by: Some((7, 1)),
        volumes: vec![volume],
        ..pod_state("u")
    }
}

struct Played(Alone<Protections>);

impl Played {
    fn look(&mut self, pod: &PodState, second: u64) -> Steps {
        let at = Monotonic(second * 1_000_000_000);
        let sample = NodeSample { at, pods: vec![pod.clone()], ..NodeSample::default() };
        self.0.take(at, What::Sample(Arc::new(sample)))
    }

    fn answer(&mut self, query: &Query, names: &[&str], second: u64) -> Vec<Verdict> {
        let attributes = Attributes { immutable: true, append_only: false, known: true };
        let objects =
            names.iter().map(|name| (JsonPath(format!("{VOLUME}/{name}").into()), attributes));
        let found = object::Protected { objects: objects.collect(), looked: 9, complete: true };
        let answer = Box::new(Answer::Protected(Ok(found)));
        let at = Monotonic(second * 1_000_000_000);
        self.0.take(at, What::Answer { query: query.clone().into(), answer }).verdicts
    }
}

fn played() -> Played {
    Played(Alone::new())
}

#[test]
fn what_is_protected_is_told_at_the_second_look_and_when_it_is_over() {
    let (mut played, pod) = (played(), torn_down());
    assert!(played.look(&pod, 0).queries.is_empty(), "it may be deleted in good health");
    let asked = played.look(&pod, 2).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["d/f"], 2)[..] else { panic!() };
    assert_eq!((draft.id(), draft.certainty()), ("immutable-attribute", Certainty::Firm));
    assert!(draft.remedies[0].words().ends_with("data/d/f"));
    assert!(played.look(&pod, 4).queries.is_empty(), "not at each look");
    let asked = played.look(&pod, 8).queries;
    assert!(matches!(played.answer(&asked[0], &[], 8)[..], [Verdict::Over { .. }]));
}

#[test]
fn a_volume_that_is_gone_is_over() {
    let (mut played, mut pod) = (played(), torn_down());
    played.look(&pod, 0);
    let asked = played.look(&pod, 2).queries;
    played.answer(&asked[0], &["f"], 2);
    pod.volumes.clear();
    assert!(matches!(played.look(&pod, 4).verdicts[..], [Verdict::Over { .. }]));
}

#[test]
fn while_containers_are_left_it_only_may_come() {
    let (mut played, mut pod) = (played(), torn_down());
    pod.populated = Some(true);
    assert!(played.look(&pod, 2).queries.is_empty(), "nobody says that it is to go");
    played.0.tracker.deleted.insert("u".into());
    let asked = played.look(&pod, 4).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["f"], 4)[..] else { panic!() };
    assert_eq!(draft.certainty(), Certainty::Likely);
}

#[test]
fn a_pod_that_only_has_ended_is_left_alone() {
    let mut pod = torn_down();
    pod.volume_removed = None;
    let mut ended = played();
    assert!((0..9).all(|second| ended.look(&pod, second).queries.is_empty()));
    let mut mounted = torn_down();
    mounted.volumes[0].path = "/k/pods/u/volumes/kubernetes.io~csi/pv".into();
    let mut of_a_driver = played();
    assert!((0..9).all(|second| of_a_driver.look(&mounted, second).queries.is_empty()));
}

#[test]
fn looks_in_vain_come_to_an_end() {
    let (mut played, pod) = (played(), torn_down());
    let mut looks = 0;
    for second in (2..600).step_by(2) {
        for query in played.look(&pod, second).queries {
            looks += 1;
            assert!(played.answer(&query, &[], second).is_empty());
        }
    }
    assert_eq!(looks, LOOKS);
}
