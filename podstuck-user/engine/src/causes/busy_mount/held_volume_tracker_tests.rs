use std::{path::Path, sync::Arc};

use super::*;
use crate::{
    model::{
        evidence::Certainty,
        holder::{How, Through},
        identity::{Component, Pod, Target, Volume},
        path::JsonPath,
        pod_group::{PodGroup, Task},
        said::{Report, Said},
    },
    query::Answer,
    testing::{Alone, FILE, VOLUME, found, holder, mounted, pod_state, snapshot},
    verdict::Draft,
};

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

/// A pod that kubelet was told to end, one of whose processes was killed and stays.
fn sample(second: u64) -> NodeSample {
    let volume = VolumeState {
        target_id: 7,
        target: Target::unknown().into(),
        path: VOLUME.into(),
        file: Some(FILE),
        csi: None,
        mounts: vec![mounted(Path::new(VOLUME), 9)],
    };
    let task = Task {
        pid: 42,
        tid: 42,
        comm: "app".into(),
        state: 'S',
        killed: true,
        exiting: false,
        started: 7,
        woken: None,
        moved: None,
        received: None,
        wait_channel: None,
        stack: Vec::new(),
        directory: None,
        group: "/g".into(),
    };
    let group = PodGroup {
        target_id: 8,
        target: Target::unknown().into(),
        uid: "u".into(),
        path: "/g".into(),
        has_containers: true,
        frozen: None,
        tasks: vec![task],
        shims: Vec::new(),
    };
    let pod = PodState { populated: Some(true), volumes: vec![volume], ..pod_state("u") };
    NodeSample { at: at(second), pods: vec![pod], cgroups: vec![group], ..NodeSample::default() }
}

fn told_to_go() -> Alone<HeldVolumes> {
    let mut alone = Alone::<HeldVolumes>::new();
    let said =
        Said::new(Component::Kubelet, "log of kubelet", "u", jiff::Timestamp::UNIX_EPOCH, "");
    let what = What::Said(Box::new(Said { report: Some(Report::ToGo), ..said }));
    alone.take(at(0), what);
    alone
}

fn look(alone: &mut Alone<HeldVolumes>, second: u64) -> Steps {
    alone.take(at(second), What::Sample(Arc::new(sample(second))))
}

/// A look, and who is found at it.
fn seen(alone: &mut Alone<HeldVolumes>, second: u64, holders: Vec<Holder>) -> Option<Draft> {
    let query = look(alone, second).queries.pop()?;
    let taken = Snapshot { at: at(second), ..snapshot(holders) };
    alone.answer_at(at(second), &query, Answer::Holders(Ok(taken)))
}

fn backup() -> Holder {
    holder(How::Cwd, Through::Itself, Some(true))
}

#[test]
fn who_uses_a_volume_is_named_before_kubelet_comes_to_it_and_not_first() {
    let mut alone = told_to_go();
    assert!(seen(&mut alone, 1, vec![backup()]).is_none(), "it may be a moment's");
    let draft = seen(&mut alone, 3, vec![backup()]).unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("volume-held-by-host-process", Certainty::Firm));
    assert!(draft.is_later, "the pod's containers hold it first");
    assert!(draft.remedies[0].words().ends_with(" && kill 77"), "{:?}", draft.remedies);
    let query = look(&mut alone, 20).queries.pop().unwrap();
    let taken = Snapshot { at: at(20), ..snapshot(Vec::new()) };
    let answer = What::Answer { query: Box::new(query), answer: Answer::Holders(Ok(taken)).into() };
    assert!(matches!(alone.take(at(20), answer).verdicts[..], [Verdict::Over { .. }]));
}

#[test]
fn the_pods_own_processes_and_others_each_time_are_nobody() {
    let mut own = backup();
    own.pod = Some(Pod { uid: "u".into(), namespace: None, name: None });
    let mut alone = told_to_go();
    assert!(seen(&mut alone, 1, vec![own.clone()]).is_none());
    let mut alone = told_to_go();
    for second in [1, 3, 5] {
        let mut other = backup();
        other.pid = Some(second);
        assert!(seen(&mut alone, u64::from(second), vec![other]).is_none(), "it reads each file");
    }
}

#[test]
fn a_pod_that_is_not_to_go_is_not_looked_at() {
    assert!(look(&mut Alone::new(), 1).queries.is_empty());
    let mut alone = Alone::<HeldVolumes>::new();
    assert!(found(look(&mut alone, 3).verdicts).is_empty());
}

#[test]
fn what_kubelet_does_not_unmount_may_be_used() {
    let deeper = |plugin: &str| {
        let mut sample = sample(1);
        let volume = &mut sample.pods[0].volumes[0];
        let (name, path) = ("data".into(), JsonPath(VOLUME.into()));
        let of = Some(Volume { name, plugin: plugin.into(), path });
        volume.target = Target { volume: of, ..Target::unknown() }.into();
        volume.mounts = vec![mounted(&Path::new(VOLUME).join("m"), 9)];
        told_to_go().take(at(1), What::Sample(Arc::new(sample))).queries.len()
    };
    assert_eq!(deeper("kubernetes.io/empty-dir"), 0, "kubelet fails at the mount, held or not");
    assert_eq!(deeper("kubernetes.io/csi"), 1, "the driver unmounts it");
}
