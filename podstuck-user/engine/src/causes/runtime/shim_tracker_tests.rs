//! Looks at a node with a shim that cannot run, against verdicts.

use super::*;
use crate::{
    model::{
        container::ContainerState,
        evidence::Certainty,
        identity::{Component, Pod},
        runtime::HaltedShim,
    },
    testing::{Alone, found},
    verdict::Draft,
};

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn shim(state: char) -> Shim {
    Shim {
        pid: 41,
        comm: "containerd-shim-runc-v2".into(),
        state,
        started: 5,
        group: None,
        wait_channel: (state == 'D').then(|| "jbd2_log_wait_commit".into()),
        of: None,
    }
}

fn name(pod: Option<Pod>) -> ContainerName {
    ContainerName { id: "a1".repeat(32), name: Some("web".into()), pod }
}

fn asked(state: char, pod: Option<Pod>) -> NodeSample {
    let container = ContainerState {
        container: name(pod),
        runtime: Component::Dockerd,
        init: Some(42),
        shim: Some(shim(state)),
        recorded: true,
        to_go: false,
        seen_by: None,
        mounts: Vec::new(),
        parts: Vec::new(),
    };
    NodeSample { containers: vec![container], ..NodeSample::default() }
}

fn of_node(state: char, to_go: bool, pod: Option<Pod>) -> NodeSample {
    let shims = vec![HaltedShim { container: name(pod), to_go, shim: shim(state) }];
    NodeSample { shims, ..NodeSample::default() }
}

fn pod() -> Option<Pod> {
    let uid = "0f0e0d0c-1111-2222-3333-444455556666".into();
    Some(Pod { uid, namespace: None, name: None })
}

fn told(alone: &mut Alone<ShimStates>, seconds: &[u64], node: &NodeSample) -> Vec<Verdict> {
    let mut last = Vec::new();
    for second in seconds {
        let sample = NodeSample { at: at(*second), ..node.clone() };
        last = alone.take(sample.at, What::Sample(sample.into())).verdicts;
    }
    last
}

fn drafts(seconds: &[u64], node: &NodeSample) -> Vec<Draft> {
    found(told(&mut Alone::<ShimStates>::new(), seconds, node))
}

#[test]
fn one_that_is_stopped() {
    let mut alone = Alone::<ShimStates>::new();
    assert!(told(&mut alone, &[10, 12], &asked('T', None)).is_empty(), "as by a debugger");
    let [draft] = found(told(&mut alone, &[16], &asked('T', None))).try_into().unwrap();
    assert_eq!((draft.id(), draft.certainty()), ("shim-hung", Certainty::Firm));
    assert_eq!((draft.blocks_deletion, draft.first), (Some(true), at(10)));
    assert!(draft.remedies[0].command.as_deref().unwrap().contains("kill -CONT 41"), "{draft:?}");
    let over = told(&mut alone, &[18], &asked('S', None));
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::ShimState, .. }]));
    assert!(told(&mut alone, &[20], &asked('T', None)).is_empty(), "from the beginning");
}

#[test]
fn one_that_waits_in_the_kernel_is_looked_at_for_longer() {
    assert!(drafts(&[10, 20, 28], &asked('D', None)).is_empty());
    let [draft] = drafts(&[10, 20, 30], &asked('D', None)).try_into().unwrap();
    assert_eq!(draft.certainty(), Certainty::Likely, "it may wait for another thing each time");
    assert!(draft.evidence[0].fact.contains("in jbd2_log_wait_commit"), "{draft:?}");
    let mut alone = Alone::<ShimStates>::new();
    told(&mut alone, &[10, 20], &asked('D', None));
    assert!(told(&mut alone, &[22], &asked('S', None)).is_empty());
    assert!(told(&mut alone, &[30], &asked('D', None)).is_empty(), "it ran meanwhile");
}

#[test]
fn of_the_node_those_of_no_pod_are_told() {
    let blocks =
        |node: &NodeSample| drafts(&[10, 16], node).first().map(|draft| draft.blocks_deletion);
    assert_eq!(blocks(&of_node('T', false, None)), Some(None), "nobody is known to wait");
    assert_eq!(blocks(&of_node('T', true, None)), Some(Some(true)), "its removal was begun");
    assert_eq!(blocks(&of_node('T', true, pod())), None, "by what the runtime says of the pod");
    assert_eq!(blocks(&asked('T', pod())), Some(Some(true)), "it is asked about");
    let both = NodeSample { shims: of_node('T', false, None).shims, ..asked('T', None) };
    assert_eq!(drafts(&[10, 16], &both).len(), 1);
}
