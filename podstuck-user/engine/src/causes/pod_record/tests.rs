//! Tests of the verdicts about a pod's record.

use jiff::Timestamp;

use crate::{
    causes::pod_record::{Here, PodRecords, verdict},
    event::What,
    kubelet_steps::NotAsked,
    model::{
        diagnosis::Stage,
        evidence::Certainty,
        identity::{Component, Pod},
        node::{NodeSample, PodState},
        node_record::NodeRecord,
        pod_group::{PodGroup, Task, Term},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
        said::Said,
        time::Monotonic,
    },
    testing::{
        self, Alone, container_record, found, holder_of, pod_group, pod_record, pod_state, task,
    },
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn record(deletion: Timestamp, finalizers: &[&str]) -> What {
    let record = PodRecord {
        deletion: Some(deletion),
        finalizers: finalizers.iter().map(|name| (*name).into()).collect(),
        ..pod_record(UID)
    };
    What::Record { record: Box::new(record), node: "here".into() }
}

fn sample(populated: Option<bool>) -> What {
    let pod = PodState { populated, ..pod_state(UID) };
    What::Sample(NodeSample { pods: vec![pod], ..NodeSample::default() }.into())
}

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn ids(records: &mut Alone<PodRecords>, second: u64, what: What) -> Vec<&'static str> {
    let verdicts = records.take(at(second), what).verdicts;
    found(verdicts).iter().map(|draft| draft.id()).collect()
}

#[test]
fn a_finalizer_is_reported_at_the_first_sample() {
    let mut records = Alone::<PodRecords>::new();
    let passed = record(Timestamp::UNIX_EPOCH, &["example.org/backup"]);
    assert!(ids(&mut records, 1, passed).is_empty(), "no sample yet");
    assert_eq!(ids(&mut records, 2, sample(Some(true))), ["pod-finalizer"]);
    assert_eq!(ids(&mut records, 4, sample(Some(false))), ["pod-finalizer"]);
}

#[test]
fn a_record_from_before_the_node_was_done_may_be_outdated() {
    let certainty = |first: Option<bool>| {
        let mut records = Alone::<PodRecords>::new();
        ids(&mut records, 1, record(Timestamp::UNIX_EPOCH, &["example.org/backup"]));
        ids(&mut records, 2, sample(first));
        found(records.take(at(4), sample(Some(false))).verdicts)[0].certainty()
    };
    assert_eq!(certainty(Some(false)), Certainty::Firm);
    assert_eq!(certainty(Some(true)), Certainty::Likely, "it may have been removed meanwhile");
}

#[test]
fn a_record_is_judged_alone_if_no_sample_comes() {
    let mut records = Alone::<PodRecords>::new();
    ids(&mut records, 1, record(Timestamp::UNIX_EPOCH, &["example.org/backup"]));
    assert_eq!(ids(&mut records, 250, What::WindowEnded), ["pod-finalizer"]);
}

/// The node's own record.
fn node(kubelet: Option<&str>, missing: Vec<Pod>) -> What {
    let (name, kubelet) = ("here".into(), kubelet.map(str::to_owned));
    What::Node(Box::new(NodeRecord {
        node: name,
        read: NOW,
        ready: None,
        kubelet,
        drivers: None,
        missing,
    }))
}

/// kubernetes#115835
#[test]
fn kubelets_version_says_whether_a_pre_stop_hook_adds_to_the_grace_period() {
    let explained = |kubelet: Option<&str>| {
        let mut records = Alone::<PodRecords>::new();
        records.take(at(1), node(kubelet, Vec::new()));
        let soon = NOW.checked_add(jiff::SignedDuration::from_secs(9)).unwrap();
        records.take(at(1), record(soon, &[]));
        found(records.take(at(2), sample(None)).verdicts)[0].explanation.clone()
    };
    assert!(explained(Some("v1.27.3-gke.100")).contains("This kubelet is older than 1.28"));
    assert!(explained(Some("v1.36.2+k3s1")).ends_with("The time of a preStop hook counts, too."));
    for unknown in [None, Some("unknown")] {
        assert!(explained(unknown).contains("Before Kubernetes 1.28, "), "{unknown:?}");
    }
}

