//! Tests of the verdicts about EPERM.

use std::sync::Arc;

use crate::{
    causes::permission::{
        protected::{LOOKS, Protections},
        tracker::Refusals,
    },
    event::What,
    model::{
        call::Call,
        errno::Errno,
        evidence::{Certainty, Source},
        identity::{Component, Pod},
        node::{NodeSample, PodState, VolumeState},
        object::{self, Attributes},
        path::JsonPath,
        pod_group::{PodGroup, Task},
        pod_record::PodRecord,
        said::{Report, Said},
        time::Monotonic,
    },
    query::{Answer, NoAnswer, ObjectAttributes, Query},
    testing::{
        Alone, FILE, attributes, failed, pod_group, pod_record, pod_state, task, volume_state,
    },
    tracker::Steps,
    verdict::{Draft, Verdict},
};

const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

fn torn_down() -> PodState {
    let volume = VolumeState { file: Some(FILE), ..volume_state(VOLUME, Vec::new()) };
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

    /// The pod's record, with a grace period that ends at that second; `None`: the pod is not being deleted.
    fn record(&mut self, grace_ends: Option<i64>) {
        let record = PodRecord {
            pod: Pod { uid: "u".into(), namespace: None, name: None },
            deletion: grace_ends.map(second),
            node: None,
            all_terminated: false,
            ..pod_record("u")
        };
        let what = What::Record { record: Box::new(record), node: "here".into() };
        self.0.take(Monotonic(0), what);
    }

    /// A line of kubelet's log that shows the deletion.
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
fn a_protected_object_is_reported_at_the_second_sample_and_when_it_is_over() {
    let (mut played, pod) = (played(), torn_down());
    assert!(played.look(&pod, 0).queries.is_empty(), "it may be deleted in good health");
    let asked = played.look(&pod, 2).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["d/f"], 2)[..] else { panic!() };
    draft.assert_is("immutable-attribute", Certainty::Firm);
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
    assert!(played.look(&pod, 2).queries.is_empty(), "no source says that it is to be deleted");
    played.record(Some(4));
    assert!(played.look(&pod, 3).queries.is_empty(), "its grace is not over");
    let asked = played.look(&pod, 4).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["f"], 4)[..] else { panic!() };
    assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
    assert!(draft.evidence.iter().any(|fact| fact.source == Source::Record), "{draft:?}");
}

/// The pod, with a container that was asked to end, or killed.
fn with_container(killed: bool) -> NodeSample {
    let mut pod = torn_down();
    (pod.populated, pod.volume_removed) = (Some(true), None);
    let task = Task { state: 'D', killed, started: 7, group: "/g/c".into(), ..task("app", 42) };
    let group = PodGroup { target_id: 8, path: "/g".into(), tasks: vec![task], ..pod_group("u") };
    NodeSample { pods: vec![pod], cgroups: vec![group], ..NodeSample::default() }
}

#[test]
fn by_kubelets_log_alone_it_is_reported_once_the_grace_period_is_over() {
    let mut played = played();
    for second in [2, 4] {
        assert!(
            played.look_at(with_container(true), second).queries.is_empty(),
            "no source says so"
        );
    }
    played.log();
    for second in [6, 8] {
        let asked = played.look_at(with_container(false), second).queries;
        assert!(asked.is_empty(), "it may have an hour of grace");
    }
    assert!(played.look_at(with_container(true), 10).queries.is_empty(), "it may be a moment's");
    let asked = played.look_at(with_container(true), 12).queries;
    let [Verdict::Found(draft)] = &played.answer(&asked[0], &["f"], 12)[..] else { panic!() };
    assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
    let logged =
        draft.evidence.iter().find(|fact| fact.source == Source::Log("log of kubelet".into()));
    assert_eq!(logged.unwrap().since, Some(Monotonic(1_000_000_000)));
}

