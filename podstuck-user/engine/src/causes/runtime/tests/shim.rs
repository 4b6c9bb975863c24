//! Shims that cannot run.

use super::{logs::*, *};

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

/// containerd#8847: only the sandbox's own process is left, and the shim lives.
#[test]
fn a_shim_that_does_not_answer_about_a_container_that_has_ended_is_named() {
    let container = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    let text = |why: &str| {
        format!(
            "StopContainer for \"{container}\" failed: failed to stop container \"{container}\": {why}: unknown"
        )
    };
    let with = |text: &str, shims: Vec<Shim>, group: &str| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = vec![task(group)];
        sample.cgroups[0].shims = shims;
        draft(&mut heard(Complaint::ContainerStays, text), sample)
    };
    let (silent, pause) = (text("context deadline exceeded"), "/k/pod/the-sandboxs");
    let found = with(&silent, vec![shim_of_shim('S')], pause).unwrap();
    found.assert_is("shim-hung", Certainty::Likely);
    assert!(found.remedies[0].words().ends_with("kill -KILL 41"), "{:?}", found.remedies);
    let lost = Some("shim-or-containerd-state-lost");
    assert_eq!(with(&silent, Vec::new(), pause).map(|it| it.id()), lost, "no shim is left");
    let answers = with(&text("ttrpc: closed"), vec![shim_of_shim('S')], pause);
    assert_eq!(answers.map(|it| it.id()), lost, "it does answer");
    let lives = with(&silent, vec![shim_of_shim('S')], &format!("/k/pod/{container}"));
    assert_eq!(lives.map(|it| it.id()), None, "it waits for the container");
}

/// containerd#12600: containerd has missed the end of a container, and waits for it at each stop.
#[test]
fn the_shim_of_a_container_whose_end_the_runtime_missed_is_ended() {
    let container = crate::model::said::container_id(STAYS).unwrap();
    let of = |pid, container: &str| {
        let comm = "containerd-shim-runc-v2".into();
        Shim { pid, comm, container: Some(container.into()), ..shim_of_shim('S') }
    };
    let with_groups = |shims: Vec<Shim>, containers: &[&str]| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = vec![task("/k/pod/the-sandboxs")];
        sample.cgroups[0].shims = shims;
        sample.cgroups[0].containers = containers.iter().map(|id| (*id).to_owned()).collect();
        let found = draft(&mut heard(Complaint::ContainerStays, STAYS), sample).unwrap();
        found.assert_is("shim-or-containerd-state-lost", Certainty::Likely);
        let all: Vec<&str> = found.remedies.iter().map(|it| it.words()).collect();
        all.join("\n")
    };
    let with = |shims| with_groups(shims, &[container]);
    let its = with(vec![of(5, "the-sandboxs"), of(6, container)]);
    let first = |all: &str| all.lines().next().unwrap_or_default().to_owned();
    assert!(first(&its).ends_with("kill -KILL 6"), "{its}");
    let of_pod = with(vec![of(5, "the-sandboxs")]);
    assert!(first(&of_pod).ends_with("kill -KILL 5"), "{of_pod}");
    for shims in [vec![of(5, "the-sandboxs"), of(6, "anothers")], Vec::new()] {
        let unknown = with(shims);
        assert!(!unknown.contains("kill"), "{unknown}");
    }
    // containerd#12678: it was removed, and only containerd's memory has it.
    let removed = with_groups(vec![of(5, "the-sandboxs")], &[]);
    assert!(!first(&removed).contains("kill") && removed.contains("kill -KILL 5"), "{removed}");
}

#[test]
fn a_shim_that_cannot_run_is_there() {
    // As recorded with containerd 1.6.
    let text = "get state for dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc: context deadline \
        exceeded: unknown";
    let with = |state| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = vec![task("/k/pod/dc2c")];
        sample.cgroups[0].shims = vec![Shim { state, ..testing::shim() }];
        draft(&mut heard(Complaint::StateLost, text), sample).unwrap()
    };
    let stopped = with('T');
    stopped.assert_is("shim-hung", Certainty::Firm);
    assert!(stopped.remedies[0].words().ends_with("kill -CONT 41"), "{:?}", stopped.remedies);
    assert_eq!((with('D').id(), with('D').certainty()), ("shim-hung", Certainty::Likely));
    // containerd#8116: it answers, but too late for the runtime.
    let late = with('S');
    late.assert_is("shim-hung", Certainty::Likely);
    assert!(late.remedies[0].words().ends_with("kill -KILL 41"), "{:?}", late.remedies);
    assert!(late.remedies.iter().any(|it| it.words().contains("short of CPU")));
}

/// containerd#2438: a shim that is blocked collects no exit.
#[test]
fn a_shim_that_does_not_collect_its_child_is_named_once_that_lasts() {
    let sample = |second| {
        let mut sample = with_group(pod(Some(true)));
        sample.at = at(second);
        sample.cgroups[0].tasks = vec![task("/k/pod/the-sandboxs")];
        let child = Unreaped { pid: 8, started: 20, comm: "api".into(), traced_by: None };
        let shim = Shim { unreaped: vec![child], ..shim_of_shim('S') };
        sample.cgroups[0].shims = vec![shim];
        sample
    };
    let mut alone = heard(Complaint::ContainerStays, STAYS);
    let early = verdict_of(draft(&mut alone, sample(602))).unwrap();
    assert_eq!(early.0, "shim-or-containerd-state-lost", "it may be about to");
    let found = draft(&mut alone, sample(613)).unwrap();
    found.assert_is("shim-hung", Certainty::Firm);
    assert!(found.remedies[0].words().ends_with("kill -KILL 41"), "{:?}", found.remedies);
    assert!(found.evidence.iter().any(|it| it.fact.contains("api (pid 8)")));
}

/// ptrace(2): the parent is notified after the tracer has waited for the process; a stopped debugger does not wait.
#[test]
fn an_exit_that_a_tracer_keeps_is_not_the_shims_to_collect() {
    let sample = |second, traced_by| {
        let mut sample = with_group(pod(Some(true)));
        sample.at = at(second);
        sample.cgroups[0].tasks = vec![task("/k/pod/the-sandboxs")];
        let child = Unreaped { pid: 8, started: 20, comm: "api".into(), traced_by };
        sample.cgroups[0].shims = vec![Shim { unreaped: vec![child], ..shim_of_shim('S') }];
        sample
    };
    let found = |traced_by: Option<Reaper>| {
        let mut alone = heard(Complaint::ContainerStays, STAYS);
        drop(draft(&mut alone, sample(602, traced_by.clone())));
        draft(&mut alone, sample(613, traced_by)).map(|draft| draft.id())
    };
    assert_eq!(found(None), Some("shim-hung"));
    assert_eq!(found(Some(reaper("strace", 9))), None);
}