#[test]
fn a_record_that_the_api_server_no_longer_has_ends_its_finding() {
    let mut records = Alone::<PodRecords>::new();
    ids(&mut records, 1, record(NOW, &["example.org/backup"]));
    assert_eq!(ids(&mut records, 2, sample(Some(false))), ["pod-finalizer"]);
    let missing = vec![pod_record(UID).pod];
    let verdicts = records.take(at(9), node(None, missing)).verdicts;
    assert!(matches!(verdicts[..], [Verdict::Over { .. }]), "{verdicts:?}");
    assert!(records.take(at(10), sample(Some(false))).verdicts.is_empty());
}

#[test]
fn a_grace_that_ends_is_over() {
    let mut records = Alone::<PodRecords>::new();
    let soon = Timestamp::UNIX_EPOCH.checked_add(jiff::SignedDuration::from_secs(9)).unwrap();
    ids(&mut records, 1, record(soon, &[]));
    assert_eq!(ids(&mut records, 2, sample(None)), ["grace-period-or-prestop"]);
    let verdicts = records.take(at(20), sample(None)).verdicts;
    assert!(matches!(verdicts[..], [Verdict::Over { .. }]), "{verdicts:?}");
    assert!(records.take(at(22), sample(None)).verdicts.is_empty());
}

/// The grace period ends by the API server's clock; the current time is the node's.
#[test]
fn a_deletion_that_is_still_to_be_requested_is_one_by_another_clock() {
    let ends_in = |seconds| {
        let deletion = NOW.checked_add(jiff::SignedDuration::from_secs(seconds)).ok();
        let record = PodRecord { deletion, grace_s: 30, ..pod_record("u") };
        finding(&record, Stage::Containers)
    };
    assert_eq!(ends_in(20), Some(("grace-period-or-prestop", Certainty::Firm)));
    assert_eq!(ends_in(34), Some(("grace-period-or-prestop", Certainty::Firm)));
    assert_eq!(ends_in(630), Some(("grace-period-or-prestop", Certainty::Likely)));
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn record_of_verdict() -> PodRecord {
    PodRecord { finalizers: vec!["batch.kubernetes.io/job-tracking".into()], ..pod_record("u") }
}

fn here(stage: Stage) -> Here<'static> {
    Here {
        node: "here",
        is_named: true,
        has_kubelet: true,
        stage: Some(stage),
        was_left: false,
        group: None,
        kubelet: None,
        not_asked: None,
        stop_ends: None,
        named_by: None,
        now: NOW,
        at: Monotonic(1),
    }
}

/// The pod's only process.
fn processes(killed: bool) -> PodGroup {
    PodGroup { tasks: vec![Task { killed, ..task("sleep", 7) }], ..pod_group("u") }
}

/// As in kubernetes#127188: `bash -c 'sleep 9999'` is the container's first process.
#[test]
fn a_first_process_that_sigterm_does_not_end_is_what_the_grace_period_waits_for() {
    let later = |seconds| NOW.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    let containers = Some(vec![container_record(ContainerState::Running)]);
    let record =
        PodRecord { deletion: Some(later(20)), grace_s: 30, containers, ..pod_record("u") };
    let of = |term, is_init, stop_ends| {
        let first = Task { term: Some(term), is_init, ..task("bash", 7) };
        let group = PodGroup { tasks: vec![first, task("pause", 5)], ..pod_group("u") };
        let (now, record) = match stop_ends {
            Some(_) => (later(25), record.clone()),
            None => (NOW, record.clone()),
        };
        let here = Here { group: Some(&group), now, stop_ends, ..here(Stage::Containers) };
        let draft = verdict(&record, here).unwrap();
        assert_eq!((draft.id(), draft.certainty()), ("grace-period-or-prestop", Certainty::Firm));
        let fact = draft.evidence.iter().find(|it| it.fact.starts_with("bash (pid 7), "));
        (holder_of(&draft.held_by), fact.map(|it| it.fact.clone()))
    };
    let says = |words: &str| {
        let fact = format!("bash (pid 7), the first process of its container, {words}");
        ("bash (pid 7)".to_owned(), Some(fact))
    };
    let discarded = "has no handler for SIGTERM, which the kernel discards for the init process of a PID namespace";
    assert_eq!(of(Term::Default, true, None), says(discarded));
    assert_eq!(of(Term::Ignored, true, None), says("ignores SIGTERM"));
    assert_eq!(of(Term::Default, true, Some((later(60), "log"))), says(discarded));
    // With `shareProcessNamespace` or `hostPID`, SIGTERM ends it; one with a handler may need its time.
    for (term, is_init) in [(Term::Default, false), (Term::Handled, true)] {
        assert_eq!(of(term, is_init, None), ("the container app".to_owned(), None));
    }
}

