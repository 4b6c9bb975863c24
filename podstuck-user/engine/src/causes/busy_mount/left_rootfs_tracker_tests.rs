//! Left root file systems against verdicts.

use std::sync::Arc;

use super::*;
use crate::{
    model::{
        evidence::Certainty,
        holder::{How, Through},
        identity::{Component, Target, TargetKind},
        mounts::Device,
    },
    query::Answer,
    testing::{Alone, found, holder, snapshot},
    verdict::Draft,
};

const POINT: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/aa/rootfs";

fn left() -> LeftRootfs {
    let mount = Mounted {
        point: POINT.into(),
        id: 9,
        what: "overlay of type overlay, device 0:59".into(),
        is_fuse: false,
        device: Device::default(),
        root: "/".into(),
        shared: false,
        namespace: 4,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
    };
    let target = Target { kind: TargetKind::ContainerBundle, ..Target::unknown() };
    LeftRootfs {
        target_id: 8,
        target: target.into(),
        container: "aa".into(),
        pod: "u".into(),
        mount,
    }
}

fn look(tracker: &mut Alone<RootFileSystems>, second: u64, rootfs: Vec<LeftRootfs>) -> Steps {
    let at = Monotonic(second * 1_000_000_000);
    let sample = NodeSample { at, rootfs, ..NodeSample::default() };
    tracker.take(at, What::Sample(Arc::new(sample)))
}

/// After two looks, and an answer.
fn verdict(taken: Snapshot) -> (Alone<RootFileSystems>, Option<Draft>) {
    let mut alone = Alone::<RootFileSystems>::new();
    assert!(look(&mut alone, 1, vec![left()]).queries.is_empty(), "a shim needs moments");
    let query = look(&mut alone, 3, vec![left()]).queries.pop().unwrap();
    let draft = alone.answer(&query, Answer::Holders(Ok(taken)));
    (alone, draft)
}

#[test]
fn who_holds_it_is_told_without_any_call() {
    let (mut alone, draft) = verdict(snapshot(vec![holder(How::Cwd, Through::Itself, Some(true))]));
    let draft = draft.unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("shim-rootfs-busy", Certainty::Firm));
    assert!(draft.remedies[0].words().ends_with(" && kill 77"));
    assert!(draft.call.is_none());
    let over = look(&mut alone, 5, Vec::new()).verdicts;
    assert!(matches!(over[..], [Verdict::Over { target_id: 8, .. }]), "{over:?}");
}

#[test]
fn a_mount_inside_is_to_be_unmounted() {
    let mut inside = holder(How::NestedMount, Through::Itself, Some(true));
    inside.object = JsonPath(format!("{POINT}/tmp").into());
    let (_, draft) = verdict(snapshot(vec![inside]));
    let draft = draft.unwrap();
    assert!(
        draft.remedies[0].words().ends_with(&format!("'12 {POINT}/tmp' && umount {POINT}/tmp"))
    );
}

#[test]
fn nothing_is_wrong_with_a_mount_that_nobody_holds() {
    assert!(verdict(snapshot(Vec::new())).1.is_none());
    let private = holder(How::Mount, Through::OtherMount, Some(false));
    assert!(verdict(snapshot(vec![private])).1.is_none());
    let mut kubelet = holder(How::Fd, Through::Itself, Some(true));
    kubelet.component = Some(Component::Kubelet);
    assert!(verdict(snapshot(vec![kubelet])).1.is_none());
}

#[test]
fn one_that_is_unmounted_in_time_is_never_asked_about() {
    let mut alone = Alone::<RootFileSystems>::new();
    look(&mut alone, 1, vec![left()]);
    assert!(look(&mut alone, 3, Vec::new()).verdicts.is_empty());
    assert!(look(&mut alone, 5, vec![left()]).queries.is_empty(), "another container's");
    assert!(found(look(&mut alone, 7, Vec::new()).verdicts).is_empty());
}

#[test]
fn what_the_runtime_says_of_it_is_a_fact_of_its_own() {
    let said = |text: &str| {
        let text = format!("failed to cleanup rootfs mount: {text}");
        let (source, at) = ("log of containerd (pid 9), /c.log", jiff::Timestamp::UNIX_EPOCH);
        let said = Said::new(Component::Containerd, source, "u", at, &text);
        What::Said(Box::new(Said { complaint: Some(Complaint::RootfsBusy), ..said }))
    };
    for (text, is_told) in [(POINT, true), ("of another container", false)] {
        let mut alone = Alone::<RootFileSystems>::new();
        alone.take(Monotonic(0), said(text));
        look(&mut alone, 1, vec![left()]);
        let query = look(&mut alone, 3, vec![left()]).queries.pop().unwrap();
        let taken = snapshot(vec![holder(How::Cwd, Through::Itself, Some(true))]);
        let draft = alone.answer(&query, Answer::Holders(Ok(taken))).unwrap();
        let told = draft.evidence.iter().any(|fact| fact.fact.starts_with("containerd says"));
        assert_eq!(told, is_told, "{text}");
    }
}
