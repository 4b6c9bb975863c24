//! Containers that do not end, by the logs of the runtime and of kubelet.

use super::{logs::*, *};

#[test]
fn a_runtime_that_waits_for_a_container_works_and_its_container_may_be_gone() {
    let mut alone = heard(Complaint::ContainerStays, STAYS);
    for second in [460, 580] {
        alone.take(at(600), said(UID, Complaint::NoAnswer, "DeadlineExceeded", second));
    }
    let in_group = |group: &str| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = vec![task(group)];
        sample
    };
    let here = "/k/pod/dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    assert_eq!(
        verdict_of(draft(&mut alone, in_group(here))),
        None,
        "it is there, and the runtime works"
    );
    let lost = Some(("shim-or-containerd-state-lost", Certainty::Likely));
    assert_eq!(verdict_of(draft(&mut alone, in_group("/k/pod/the-sandboxs"))), lost);
}

#[test]
fn a_container_of_crio_that_has_ended_without_its_conmon_is_named_once_that_lasts() {
    let crio = Runtime { pid: 44, component: Component::CriO, ..runtime(Component::CriO, "/c") };
    let pod_of = || Some(Pod { uid: UID.into(), namespace: None, name: None });
    let answers = |by: Component, its: Option<Pod>| {
        let mut alone = heard(Complaint::NoAnswer, "DeadlineExceeded");
        let [mut case] = node(Differs::SaysUp(77), None, its).out_of_step.try_into().unwrap();
        case.runtime = by;
        let sample = |second| {
            let out_of_step = vec![case.clone()];
            NodeSample {
                at: at(second),
                runtimes: vec![crio.clone()],
                out_of_step,
                ..pod(Some(false))
            }
        };
        let first = draft(&mut alone, sample(600));
        let ids = [first, draft(&mut alone, sample(605))].map(Option::unwrap);
        (ids[0].id(), ids[1].clone())
    };
    let (first, draft) = answers(Component::CriO, pod_of());
    assert_eq!(first, "runtime-hang", "CRI-O may be about to write it");
    draft.assert_is("shim-or-containerd-state-lost", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "cri-o (pid 44)");
    assert!(draft.evidence.iter().any(|it| it.fact.contains("as running, with process 77")));
    for (by, its) in [(Component::Dockerd, pod_of()), (Component::CriO, None)] {
        assert_eq!(answers(by, its).1.id(), "runtime-hang");
    }
}

#[test]
fn a_process_that_is_not_killed_is_named_once_it_lasts() {
    let container = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    let sample = |second, change: fn(&mut PodGroup)| {
        let mut sample = with_group(pod(Some(true)));
        sample.at = at(second);
        let first = Task { term: Some(Term::Ignored), ..task(&format!("/k/pod/{container}")) };
        let pause = Task { pid: 5, tid: 5, ..task("/k/pod/the-sandboxs") };
        let monitor = format!("/k/pod/crio-conmon-{container}.scope");
        let monitor = Task { pid: 6, tid: 6, ..task(&monitor) };
        sample.cgroups[0].tasks = vec![pause, first, monitor];
        change(&mut sample.cgroups[0]);
        sample
    };
    let last = |mut alone: Alone<RuntimeSays>, change| {
        draft(&mut alone, sample(602, change));
        verdict_of(draft(&mut alone, sample(608, change)))
    };
    let waited = STAYS.replace("context canceled", "context deadline exceeded");
    let stays = || heard(Complaint::ContainerStays, &waited);
    let named = |certainty| Some(("container-not-killed", certainty));
    let mut alone = stays();
    assert_eq!(verdict_of(draft(&mut alone, sample(602, |_| ()))), None, "for a moment");
    let found = draft(&mut alone, sample(608, |_| ())).unwrap();
    found.assert_is("container-not-killed", Certainty::Firm);
    assert!(found.remedies[0].words().ends_with("kill -9 7"), "{:?}", found.remedies);
    assert!(found.evidence.iter().any(|it| it.fact.contains("ignores SIGTERM")));
    // A sample without the pod's group withdraws nothing.
    let unseen = alone.take(at(610), What::Sample(Arc::new(pod(Some(true))))).verdicts;
    assert!(unseen.is_empty(), "{unseen:?}");
    assert_eq!(last(stays(), |group| group.tasks[1].killed = true), None);
    assert_eq!(last(stays(), |group| group.tasks[1].exiting = true), None);
    assert_eq!(last(stays(), |group| group.frozen = Some("/f".into())), None);
    let gone = last(stays(), |group| drop(group.tasks.remove(1))).map(|it| it.0);
    let lost = Some("shim-or-containerd-state-lost");
    assert_eq!(gone, lost, "only the sandbox's own and a monitor are left");

    // A stop that was interrupted may have been within the grace period, unless the record says otherwise.
    let cancelled = || heard(Complaint::ContainerStays, STAYS);
    assert_eq!(last(cancelled(), |_| ()), named(Certainty::Likely));
    let with_record = |deletion| {
        let mut alone = cancelled();
        let mut record = pod_record(UID);
        record.deletion = Some(Timestamp::from_second(deletion).unwrap());
        let node = "node".into();
        alone.take(at(600), What::Record { record: record.into(), node });
        last(alone, |_| ())
    };
    assert_eq!(with_record(300), named(Certainty::Firm));
    assert_eq!(with_record(86_400), None, "its grace period is a day");

    // CRI-O gives up once, and kubelet gets no answer since.
    let once = |unanswered: &[i64]| {
        let mut alone = Alone::<RuntimeSays>::new();
        alone.take(at(600), said(UID, Complaint::ContainerStays, &waited, 450));
        for second in unanswered {
            alone.take(at(600), said(UID, Complaint::NoAnswer, "DeadlineExceeded", *second));
        }
        last(alone, |_| ())
    };
    assert_eq!(once(&[]), None);
    assert_eq!(once(&[570]), named(Certainty::Firm));

    // A sandbox that is a kernel of its own takes the signals for its processes.
    let mut alone = stays();
    let source = "log of containerd (pid 9), /var/log/containerd.log";
    let second = Timestamp::from_second(560).unwrap();
    let kill = format!("Kill container \"{container}\"");
    let kill = Said::new(Component::Containerd, source, UID, second, &kill);
    let kill = Said { report: Some(Report::Killed), ..kill };
    alone.take(at(600), What::Said(Box::new(kill)));
    assert_eq!(last(alone, |_| ()), named(Certainty::Likely));
}