fn finding(record: &PodRecord, stage: Stage) -> Option<(&'static str, Certainty)> {
    verdict(record, here(stage)).map(|draft| (draft.id(), draft.certainty()))
}

/// juicefs-csi-driver#1208: the controller of the finalizer runs on this node.
#[test]
fn a_container_that_logs_an_error_about_the_pod_may_be_the_controller() {
    let source = "log of juicefs-plugin of pod kube-system/juicefs-csi-node-5x7kz, /var/log/pods/x";
    let said = |source: &str, text: &str| {
        let said = Said::new(Component::Workload, source, UID, Timestamp::UNIX_EPOCH, text);
        What::Said(Box::new(said))
    };
    let gone = || What::Sample(NodeSample::default().into());
    let last = |said: Option<What>| {
        let mut records = Alone::<PodRecords>::new();
        records.take(at(1), record(Timestamp::UNIX_EPOCH, &["juicefs.com/finalizer"]));
        let mut found = found(records.take(at(2), gone()).verdicts);
        found.extend(
            said.map(|said| records.take(at(3), said).verdicts)
                .into_iter()
                .flat_map(testing::found),
        );
        found.pop().unwrap()
    };
    let (alone, named) = (last(None), last(Some(said(source, "secrets \"x\" not found"))));
    assert_eq!(alone.certainty(), named.certainty(), "a line of a log decides nothing");
    let first = |draft: &Draft| draft.remedies[0].words().to_owned();
    assert!(first(&alone).ends_with("its log names the pod"), "{}", first(&alone));
    let who = "juicefs-plugin of pod kube-system/juicefs-csi-node-5x7kz, a container on this node";
    assert!(first(&named).contains(who), "{}", first(&named));
    let quoted = |draft: &Draft| draft.evidence.iter().any(|it| it.fact.contains("secrets"));
    assert!(quoted(&named) && !quoted(&alone));
}

#[test]
fn a_finalizer_is_the_cause_only_when_the_node_is_done() {
    assert_eq!(
        finding(&record_of_verdict(), Stage::Directories),
        Some(("pod-finalizer", Certainty::Firm))
    );
    // The record shows the finalizer; another cause holds the pod first.
    assert_eq!(
        finding(&record_of_verdict(), Stage::Volumes),
        Some(("pod-finalizer", Certainty::Firm))
    );
    let is_later = |stage| verdict(&record_of_verdict(), here(stage)).unwrap().is_later;
    assert!(is_later(Stage::Volumes) && !is_later(Stage::Directories));
    let without = PodRecord { finalizers: Vec::new(), ..record_of_verdict() };
    assert_eq!(finding(&without, Stage::Directories), None);
    // Without a kubelet, the place of its pods is not known.
    let of = |stage| {
        let here = Here { has_kubelet: false, ..here(stage) };
        verdict(&record_of_verdict(), here).unwrap().certainty()
    };
    assert_eq!((of(Stage::Gone), of(Stage::Directories)), (Certainty::Likely, Certainty::Firm));
}

/// A pod's name may be reused, and a finalizer's name is arbitrary.
#[test]
fn a_finalizer_is_removed_from_the_pod_of_that_uid_only() {
    let names = ["x' ; reboot '", "example.com/keep"];
    let record = PodRecord { finalizers: names.map(String::from).to_vec(), ..record_of_verdict() };
    let remedies = verdict(&record, here(Stage::Directories)).unwrap().remedies;
    let commands: Vec<&str> = remedies.iter().filter_map(|it| it.command.as_deref()).collect();
    let [command] = commands[..] else { panic!("{commands:?}") };
    let tests = r#"[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/finalizers/1","value":"example.com/keep"},"#;
    assert!(command.contains(tests), "{command}");
}

#[test]
fn a_pod_that_is_not_stuck_is_not_reported_as_stuck() {
    let alive = PodRecord { deletion: None, ..record_of_verdict() };
    assert_eq!(finding(&alive, Stage::Containers), Some(("pod-not-deleted", Certainty::Firm)));
    let soon = NOW.checked_add(jiff::SignedDuration::from_secs(9)).unwrap();
    let ending = PodRecord { deletion: Some(soon), ..record_of_verdict() };
    assert_eq!(
        finding(&ending, Stage::Containers),
        Some(("grace-period-or-prestop", Certainty::Firm))
    );
}

