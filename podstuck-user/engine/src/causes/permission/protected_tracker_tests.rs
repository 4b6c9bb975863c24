use std::sync::Arc;

use super::*;
use crate::{
    model::{
        evidence::{Certainty, Source},
        identity::{Component, Pod},
        object::Attributes,
        path::JsonPath,
        pod_group::{PodGroup, Task},
        pod_record::PodRecord,
        said::{Report, Said},
    },
    testing::{Alone, FILE, pod_state},
};

const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

fn torn_down() -> PodState {
    let path = VOLUME.into();
    let volume = VolumeState {
        file: Some(FILE),
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
        devices: Vec::new(),
        ..pod_state("u")
    }
}

struct Played(Alone<Protections>);

impl Played {
    fn look(&mut self, pod: &PodState, second: u64) -> Steps {
        self.look_at(NodeSample { pods: vec![pod.clone()], ..NodeSample::default() }, second)
    }

    fn look_at(&mut self, sample: NodeSample, second: u64) -> Steps {
        let at = Monotonic(second * 1_000_000_000);
        self.0.take(at, What::Sample(Arc::new(NodeSample { at, ..sample })))
    }

    /// A record of the pod, whose grace ends at that second; without one nobody deletes it.
    fn record(&mut self, grace_ends: Option<i64>) {
        let record = PodRecord {
            pod: Pod { uid: "u".into(), namespace: None, name: None },
            deletion: grace_ends.map(second),
            grace_s: 30,
            finalizers: Vec::new(),
            node: None,
            is_mirror: false,
            all_terminated: false,
            read: None,
            claims: Vec::new(),
            bidirectional: None,
        };
        let what = What::Record { record: Box::new(record), node: "here".into() };
        self.0.take(Monotonic(0), what);
    }

    /// kubelet's log says that the pod is to go.
    fn log(&mut self) {
        let said = Said::new(Component::Kubelet, "log of kubelet", "u", second(1), "");
        let said = Said { report: Some(Report::ToGo), ..said };
        self.0.take(Monotonic(2_000_000_000), What::Said(Box::new(said)));
    }

    fn answer(&mut self, query: &Query, names: &[&str], second: u64) -> Vec<Verdict> {
        let attributes = Attributes { immutable: true, append_only: false, known: true };
        let objects =
            names.iter().map(|name| (JsonPath(format!("{VOLUME}/{name}").into()), attributes));
        let found = object::Protected {
            objects: objects.collect(),
            files: vec![FILE; 2],
            looked: 9,
            complete: true,
        };
        let answer = Box::new(Answer::Protected(Ok(found)));
        let at = Monotonic(second * 1_000_000_000);
        self.0.take(at, What::Answer { query: query.clone().into(), answer }).verdicts
    }
}

fn second(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).unwrap()
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
    let words = draft.remedies[0].words();
    assert!(words.contains("chattr -i ./f' sh '/") && words.ends_with("/data/d'"), "{words}");
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
    played.record(Some(4));
    assert!(played.look(&pod, 3).queries.is_empty(), "its grace is not over");
    let asked = played.look(&pod, 4).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["f"], 4)[..] else { panic!() };
    assert_eq!(draft.certainty(), Certainty::Likely);
    assert!(draft.evidence.iter().any(|fact| fact.source == Source::Record), "{draft:?}");
}

/// The pod, with a container that has been told to end, or killed.
fn with_container(killed: bool) -> NodeSample {
    let mut pod = torn_down();
    (pod.populated, pod.volume_removed) = (Some(true), None);
    let task = Task {
        pid: 42,
        tid: 42,
        comm: "app".into(),
        state: 'D',
        killed,
        exiting: false,
        started: 7,
        woken: None,
        moved: None,
        received: None,
        wait_channel: None,
        stack: Vec::new(),
        directory: None,
        group: "/g/c".into(),
    };
    let group = PodGroup {
        target_id: 8,
        target: crate::model::identity::Target::unknown().into(),
        uid: "u".into(),
        path: "/g".into(),
        has_containers: true,
        frozen: None,
        tasks: vec![task],
        shims: Vec::new(),
    };
    NodeSample { pods: vec![pod], cgroups: vec![group], ..NodeSample::default() }
}

#[test]
fn by_kubelets_log_alone_it_is_told_once_the_grace_is_seen_to_be_over() {
    let mut played = played();
    for second in [2, 4] {
        assert!(played.look_at(with_container(true), second).queries.is_empty(), "nobody says it");
    }
    played.log();
    for second in [6, 8] {
        let asked = played.look_at(with_container(false), second).queries;
        assert!(asked.is_empty(), "it may have an hour of grace");
    }
    assert!(played.look_at(with_container(true), 10).queries.is_empty(), "it may be a moment's");
    let asked = played.look_at(with_container(true), 12).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["f"], 12)[..] else { panic!() };
    assert_eq!(draft.certainty(), Certainty::Likely);
    let told =
        draft.evidence.iter().find(|fact| fact.source == Source::Log("log of kubelet".into()));
    assert_eq!(told.unwrap().since, Some(Monotonic(1_000_000_000)));
}

#[test]
fn a_record_that_nobody_deleted_counts_for_more_than_a_log() {
    let mut played = played();
    played.log();
    played.record(None);
    for second in [2, 4, 6] {
        assert!(played.look_at(with_container(true), second).queries.is_empty());
    }
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