/// containerd#4016 and falcon-helm#406: the runtime tries, and no signal arrives.
#[test]
fn a_process_that_its_runtime_cannot_signal_is_named_and_so_is_why() {
    let container = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    let kill = |why: &str| {
        format!(
            "StopPodSandbox for \"{}\" failed: failed to stop container \"{container}\": failed to kill container \
             \"{container}\": unknown error after kill: runc did not terminate successfully: {why}",
            "a".repeat(64)
        )
    };
    let sample = |second, lives: bool| {
        let mut sample = with_group(pod(Some(true)));
        sample.at = at(second);
        let pause = Task { pid: 5, tid: 5, ..task("/k/pod/the-sandboxs") };
        let first = lives.then(|| task(&format!("/k/pod/{container}")));
        sample.cgroups[0].tasks = [pause].into_iter().chain(first).collect();
        sample
    };
    let last = |complaint, text: &str, lives| {
        let mut alone = heard(complaint, text);
        let second = Timestamp::from_second(560).unwrap();
        let kill = Said::new(
            Component::Containerd,
            "log",
            UID,
            second,
            &format!("Kill container \"{container}\""),
        );
        alone.take(at(600), What::Said(Box::new(Said { report: Some(Report::Killed), ..kill })));
        draft(&mut alone, sample(602, lives));
        draft(&mut alone, sample(608, lives))
    };
    let gone = kill(&format!("container \"{container}\" does not exist"));
    let found = last(Complaint::StateLost, &gone, true).unwrap();
    found.assert_is("container-not-killed", Certainty::Likely);
    assert!(found.remedies[0].words().ends_with("kill -9 7"), "{:?}", found.remedies);
    assert!(found.explanation.contains("before it sends a signal"), "{}", found.explanation);
    let sent = found.evidence.iter().any(|it| it.fact.contains("it sent SIGKILL"));
    assert!(!sent, "it says so before it tries: {:?}", found.evidence);
    let ended = last(Complaint::StateLost, &gone, false).unwrap();
    assert_eq!(ended.id(), "shim-or-containerd-state-lost");

    let refused = kill("exit status 1: unable to signal init: operation not permitted");
    let found = last(Complaint::SignalRefused, &refused, true).unwrap();
    found.assert_is("container-not-killed", Certainty::Likely);
    assert!(found.explanation.contains("with EPERM"), "{}", found.explanation);
    assert!(found.remedies[0].words().starts_with("lift the protection"));
    assert!(found.remedies[1].words().ends_with("kill -9 7"), "{:?}", found.remedies);
    assert!(last(Complaint::SignalRefused, &refused, false).is_none(), "it has ended");
}