#[test]
fn a_pod_after_its_grace_period_may_have_another_one_or_wait_for_its_hook() {
    let later = |seconds| NOW.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    let running = container_record(ContainerState::Running);
    let container = ContainerRecord { has_pre_stop: true, ..running };
    let containers = Some(vec![container]);
    let record = PodRecord { deletion: Some(NOW), containers, ..pod_record("u") };
    let lives = processes(false);
    let asked = Here { now: later(20), group: Some(&lives), ..here(Stage::Containers) };
    let of = |record: &PodRecord, here| {
        let draft = verdict(record, here)?;
        assert_eq!(draft.remedies.len(), 1, "{:?}", draft.remedies);
        Some((draft.id(), draft.certainty(), holder_of(&draft.held_by)))
    };
    let ends = processes(true);
    let running = Here { stop_ends: Some((later(60), "log")), ..asked };
    let waits = ("grace-period-or-prestop", Certainty::Firm, String::new());
    assert_eq!(of(&record, running), Some(waits));
    assert_eq!(of(&record, Here { stop_ends: Some((later(10), "log")), ..asked }), None);
    assert_eq!(of(&record, Here { group: Some(&ends), ..running }), None);
    assert_eq!(of(&record, asked), None);
    let not_asked = NotAsked { since: NOW, received: Some(NOW), is_unheard: false, log: "log" };
    // cluster-operator#805: within the grace period, and not known how far kubelet is.
    let early = PodRecord { deletion: Some(later(60)), ..record.clone() };
    let within = verdict(&early, asked).unwrap();
    assert_eq!(holder_of(&within.held_by), "the container app");
    let stop = format!("crictl stop {}", "a".repeat(64));
    assert_eq!(within.remedies[0].command.as_deref(), Some(stop.as_str()));
    let in_hook = Here { not_asked: Some(&not_asked), ..asked };
    let waits = "the preStop hook of app".to_owned();
    assert_eq!(of(&record, in_hook), Some(("grace-period-or-prestop", Certainty::Likely, waits)));
    assert_eq!(of(&PodRecord { containers: None, ..record }, in_hook), None, "none has a hook");
}

#[test]
fn another_node_is_named_only_when_nothing_is_here() {
    let other = PodRecord { node: Some("there".into()), ..record_of_verdict() };
    assert_eq!(finding(&other, Stage::Gone), Some(("pod-not-on-this-node", Certainty::Firm)));
    // kubelet may register the node under another name than the host's.
    let of_host = Here { is_named: false, ..here(Stage::Gone) };
    assert_eq!(verdict(&other, of_host).unwrap().certainty(), Certainty::Likely);
    assert_eq!(finding(&other, Stage::Volumes), Some(("pod-finalizer", Certainty::Firm)));
}

#[test]
fn a_mirror_pod_whose_static_pod_runs_is_ended_by_its_manifest() {
    let [alive, killed] = [false, true].map(processes);
    let of = |is_mirror, stage, group| {
        let record = PodRecord {
            is_mirror,
            deletion: Some(Timestamp::UNIX_EPOCH),
            pod: Pod {
                uid: UID.into(),
                namespace: Some("kube-system".into()),
                name: Some("kube-proxy-here".into()),
            },
            ..pod_record(UID)
        };
        let now = Timestamp::from_second(60).unwrap();
        verdict(&record, Here { stage, group, now, ..here(Stage::Containers) })
    };
    let draft = of(true, Some(Stage::Containers), Some(&alive)).unwrap();
    draft.assert_is("mirror-pod-deleted", Certainty::Likely);
    let commands: Vec<&str> =
        draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect();
    let find =
        "grep --recursive --files-with-matches --word-regexp kube-proxy /etc/kubernetes/manifests";
    let delete =
        "kubectl --namespace kube-system delete pod kube-proxy-here --grace-period=0 --force";
    assert_eq!(commands, [find, delete]);
    assert!(of(true, Some(Stage::Containers), Some(&killed)).is_none(), "it is being ended");
    assert!(of(true, Some(Stage::Containers), None).is_none(), "its processes were not looked at");
    assert!(of(true, Some(Stage::Volumes), Some(&alive)).is_none(), "it has ended");
    assert!(of(false, Some(Stage::Containers), Some(&alive)).is_none());
}
