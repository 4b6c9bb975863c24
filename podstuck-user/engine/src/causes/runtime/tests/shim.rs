//! Shims that cannot run.

use super::*;

fn asked_of_shim(state: char, pod: Option<Pod>) -> NodeSample {
    let (container, shim) = (name(pod), Some(shim_of_shim(state)));
    let asked = ContainerState { container, init: Some(42), shim, ..testing::container_state() };
    NodeSample { containers: vec![asked], ..NodeSample::default() }
}

fn of_node(state: char, to_go: bool, pod: Option<Pod>) -> NodeSample {
    let shims = vec![HaltedShim { container: name(pod), to_go, shim: shim_of_shim(state) }];
    NodeSample { shims, ..NodeSample::default() }
}

fn pod_of_shim() -> Option<Pod> {
    let uid = "0f0e0d0c-1111-2222-3333-444455556666".into();
    Some(Pod { uid, namespace: None, name: None })
}

fn drafts(seconds: &[u64], node: &NodeSample) -> Vec<Draft> {
    found(last_verdicts(&mut Alone::<ShimStates>::new(), seconds, node))
}

#[test]
fn a_stopped_shim_is_reported() {
    let mut alone = Alone::<ShimStates>::new();
    assert!(
        last_verdicts(&mut alone, &[10, 12], &asked_of_shim('T', None)).is_empty(),
        "as by a debugger"
    );
    let [draft] =
        found(last_verdicts(&mut alone, &[16], &asked_of_shim('T', None))).try_into().unwrap();
    draft.assert_is("shim-hung", Certainty::Firm);
    assert_eq!((draft.blocks_deletion, draft.first), (Some(true), at(10)));
    assert!(draft.remedies[0].command.as_deref().unwrap().contains("kill -CONT 41"), "{draft:?}");
    let over = last_verdicts(&mut alone, &[18], &asked_of_shim('S', None));
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::ShimState, .. }]));
    assert!(
        last_verdicts(&mut alone, &[20], &asked_of_shim('T', None)).is_empty(),
        "from the beginning"
    );
}

#[test]
fn a_shim_that_waits_in_the_kernel_must_last_longer() {
    assert!(drafts(&[10, 20, 28], &asked_of_shim('D', None)).is_empty());
    let [draft] = drafts(&[10, 20, 30], &asked_of_shim('D', None)).try_into().unwrap();
    assert_eq!(draft.certainty(), Certainty::Likely, "it may wait for another thing each time");
    assert!(draft.evidence[0].fact.contains("in jbd2_log_wait_commit"), "{draft:?}");
    let mut alone = Alone::<ShimStates>::new();
    last_verdicts(&mut alone, &[10, 20], &asked_of_shim('D', None));
    assert!(last_verdicts(&mut alone, &[22], &asked_of_shim('S', None)).is_empty());
    assert!(
        last_verdicts(&mut alone, &[30], &asked_of_shim('D', None)).is_empty(),
        "it ran meanwhile"
    );
}

#[test]
fn halted_shims_of_containers_in_no_pod_are_reported() {
    let blocks =
        |node: &NodeSample| drafts(&[10, 16], node).first().map(|draft| draft.blocks_deletion);
    assert_eq!(blocks(&of_node('T', false, None)), Some(None), "nothing is known to wait");
    assert_eq!(blocks(&of_node('T', true, None)), Some(Some(true)), "its removal was begun");
    assert_eq!(
        blocks(&of_node('T', true, pod_of_shim())),
        None,
        "by what the runtime says of the pod"
    );
    assert_eq!(blocks(&asked_of_shim('T', pod_of_shim())), Some(Some(true)), "it is asked about");
    let both = NodeSample { shims: of_node('T', false, None).shims, ..asked_of_shim('T', None) };
    assert_eq!(drafts(&[10, 16], &both).len(), 1);
}