#[test]
fn a_record_without_a_deletion_outweighs_a_log() {
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
fn scans_without_a_result_end() {
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

const SET: Attributes = Attributes { immutable: true, append_only: false, known: true };
const UNSET: Attributes = Attributes { immutable: false, append_only: false, known: true };

fn verdict(object: Attributes, directory: Attributes) -> Draft {
    verdict_of(Ok(attributes(object, directory)))
}

fn verdict_of(seen: Result<ObjectAttributes, NoAnswer>) -> Draft {
    let mut refusals = Alone::<Refusals>::new();
    let query = refusals.ask(&failed(Call::Unlinkat, Errno::EPERM, "d/f", 1.0)).pop().unwrap();
    refusals.answer(&query, Answer::Attributes(seen)).unwrap()
}

#[test]
fn the_flag_is_removed_from_the_object_that_has_it() {
    let draft = verdict(SET, UNSET);
    assert_eq!(draft.id(), "immutable-attribute");
    let words = draft.remedies[0].words();
    let directory = "/root/k/pods/u/volumes/kubernetes.io~empty-dir/data";
    assert!(words.ends_with(&format!("chattr -i ./f' sh '/proc/42{directory}/d'")), "{words}");
    let draft = verdict(UNSET, SET);
    let words = draft.remedies[0].words();
    assert!(words.ends_with(&format!("chattr -i ./d' sh '/proc/42{directory}'")), "{words}");
    let append = Attributes { append_only: true, ..UNSET };
    assert_eq!(verdict(append, UNSET).id(), "append-only-attribute");
}

/// containerd pull request 11431: the attribute is the snapshotter's own.
#[test]
fn the_flag_of_an_image_layer_is_left_to_containerd() {
    let seen = |path: &str| {
        let mut refused = failed(Call::Unlinkat, Errno::EPERM, "x", 1.0);
        refused.path = path.into();
        let mut refusals = Alone::<Refusals>::new();
        let query = refusals.ask(&refused).pop().unwrap();
        refusals.answer(&query, Answer::Attributes(Ok(attributes(SET, UNSET)))).unwrap()
    };
    let of = "/var/lib/containerd/io.containerd.snapshotter.v1.erofs/snapshots/4";
    let draft = seen(&format!("{of}/layer.erofs"));
    assert_eq!(draft.id(), "immutable-attribute");
    assert!(draft.remedies.iter().all(|it| !it.words().contains("chattr")), "{:?}", draft.remedies);
    let other = seen(&format!("{of}/fs/etc/passwd"));
    assert!(other.remedies[0].words().contains("chattr -i"));
}

#[test]
fn without_a_flag_nothing_is_claimed_and_the_flags_are_ruled_out() {
    let draft = verdict(UNSET, UNSET);
    assert_eq!((draft.id(), draft.ruled_out.len()), ("permission-unexplained", 2));
    assert_eq!(draft.certainty(), Certainty::Possible, "{:?}", draft.not_known());
    let mute = Attributes { known: false, ..UNSET };
    assert!(verdict(mute, mute).ruled_out.is_empty(), "a file system that does not say");
}

#[test]
fn an_active_swap_file_is_reported() {
    let draft = verdict_of(Ok(ObjectAttributes { swap: true, ..attributes(UNSET, UNSET) }));
    assert_eq!(draft.id(), "swapfile-active");
    assert!(draft.remedies[0].words().contains("swapoff"));
}

#[test]
fn an_object_that_was_not_read_explains_nothing() {
    const NONE: &str = "no attribute explains it";
    let plain = Ok(attributes(UNSET, UNSET));
    assert!(verdict_of(plain.clone()).explanation.contains(NONE));
    let mute = Attributes { known: false, ..UNSET };
    let mut looks = vec![
        Err(NoAnswer::Deadline(std::time::Duration::from_secs(2))),
        Err(NoAnswer::NotEntered("its server does not answer".into())),
        Err(NoAnswer::Refused("opening it: No such file or directory".into())),
    ];
    for (object, directory) in [(mute, mute), (UNSET, mute)] {
        looks.push(plain.clone().map(|seen| ObjectAttributes { object, directory, ..seen }));
    }
    for look in looks {
        let draft = verdict_of(look.clone());
        assert_eq!(draft.id(), "permission-unexplained");
        assert!(!draft.explanation.contains(NONE), "{look:?}: {}", draft.explanation);
        assert!(draft.explanation.contains("append-only attribute"), "{look:?}");
        assert!(draft.ruled_out.is_empty(), "{look:?}: {:?}", draft.ruled_out);
        if let Err(why) = look {
            assert!(draft.evidence.iter().any(|e| e.fact.contains(&why.to_string())), "{draft:?}");
        }
    }
    let no_table = plain.clone().map(|seen| ObjectAttributes { swap_unknown: true, ..seen });
    assert!(verdict_of(no_table.clone()).explanation.contains("swap file, which could not be"));
    let set = no_table.map(|seen| ObjectAttributes { object: SET, ..seen });
    assert_eq!(verdict_of(set).certainty(), Certainty::Likely, "it may be a swap file as well");
}

#[test]
fn of_thousands_of_refusals_one_is_examined_and_reported() {
    let seen = attributes(SET, UNSET);
    let mut refusals = Alone::<Refusals>::new();
    let fail = |refusals: &mut Alone<Refusals>, number: u32, second: f64| {
        let at = second + f64::from(number) / 10_000.0;
        refusals.ask(&failed(Call::Unlinkat, Errno::EPERM, &format!("f{number}"), at))
    };
    let mut asked: Vec<Query> = (0..100).flat_map(|n| fail(&mut refusals, n, 1.0)).collect();
    assert_eq!(asked.len(), 1);
    let query = asked.remove(0);
    assert!(query.path.ends_with("f0"), "{query:?}");
    let draft = refusals.answer(&query, Answer::Attributes(Ok(seen))).unwrap();
    assert_eq!((draft.id(), draft.count), ("immutable-attribute", 100));
    // The rest of the attempt changes nothing; the next attempt sends a query again.
    assert_eq!((100..200).flat_map(|n| fail(&mut refusals, n, 1.0)).count(), 0);
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 2.0)).count(), 1);
    // An answer that does not come is waited for only so long.
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 6.0)).count(), 0);
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 7.5)).count(), 1);
}

#[test]
fn a_hung_file_system_is_said_to_be_one() {
    let draft = verdict_of(Err(NoAnswer::Deadline(std::time::Duration::from_secs(2))));
    assert!(draft.evidence.iter().any(|e| e.fact.contains("may be hung")));
}