/// triton-inference-server#3255: the OCI runtime fails in the shim's working directory, which is deleted.
#[test]
fn a_shim_without_a_working_directory_can_signal_no_container() {
    let container = crate::model::said::container_id(STAYS).unwrap();
    let text = format!(
        "StopContainer for \"{container}\" failed: failed to kill container \"{container}\": unknown error after kill: \
         nvidia-container-runtime did not terminate successfully: getwd: no such file or directory: unknown"
    );
    let last = |lost_directory| {
        let mut alone = heard(Complaint::KillFails, &text);
        let mut found = None;
        for second in [602, 608] {
            let mut sample = with_group(pod(Some(true)));
            sample.at = at(second);
            sample.cgroups[0].tasks = vec![task(&format!("/k/pod/{container}"))];
            sample.cgroups[0].shims = vec![Shim { lost_directory, ..shim_of_shim('S') }];
            found = draft(&mut alone, sample);
        }
        found.unwrap()
    };
    let homeless = last(true);
    homeless.assert_is("container-not-killed", Certainty::Firm);
    let commands = commands(&homeless);
    assert!(
        commands[0].ends_with("kill -9 7") && commands[1].ends_with("kill -9 41"),
        "{commands:?}"
    );
    assert!(homeless.explanation.contains("the working directory of"), "{}", homeless.explanation);
    let other = last(false);
    other.assert_is("container-not-killed", Certainty::Likely);
    assert!(other.remedies[0].words().starts_with("repair what the OCI runtime's error names"));
}

/// nvidia-container-toolkit#1754: the wrapper starts runc, and crun made the container.
#[test]
fn an_oci_runtime_that_does_not_know_the_container_is_said_to_be_another_one() {
    let container = crate::model::said::container_id(STAYS).unwrap();
    let text = format!(
        "Killing container {container} failed: `/usr/local/nvidia/toolkit/nvidia-container-runtime --root /run/nvidia kill \
         {container} KILL` failed: level=error msg=\"container does not exist\"\n : exit status 1"
    );
    let mut alone = heard(Complaint::KillFails, &text);
    let mut found = None;
    for second in [602, 608] {
        let mut sample = with_group(pod(Some(true)));
        sample.at = at(second);
        sample.cgroups[0].tasks = vec![task(&format!("/k/pod/{container}"))];
        found = draft(&mut alone, sample);
    }
    let found = found.unwrap();
    found.assert_is("container-not-killed", Certainty::Likely);
    assert!(found.explanation.contains("is another one"), "{}", found.explanation);
    let all: Vec<&str> = found.remedies.iter().map(|it| it.words()).collect();
    assert!(all[0].contains("that made the container") && all[1].ends_with("kill -9 7"), "{all:?}");
}

/// kubernetes#84298: kubelet's timeout overflows, and its request is not sent.
#[test]
fn a_grace_period_that_kubelet_cannot_count_is_shortened() {
    let container = crate::model::said::container_id(STAYS).unwrap();
    let last = |grace_s| {
        let mut alone = heard(Complaint::NoAnswer, "DeadlineExceeded");
        let mut record = pod_record(UID);
        record.deletion = Some(Timestamp::from_second(300).unwrap());
        record.grace_s = grace_s;
        record.containers = Some(vec![ContainerRecord {
            id: Some(format!("docker://{container}")),
            ..testing::container_record(RecordedState::Running)
        }]);
        let node = "node".into();
        alone.take(at(600), What::Record { record: record.into(), node });
        let mut found = None;
        for second in [602, 608] {
            let mut sample = with_group(pod(Some(true)));
            sample.at = at(second);
            let other = Task { pid: 5, tid: 5, ..task("/k/pod/the-sandboxs") };
            sample.cgroups[0].tasks = vec![other, task(&format!("/k/pod/{container}"))];
            found = draft(&mut alone, sample);
        }
        found.unwrap()
    };
    let endless = last(99_999_999_999_999_999);
    endless.assert_is("container-not-killed", Certainty::Firm);
    assert_eq!(holder_of(&endless.held_by), "kubelet");
    let all: Vec<&str> = endless.remedies.iter().map(|it| it.words()).collect();
    assert!(all[0].contains("--grace-period=30") && all[1].ends_with("kill -9 7"), "{all:?}");
    assert_eq!(last(9_223_371_916).id(), "runtime-hang", "it can count that");
}
