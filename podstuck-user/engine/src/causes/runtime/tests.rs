//! runtime: facts against verdicts.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    causes::runtime::{
        docker::DockerStates, shim::ShimStates, state::RuntimeStates, tracker::RuntimeSays,
        unresponsive::SilentDaemons,
    },
    event::What,
    model::{
        client::{Client, Request},
        container::{ContainerName, ContainerState},
        evidence::Certainty,
        halted::Halted,
        identity::{Component, Pod, Target},
        mounted::Mounted,
        node::{LeftRootfs, NodeSample, PodState},
        pod_group::{PodGroup, Reaper, Task, Term},
        runtime::{
            Differs, GoneRuntime, HaltedShim, LogDriver, OutOfStep, Runtime, Shim, ShimOf, Unreaped,
        },
        said::{Complaint, Report, Said},
        time::Monotonic,
    },
    query::{Answer, Listening},
    testing::{self, Alone, found, holder_of, pod_record, pod_state, reaper, space},
    tracker::{Claim, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn id() -> String {
    name(None).id
}

/// Docker's container `web`.
fn name(pod: Option<Pod>) -> ContainerName {
    ContainerName { pod, ..testing::container_state().container }
}

fn shim() -> Shim {
    let socket = "/run/containerd/containerd.sock".into();
    Shim { of: Some(ShimOf::Containerd { socket, namespace: "moby".into() }), ..testing::shim() }
}

fn runtime(component: Component, socket: &str) -> Runtime {
    let pid = if component == Component::Dockerd { 43 } else { 40 };
    let group = Some(format!("/system.slice/{}.service", component.name()));
    Runtime { pid, sockets: vec![socket.into()], group, ..testing::runtime(component) }
}

fn node(what: Differs, shim: Option<Shim>, pod: Option<Pod>) -> NodeSample {
    let case = OutOfStep {
        container: name(pod),
        directory: format!("/var/lib/docker/containers/{}", id()).into(),
        runtime: Component::Dockerd,
        daemon: 43,
        what,
        shim,
        log_driver: Some(LogDriver { name: "json-file".into(), address: None }),
        started_at: None,
    };
    let dockerd = runtime(Component::Dockerd, "/run/docker.sock");
    let containerd = runtime(Component::Containerd, "/run/containerd/containerd.sock");
    NodeSample {
        runtimes: vec![containerd, dockerd],
        out_of_step: vec![case],
        ..NodeSample::default()
    }
}

fn asked(node: NodeSample) -> NodeSample {
    let container = node.out_of_step[0].container.clone();
    let containers = vec![ContainerState { container, ..testing::container_state() }];
    NodeSample { containers, ..node }
}

/// The verdicts after the last of these seconds, with the same sample at each.
fn last_verdicts<T: Tracker>(
    alone: &mut Alone<T>,
    seconds: &[u64],
    node: &NodeSample,
) -> Vec<Verdict> {
    let mut last = Vec::new();
    for second in seconds {
        let sample = NodeSample { at: at(*second), ..node.clone() };
        last = alone.take(sample.at, What::Sample(sample.into())).verdicts;
    }
    last
}

fn one(node: &NodeSample) -> Draft {
    let verdicts = last_verdicts(&mut Alone::<DockerStates>::new(), &[10, 20, 30], node);
    let [draft] = found(verdicts).try_into().unwrap();
    draft
}

fn commands(draft: &Draft) -> Vec<&str> {
    draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect()
}

#[test]
fn one_that_has_ended_and_is_up() {
    let node = asked(node(Differs::SaysUp(99), None, None));
    let mut alone = Alone::<DockerStates>::new();
    assert!(last_verdicts(&mut alone, &[10, 28], &node).is_empty(), "dockerd takes some time");
    let [draft] = found(last_verdicts(&mut alone, &[30], &node)).try_into().unwrap();
    assert_eq!(
        (draft.id(), draft.certainty()),
        ("docker-containerd-state-desync", Certainty::Firm)
    );
    assert_eq!((draft.blocks_deletion, draft.first), (Some(true), at(10)));
    assert_eq!(draft.target.container_name.as_deref(), Some("web"));
    let id = id();
    let kill = format!("docker kill {id}");
    assert_eq!(commands(&draft), [kill.as_str(), "systemctl restart dockerd.service"]);
    let over = last_verdicts(&mut alone, &[32], &NodeSample { out_of_step: Vec::new(), ..node });
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::DockerState, .. }]));
}

/// As in containerd's issue 5708.
#[test]
fn one_that_dockerd_has_killed_in_vain_is_released_by_its_shim() {
    let pod = Pod { uid: "u".into(), namespace: None, name: None };
    let node = node(Differs::SaysUp(99), Some(shim()), Some(pod));
    let mut alone = Alone::<DockerStates>::new();
    let first = |alone: &mut Alone<DockerStates>| {
        let [draft] = found(last_verdicts(alone, &[10, 20, 30], &node)).try_into().unwrap();
        commands(&draft)[0].to_owned()
    };
    assert!(first(&mut alone).starts_with("docker kill "));
    alone.take(at(31), said("u", Complaint::ContainerStays, "failed to exit within 30s", 1));
    assert!(first(&mut alone).ends_with(&format!("kill -KILL {}", shim().pid)));
}

#[test]
fn one_that_lives_and_has_exited() {
    let draft = one(&node(Differs::SaysEnded(Some(99)), Some(shim()), None));
    assert_eq!((draft.certainty(), draft.blocks_deletion), (Certainty::Firm, None));
    let facts: Vec<&str> = draft.evidence.iter().map(|it| it.fact.as_str()).collect();
    assert!(facts.iter().any(|fact| fact.contains("first process (pid 99) is alive")), "{facts:?}");
    let [kill, delete, _] = commands(&draft).try_into().unwrap();
    assert!(kill.contains("--namespace moby task kill --signal SIGKILL a1a1"), "{kill}");
    assert!(delete.contains("task delete --force a1a1"), "{delete}");
    let stopped = one(&node(Differs::SaysEnded(None), Some(shim()), None));
    assert!(commands(&stopped)[0].contains("task delete"), "nothing is to be killed");
}

#[test]
fn another_process_or_the_other_way_is_another_case() {
    let mut alone = Alone::<DockerStates>::new();
    assert!(
        last_verdicts(&mut alone, &[10, 25], &node(Differs::SaysUp(99), None, None)).is_empty()
    );
    assert!(last_verdicts(&mut alone, &[30], &node(Differs::SaysUp(100), None, None)).is_empty());
    assert!(
        last_verdicts(&mut alone, &[40], &node(Differs::SaysEnded(None), Some(shim()), None))
            .is_empty()
    );
}

/// A container with a log driver that sends to an address, and what dockerd's log and the node say.
fn logs_to(driver: &str, address: &str, deleted: Option<i64>, listens: Option<bool>) -> Draft {
    let mut node = asked(node(Differs::SaysUp(99), None, None));
    let log_driver = LogDriver { name: driver.into(), address: Some(address.into()) };
    let case = &mut node.out_of_step[0];
    (case.log_driver, case.started_at) =
        (Some(log_driver), Some(Timestamp::from_second(100).unwrap()));
    let mut alone = Alone::<DockerStates>::new();
    if let Some(at) = deleted {
        let (at, text) = (Timestamp::from_second(at).unwrap(), format!("ignoring event: {}", id()));
        let said = Said::new(Component::Dockerd, "log of dockerd", UID, at, &text);
        let said = Said { report: Some(Report::TaskDeleted), ..said };
        alone.take(Monotonic(0), What::Said(said.into()));
    }
    let sample = NodeSample { at: at(10), ..node.clone() };
    let asked = alone.take(at(10), What::Sample(sample.into())).queries;
    if let (Some(is_listening), Some(query)) = (listens, asked.into_iter().next()) {
        let found = Listening { somebody: is_listening, namespaces: 1, unread: 0 };
        let answer = Answer::Listener(Ok(found));
        alone.take(at(11), What::Answer { query: query.into(), answer: answer.into() });
    }
    let [draft] = found(last_verdicts(&mut alone, &[12, 30], &node)).try_into().unwrap();
    draft
}

#[test]
fn one_whose_log_driver_waits_is_not_out_of_step() {
    const HERE: &str = "tcp://localhost:24224";
    let verdict = |driver, address, deleted, listens| {
        let draft = logs_to(driver, address, deleted, listens);
        (draft.id(), draft.certainty())
    };
    let (blocks, desync) = ("docker-log-driver-blocks", "docker-containerd-state-desync");
    assert_eq!(verdict("fluentd", HERE, Some(200), Some(false)), (blocks, Certainty::Likely));
    assert_eq!(
        verdict("splunk", "https://10.0.0.5:8088", Some(200), None),
        (blocks, Certainty::Likely)
    );
    assert_eq!(verdict("fluentd", HERE, None, Some(false)), (blocks, Certainty::Likely));
    // No source supports either cause, so the finding is not firm.
    assert_eq!(verdict("fluentd", HERE, None, Some(true)), (desync, Certainty::Likely));
    assert_eq!(verdict("splunk", "https://10.0.0.5:8088", None, None), (desync, Certainty::Likely));
    assert_eq!(
        verdict("fluentd", HERE, Some(50), Some(true)),
        (desync, Certainty::Likely),
        "an earlier task's"
    );
    assert_eq!(verdict("json-file", HERE, Some(200), None), (desync, Certainty::Firm));
    let waits = logs_to("fluentd", HERE, Some(200), Some(false));
    let facts: Vec<&str> = waits.evidence.iter().map(|it| it.fact.as_str()).collect();
    assert!(
        facts.iter().any(|fact| fact.contains("no process listens at 127.0.0.1:24224")),
        "{facts:?}"
    );
    assert_eq!(commands(&waits), ["systemctl restart dockerd.service"], "`docker kill` waits, too");
    let unknown = logs_to("splunk", "https://10.0.0.5:8088", None, None);
    assert!(unknown.remedies[0].risk.contains("this command waits, too"));
}

#[test]
fn where_a_log_driver_sends_to_on_the_node_itself() {
    let of = |name: &str, address: Option<&str>| {
        let driver = LogDriver { name: name.into(), address: address.map(Into::into) };
        driver.loopback().map(|end| end.to_string())
    };
    let here = Some("127.0.0.1:24224".to_owned());
    assert_eq!(
        [of("fluentd", None), of("fluentd", Some("localhost"))],
        [here.clone(), here.clone()]
    );
    assert_eq!(of("fluentd", Some("localhost:24224")), here);
    assert_eq!(of("syslog", Some("tcp://[::1]:514")).as_deref(), Some("[::1]:514"));
    for elsewhere in
        ["udp://127.0.0.1:12201", "unix:///run/f.sock", "10.0.0.5:24224", "log.example:1"]
    {
        assert_eq!(of("gelf", Some(elsewhere)), None, "{elsewhere}");
    }
    assert_eq!(of("awslogs", None), None);
}

/// A daemon that cannot run has missed nothing yet.
#[test]
fn a_halted_daemon_is_not_out_of_step() {
    let halted = |component| {
        let mut node = node(Differs::SaysUp(99), None, None);
        for runtime in node.runtimes.iter_mut().filter(|it| it.component == component) {
            runtime.halted = Some(Halted::Stopped);
        }
        last_verdicts(&mut Alone::<DockerStates>::new(), &[10, 40], &node).len()
    };
    assert_eq!([Component::Dockerd, Component::Containerd, Component::CriO].map(halted), [0, 0, 1]);
    let (component, socket, group) = (Component::Containerd, Some("/x".into()), None);
    let gone = vec![GoneRuntime { component, socket, shims: 1, group }];
    let node = NodeSample { gone, ..node(Differs::SaysUp(99), None, None) };
    assert!(last_verdicts(&mut Alone::<DockerStates>::new(), &[10, 40], &node).is_empty());
    let alone = NodeSample { runtimes: vec![node.runtimes[1].clone()], gone: Vec::new(), ..node };
    assert_eq!(one(&alone).certainty(), Certainty::Possible, "no containerd was seen to run");
}

#[test]
fn a_pod_that_is_to_go_waits_for_it() {
    let pod = Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("web".into()) };
    let node = node(Differs::SaysUp(99), Some(shim()), Some(pod.clone()));
    let mut alone = Alone::<DockerStates>::new();
    let time = Timestamp::from_second(1).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, time, "");
    alone.take(at(9), What::Said(Box::new(Said { report: Some(Report::ToGo), ..said })));
    let [draft] = found(last_verdicts(&mut alone, &[10, 40], &node)).try_into().unwrap();
    assert_eq!((draft.blocks_deletion, draft.target.pod.clone()), (Some(true), Some(pod)));
    let subject = Subject { target_id: 0, path: std::path::Path::new(""), pod: UID, at: at(40) };
    assert!(alone.tracker.explains(&subject, Claim::Finding));
    let other = Subject { pod: "", ..subject };
    assert!(!alone.tracker.explains(&other, Claim::Suspicion));
}

#[test]
fn a_dockerd_of_ones_own_is_reached_where_it_listens() {
    let mut node = node(Differs::SaysUp(99), None, None);
    node.runtimes[1].sockets = [
        "/run/x/libnetwork/3f4e5d6c7b8a.sock",
        "/run/x/metrics",
        "/run/x/docker/metrics.sock",
        "/run/x/own docker.sock",
    ]
    .map(Into::into)
    .to_vec();
    node.runtimes[1].group = None;
    let draft = one(&node);
    let expected = format!("docker --host unix://'/run/x/own docker.sock' kill {}", id());
    assert_eq!(commands(&draft), [expected.as_str()]);
}

fn said(uid: &str, complaint: Complaint, text: &str, second: i64) -> What {
    let source = "log of containerd (pid 9), /var/log/containerd.log";
    let at = Timestamp::from_second(second).unwrap();
    let said = Said::new(Component::Containerd, source, uid, at, text);
    What::Said(Box::new(Said { complaint: Some(complaint), ..said }))
}

/// Two lines, 120 s apart, read half a minute after the second.
fn heard(complaint: Complaint, text: &str) -> Alone<RuntimeSays> {
    let mut alone = Alone::<RuntimeSays>::new();
    for second in [450, 570] {
        alone.take(at(600), said(UID, complaint, text, second));
    }
    alone
}

fn pod(populated: Option<bool>) -> NodeSample {
    let state = PodState { populated, ..pod_state(UID) };
    NodeSample { at: at(602), pods: vec![state], ..NodeSample::default() }
}

fn draft(alone: &mut Alone<RuntimeSays>, sample: NodeSample) -> Option<Draft> {
    found(alone.take(sample.at, What::Sample(sample.into())).verdicts).pop()
}

fn verdict_of(draft: Option<Draft>) -> Option<(&'static str, Certainty)> {
    draft.map(|draft| (draft.id(), draft.certainty()))
}

/// As in projectcalico/calico issue 7220 and containerd's documentation.
const CNI: &str = "StopPodSandbox for \"aa\" failed: failed to destroy network for sandbox \"aa\": plugin \
    type=\"calico\" failed (delete): error getting ClusterInformation: connection is unauthorized: Unauthorized";

#[test]
fn a_plugin_that_fails_is_likely_and_no_more() {
    let mut alone = heard(Complaint::NetworkTeardown, CNI);
    let draft = draft(&mut alone, pod(Some(false))).unwrap();
    assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
    assert_eq!((draft.id(), draft.blocks_deletion), ("cni-teardown-failed", Some(true)));
    assert!(draft.explanation.contains("does not accept its token"), "{}", draft.explanation);
    assert_eq!((draft.count, draft.first, draft.last), (2, at(450), at(570)));
    assert!(draft.evidence[0].source.to_string().starts_with("log of containerd"), "{draft:?}");
}

#[test]
fn what_was_said_once_or_long_ago_or_was_overcome_is_nothing_to_rely_on() {
    let mut once = Alone::<RuntimeSays>::new();
    once.take(at(600), said(UID, Complaint::NetworkTeardown, CNI, 590));
    let possible = Some(("cni-teardown-failed", Certainty::Possible));
    assert_eq!(verdict_of(draft(&mut once, pod(Some(false)))), possible);
    let mut old = Alone::<RuntimeSays>::new();
    for second in [10, 20] {
        old.take(at(600), said(UID, Complaint::NetworkTeardown, CNI, second));
    }
    assert_eq!(verdict_of(draft(&mut old, pod(Some(false)))), None);
    let mut over = heard(Complaint::NetworkTeardown, CNI);
    let mut sample = pod(Some(false));
    sample.pods[0].volume_removed = Some(Timestamp::from_second(580).unwrap());
    assert_eq!(verdict_of(draft(&mut over, sample)), None, "volumes go after the sandbox");
    let mut tried = heard(Complaint::NetworkTeardown, CNI);
    let What::Said(mut line) = said(UID, Complaint::StillMounted, "unlinkat", 580) else {
        panic!()
    };
    (line.component, line.volume) = (Component::Kubelet, "v".into());
    tried.take(at(600), What::Said(line));
    assert_eq!(
        verdict_of(draft(&mut tried, pod(Some(false)))),
        None,
        "kubelet does not try before"
    );
    // kubelet up to 1.21 tears volumes down while the sandbox fails to stop: the log lines about each stop decide.
    let report = |report, second| {
        let What::Said(line) = said(UID, Complaint::NetworkTeardown, "StopPodSandbox", second)
        else {
            panic!()
        };
        What::Said(Box::new(Said { complaint: None, report: Some(report), ..*line }))
    };
    let torn_down = || {
        let mut sample = pod(Some(false));
        sample.pods[0].volume_removed = Some(Timestamp::from_second(580).unwrap());
        sample
    };
    let mut fails = heard(Complaint::NetworkTeardown, CNI);
    fails.take(at(600), report(Report::SandboxStops, 569));
    let likely = Some(("cni-teardown-failed", Certainty::Likely));
    assert_eq!(verdict_of(draft(&mut fails, torn_down())), likely);
    fails.take(at(600), report(Report::SandboxStopped, 590));
    assert_eq!(verdict_of(draft(&mut fails, torn_down())), None);
    let mut gone = heard(Complaint::NetworkTeardown, CNI);
    assert!(draft(&mut gone, pod(Some(false))).is_some());
    let no_pods = NodeSample { at: at(604), ..NodeSample::default() };
    let verdicts = gone.take(at(604), What::Sample(no_pods.into())).verdicts;
    assert!(matches!(verdicts[..], [Verdict::Over { .. }]), "{verdicts:?}");
}

/// As in containerd pull request 10123.
const DENIED: &str = "failed to kill container \"aa\": unknown error after kill: runc did not terminate \
    successfully: exit status 1: unable to signal init: permission denied";

fn with_group(mut sample: NodeSample) -> NodeSample {
    sample.cgroups.push(testing::pod_group(UID));
    sample
}

#[test]
fn a_refused_signal_is_likely_where_processes_are_left() {
    let verdict = |sample| verdict_of(draft(&mut heard(Complaint::SignalDenied, DENIED), sample));
    let id = "apparmor-signal-denied";
    assert_eq!(verdict(with_group(pod(Some(true)))), Some((id, Certainty::Likely)));
    assert_eq!(verdict(pod(Some(true))), Some((id, Certainty::Possible)), "no process was read");
    assert_eq!(verdict(pod(Some(false))), None, "another process has killed them");
    // As in moby pull request 47749.
    let kernel = "apparmor=\"DENIED\" operation=\"signal\" class=\"signal\" profile=\"docker-default\" \
        pid=9289 comm=\"runc\" requested_mask=\"receive\" denied_mask=\"receive\" signal=kill peer=\"runc\"";
    let mut alone = heard(Complaint::SignalDenied, DENIED);
    alone.take(at(600), said("", Complaint::SignalDenied, kernel, 570));
    let draft = draft(&mut alone, with_group(pod(Some(true)))).unwrap();
    assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
    assert!(draft.evidence.iter().any(|fact| fact.fact.contains("docker-default")), "{draft:?}");
    assert_eq!(
        draft.doubts,
        ["whether the line in the kernel's log is about this pod's container"]
    );
}

/// The root file system of a container, mounted there, of a pod.
fn left(container: &str, point: &str, pod: &str) -> LeftRootfs {
    let mount = Mounted { what: "overlay".into(), namespace: 4, ..testing::mounted(point, 7) };
    let (container, pod) = (container.into(), pod.into());
    LeftRootfs { target_id: 8, target: Arc::new(Target::unknown()), container, pod, mount }
}

/// A command uses an ID from a log only if the runtime's own state has it for the same pod, and a service only if a shim
/// of the pod runs in it.
#[test]
fn what_only_a_log_names_is_in_no_command() {
    const ID: &str = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task";
    let commands = |rootfs: LeftRootfs, group: &str| -> Vec<String> {
        let mut sample = with_group(pod(Some(false)));
        sample.cgroups[0].shims = vec![Shim { group: Some(group.into()), ..testing::shim() }];
        sample.rootfs = vec![rootfs];
        let remedies = draft(&mut heard(Complaint::StateLost, LOST), sample).unwrap().remedies;
        remedies.into_iter().filter_map(|remedy| remedy.command).collect()
    };
    let point = format!("{BUNDLES}/k8s.io/{ID}/rootfs");
    let own = pod(None).pods[0].uid.clone();
    assert_eq!(
        commands(left(ID, &point, &own), "/system.slice/containerd.service"),
        [
            format!("ctr --namespace k8s.io task delete --force {ID}"),
            "systemctl restart containerd.service".to_owned()
        ]
    );
    let nested = "/kubepods/podu/system.slice/containerd.service";
    for foreign in [
        left(ID, &point, "another"),
        left("aa", &point, &own),
        left(ID, "/somewhere/else/rootfs", &own),
        left(ID, &format!("{BUNDLES}/$(reboot)/{ID}/rootfs"), &own),
        left(ID, &format!("{BUNDLES}/--address=x/{ID}/rootfs"), &own),
    ] {
        assert!(commands(foreign, nested).is_empty());
    }
}

/// As in containerd issue 4016.
const LOST: &str = "StopPodSandbox for \"bb\" failed: failed to stop container \
    \"dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc\": failed to kill container: unknown \
    error after kill: runc did not terminate sucessfully: container does not exist";

#[test]
fn a_container_that_the_runtime_does_not_find_is_likely_where_no_process_is_left() {
    let verdict =
        |populated| draft(&mut heard(Complaint::StateLost, LOST), pod(populated)).unwrap();
    let id = "shim-or-containerd-state-lost";
    let likely = verdict(Some(false));
    likely.assert_is(id, Certainty::Likely);
    assert!(likely.remedies.iter().all(|remedy| remedy.command.is_none()), "only a log names it");
    assert_eq!(verdict(Some(true)).certainty(), Certainty::Possible);
}

#[test]
fn a_runtime_that_does_not_answer_is_likely_if_it_answers_no_request() {
    let text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let mut alone = heard(Complaint::NoAnswer, text);
    let possible = Some(("runtime-hang", Certainty::Possible));
    assert_eq!(verdict_of(draft(&mut alone, pod(Some(false)))), possible);
    let mut once = Alone::<RuntimeSays>::new();
    once.take(at(600), said(UID, Complaint::NoAnswer, text, 590));
    assert_eq!(verdict_of(draft(&mut once, pod(Some(false)))), None, "one timeout is a slow stop");
    let pleg = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
    alone.take(at(600), said("", Complaint::NoAnswer, pleg, 595));
    let draft = draft(&mut alone, pod(Some(false))).unwrap();
    assert!(draft.evidence.iter().any(|fact| fact.fact.contains("PLEG")), "{draft:?}");
    // The sample does not say whether a disk is full.
    assert_eq!(draft.certainty(), Certainty::Possible, "{:?}", draft.not_known());
}

/// As in cri-o's issue 9754: its log has the request, and no result.
#[test]
fn a_runtime_that_says_nothing_of_a_stop_that_it_was_asked_for_is_named() {
    let text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let report = |report, second| {
        let at = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::CriO, "log of cri-o (pid 40), /log", UID, at, "x");
        What::Said(Box::new(Said { report: Some(report), ..said }))
    };
    let of_kubelet = |second| {
        let at = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 7), /log", UID, at, text);
        What::Said(Box::new(Said { complaint: Some(Complaint::NoAnswer), ..said }))
    };
    let finding = |more: &[What]| {
        let mut alone = Alone::<RuntimeSays>::new();
        let asked = report(Report::SandboxStops, 445);
        for what in [of_kubelet(450), of_kubelet(570)].iter().chain(more).chain([&asked]) {
            alone.take(at(600), what.clone());
        }
        let runtimes = vec![runtime(Component::CriO, "/run/crio/crio.sock")];
        let spaces = vec![space(1 << 30, at(602))];
        draft(&mut alone, NodeSample { runtimes, spaces, ..with_group(pod(Some(true))) }).unwrap()
    };
    let silent = finding(&[]);
    assert_eq!((silent.id(), silent.certainty()), ("runtime-hang", Certainty::Likely));
    assert_eq!(holder_of(&silent.held_by), "cri-o (pid 40)");
    let stopped = finding(&[report(Report::SandboxStopped, 446)]);
    assert_eq!((stopped.certainty(), stopped.held_by), (Certainty::Possible, None));
}

/// While kubelet logs this, it syncs no pod and logs nothing about one.
#[test]
fn a_runtime_that_is_down_holds_pods_that_are_to_go_and_have_processes() {
    let down = "container runtime is down";
    let hears = |last: i64, is_to_go: bool| {
        let mut alone = Alone::<RuntimeSays>::new();
        for second in [last - 5, last] {
            alone.take(at(600), said("", Complaint::NoAnswer, down, second));
        }
        if is_to_go {
            let said = Said::new(Component::Kubelet, "log", UID, Timestamp::UNIX_EPOCH, "DELETE");
            let said = Said { report: Some(Report::ToGo), ..said };
            alone.take(at(600), What::Said(Box::new(said)));
        }
        alone
    };
    let found = draft(&mut hears(597, true), pod(Some(true))).unwrap();
    assert_eq!(found.id(), "runtime-hang");
    let facts: Vec<&str> = found.evidence.iter().map(|fact| &*fact.fact).collect();
    assert!(facts[0].ends_with("container runtime is down"), "{facts:?}");
    assert!(facts.iter().any(|fact| fact.contains("has received the pod's deletion")), "{facts:?}");
    assert_eq!(
        verdict_of(draft(&mut hears(597, false), pod(Some(true)))),
        None,
        "it is not to be deleted"
    );
    assert_eq!(verdict_of(draft(&mut hears(597, true), pod(Some(false)))), None, "it has ended");
    assert_eq!(verdict_of(draft(&mut hears(560, true), pod(Some(true)))), None, "it answers again");
}

#[test]
fn a_complaint_with_a_reason_comes_first() {
    let mut alone = heard(Complaint::NoAnswer, "DeadlineExceeded");
    for second in [460, 580] {
        alone.take(at(600), said(UID, Complaint::NetworkTeardown, CNI, second));
    }
    assert_eq!(draft(&mut alone, pod(None)).map(|draft| draft.id()), Some("cni-teardown-failed"));
}

#[test]
fn a_likely_sandbox_finding_explains_why_nothing_is_unmounted() {
    let explains = |complaint, text| {
        let mut alone = heard(complaint, text);
        draft(&mut alone, pod(Some(false)));
        let path = std::path::Path::new("/k");
        let subject = Subject { target_id: 1, path, pod: UID, at: at(602) };
        alone.tracker.explains(&subject, Claim::Finding)
    };
    assert!(explains(Complaint::NetworkTeardown, CNI));
    assert!(!explains(Complaint::NoAnswer, "DeadlineExceeded"), "only possible");
}

/// As recorded with kubelet 1.20 and containerd 1.6.
const STAYS: &str = "StopContainer for \"dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc\" \
    failed: rpc error: code = Canceled desc = an error occurs during waiting for container \
    \"dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc\" to be killed: context canceled";

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
    assert_eq!(with('S').id(), "shim-or-containerd-state-lost");
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

/// kata-containers#10969, #4043 and #635, gvisor#11308.
#[test]
fn a_sandbox_with_a_kernel_of_its_own_is_ended_by_its_processes() {
    let sample = |shim: &str, tasks: Vec<Task>| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = tasks;
        sample.cgroups[0].shims = vec![Shim { comm: shim.into(), ..shim_of_shim('S') }];
        sample
    };
    let machine = || task("/k/pod/kata_aa");
    let own_shim = || Task { pid: 41, tid: 41, ..task("/k/pod/kata_aa") };
    let silent = "failed to \"KillPodSandbox\": rpc error: code = DeadlineExceeded";
    for (complaint, text) in [(Complaint::NoAnswer, silent), (Complaint::ContainerStays, STAYS)] {
        let kata = "containerd-shim-kata-v2";
        let of = |shim, tasks| draft(&mut heard(complaint, text), sample(shim, tasks)).unwrap();
        let both = of(kata, vec![own_shim(), machine()]);
        both.assert_is("sandbox-not-stopped", Certainty::Likely);
        let words: Vec<String> = both.remedies.iter().map(|it| it.words().to_owned()).collect();
        assert!(words[0].ends_with("kill -9 7") && words[1].ends_with("kill -9 41"), "{words:?}");
        let alone = of(kata, vec![own_shim()]);
        assert!(alone.remedies[0].words().ends_with("kill -9 41"), "{:?}", alone.remedies);
        let killed = Task { killed: true, ..machine() };
        let ends = draft(&mut heard(complaint, text), sample(kata, vec![own_shim(), killed]));
        assert_ne!(ends.map(|it| it.id()), Some("sandbox-not-stopped"), "it is to end");
        let runc =
            draft(&mut heard(complaint, text), sample("containerd-shim-runc-v2", vec![machine()]));
        assert_ne!(runc.map(|it| it.id()), Some("sandbox-not-stopped"));
    }
    // A single sandbox does not explain a runtime that answers no request.
    let mut all = heard(Complaint::NoAnswer, silent);
    for second in [560, 590] {
        all.take(at(600), said("", Complaint::NoAnswer, "PLEG is not healthy", second));
    }
    let hangs = draft(&mut all, sample("containerd-shim-kata-v2", vec![machine()]));
    assert_eq!(hangs.map(|it| it.id()), Some("runtime-hang"));
}

fn task(group: &str) -> Task {
    Task { group: group.into(), ..testing::task("sleep", 7) }
}

fn shim_of_shim(state: char) -> Shim {
    let wait_channel = (state == 'D').then(|| "jbd2_log_wait_commit".into());
    Shim { state, wait_channel, ..testing::shim() }
}

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

fn dockerd(connections: &[u64]) -> Runtime {
    let connections = connections.to_vec();
    Runtime { connections, ..runtime(Component::Dockerd, "/run/docker.sock") }
}

fn client(command: &str, since: u64, request: Request) -> Client {
    let (since, command) = (at(since), command.into());
    Client { pid: 77, since, component: Component::Other, command, request }
}

/// Takes a sample at each of these seconds and answers each question; returns the seconds of the questions.
fn asked_of_silent_daemon(
    silent: &mut SilentDaemons,
    seconds: &[u64],
    connections: &[u64],
    who: &[Client],
) -> Vec<u64> {
    let mut asked = Vec::new();
    for second in seconds {
        let runtimes = vec![dockerd(connections)];
        let sample = NodeSample { at: at(*second), runtimes, ..NodeSample::default() };
        for pid in silent.sampled(&sample) {
            asked.push(*second);
            silent.answered(pid, who, at(*second));
        }
    }
    asked
}

#[test]
fn a_connection_that_stays_is_asked_about_once() {
    let mut silent = SilentDaemons::default();
    let kubelet = [client("kubelet", 1, Request::Read), client("docker events", 1, Request::Read)];
    let every = [100, 105, 110, 115, 120, 130, 140];
    assert_eq!(asked_of_silent_daemon(&mut silent, &every, &[1, 2], &kubelet), [110]);
    assert_eq!(
        asked_of_silent_daemon(&mut silent, &[150, 155], &[1, 2, 3], &kubelet),
        Vec::<u64>::new(),
        "it is new"
    );
    assert_eq!(asked_of_silent_daemon(&mut silent, &[160, 165], &[1, 2, 3], &kubelet), [160]);
    assert!(silent.of(&dockerd(&[1])).is_none());
    assert_eq!(
        asked_of_silent_daemon(&mut silent, &[170, 180, 190], &[], &kubelet),
        Vec::<u64>::new()
    );
}

#[test]
fn a_quick_request_that_lasts_is_unanswered() {
    let of = |command: &str, request| {
        let mut silent = SilentDaemons::default();
        let who = [client(command, 99, request)];
        let seconds: Vec<u64> = (100..140).step_by(2).collect();
        asked_of_silent_daemon(&mut silent, &seconds, &[1], &who);
        silent.of(&dockerd(&[1])).map(|it| it.since)
    };
    for quick in ["docker ps", "docker version", "crictl pods", "docker container ls"] {
        assert_eq!(of(quick, Request::Read), Some(at(99)), "{quick}");
    }
    for slow in ["docker", "docker run", "docker volume ls", "docker inspect", "kubelet", "evil ps"]
    {
        assert_eq!(of(slow, Request::Read), None, "{slow}");
    }
    assert_eq!(of("docker attach", Request::Unread), None, "the container reads it");
    assert_eq!(of("kubelet", Request::Pending), Some(at(110)), "since it was seen");
}

#[test]
fn a_client_whose_connection_has_closed_was_answered() {
    let mut silent = SilentDaemons::default();
    let who = [client("docker ps", 99, Request::Read)];
    let seconds: Vec<u64> = (100..140).step_by(2).collect();
    asked_of_silent_daemon(&mut silent, &seconds, &[1], &who);
    assert!(silent.of(&dockerd(&[1])).is_some());
    asked_of_silent_daemon(&mut silent, &[140], &[], &who);
    assert!(silent.of(&dockerd(&[])).is_none());
}

const SOCKET: &str = "/run/containerd/containerd.sock";

fn shim_of_state(namespace: &str) -> Shim {
    let of = ShimOf::Containerd { socket: SOCKET.into(), namespace: namespace.into() };
    Shim { group: Some("/system.slice/containerd.service".into()), of: Some(of), ..testing::shim() }
}

fn runtime_of_state(component: Component, socket: &str, halted: Option<Halted>) -> Runtime {
    let pid = if socket == SOCKET { 40 } else { 43 };
    Runtime { pid, halted, sockets: vec![socket.into()], ..testing::runtime(component) }
}

fn containerd(halted: Option<Halted>) -> Runtime {
    runtime_of_state(Component::Containerd, SOCKET, halted)
}

fn gone() -> GoneRuntime {
    let group = Some("/system.slice/containerd.service".into());
    let (component, socket) = (Component::Containerd, Some(SOCKET.into()));
    GoneRuntime { component, socket, shims: 1, group }
}

/// A pod that runs, with its shim.
fn node_of_state(runtimes: Vec<Runtime>, gone: Vec<GoneRuntime>) -> NodeSample {
    let pod = PodState { populated: Some(true), ..pod_state(UID) };
    let target = Target { pod: Some(named()), ..Target::unknown() }.into();
    let shims = vec![shim_of_state("k8s.io")];
    let group = PodGroup { target, shims, ..testing::pod_group(UID) };
    NodeSample { pods: vec![pod], cgroups: vec![group], runtimes, gone, ..NodeSample::default() }
}

fn named() -> Pod {
    Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("web".into()) }
}

fn to_go() -> Alone<RuntimeStates> {
    let mut alone = Alone::<RuntimeStates>::new();
    let time = Timestamp::from_second(1).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, time, "");
    let said = Said { report: Some(Report::ToGo), ..said };
    alone.take(at(10), What::Said(Box::new(said)));
    alone
}

#[test]
fn a_pod_waits_for_a_runtime_that_is_stopped() {
    let mut alone = to_go();
    let stopped = node_of_state(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert!(
        last_verdicts(&mut alone, &[20, 22], &stopped).is_empty(),
        "as by a debugger, for a moment"
    );
    let [draft] = found(last_verdicts(&mut alone, &[24, 26], &stopped)).try_into().unwrap();
    draft.assert_is("runtime-hang", Certainty::Firm);
    assert_eq!((draft.blocks_deletion, draft.target.pod.clone()), (Some(true), Some(named())));
    assert!(draft.explanation.starts_with("containerd (pid 40) answers no request"), "{draft:?}");
    let command = draft.remedies[0].command.as_deref().unwrap();
    assert!(command.contains("kill -CONT 40"), "{command}");
    let pod = Subject { target_id: 0, path: std::path::Path::new(""), pod: UID, at: at(26) };
    assert!(alone.tracker.explains(&pod, Claim::Finding));
    let runs = node_of_state(vec![containerd(None)], Vec::new());
    let over = last_verdicts(&mut alone, &[28], &runs);
    assert!(matches!(over[..], [Verdict::Over { tracker: TrackerId::RuntimeState, .. }]));
    assert!(!alone.tracker.explains(&pod, Claim::Suspicion));
}

#[test]
fn a_pod_waits_for_a_runtime_without_descriptors() {
    let mut alone = to_go();
    let halted = |hard| Halted::NoDescriptors { open: 1024, most: 1024, hard };
    let node = |hard| node_of_state(vec![containerd(Some(halted(hard)))], Vec::new());
    assert!(last_verdicts(&mut alone, &[20], &node(None)).is_empty(), "for a moment");
    let command = |draft: &Draft| draft.remedies[0].command.clone().unwrap();
    let [draft] = found(last_verdicts(&mut alone, &[26], &node(None))).try_into().unwrap();
    draft.assert_is("runtime-hang", Certainty::Firm);
    assert!(draft.evidence[0].fact.contains("1024 file descriptors open, of 1024"), "{draft:?}");
    assert!(command(&draft).ends_with("prlimit --pid 40 --nofile=2048:"), "{draft:?}");
    let [draft] = found(last_verdicts(&mut alone, &[28], &node(Some(1024)))).try_into().unwrap();
    assert!(command(&draft).ends_with("--nofile=2048:2048"), "the hard limit, too: {draft:?}");
}

#[test]
fn a_pod_waits_for_a_runtime_that_is_gone_for_longer_than_a_restart_takes() {
    let mut alone = to_go();
    let node = node_of_state(Vec::new(), vec![gone()]);
    assert!(last_verdicts(&mut alone, &[20, 28], &node).is_empty(), "it may be restarted");
    let [draft] = found(last_verdicts(&mut alone, &[30], &node)).try_into().unwrap();
    draft.assert_is("runtime-down", Certainty::Firm);
    assert!(draft.evidence[0].fact.contains(SOCKET), "{draft:?}");
    let command = draft.remedies[1].command.as_deref();
    assert_eq!(command, Some("systemctl start containerd.service"));
}

#[test]
fn a_pod_that_is_not_known_to_be_deleted_waits_for_nothing() {
    let mut alone = Alone::<RuntimeStates>::new();
    let node = node_of_state(Vec::new(), vec![gone()]);
    let [draft] = found(last_verdicts(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!((draft.blocks_deletion, &draft.target.pod), (None, &None));
    let other = NodeSample { gone: Vec::new(), ..node };
    assert_eq!(last_verdicts(&mut alone, &[32], &other).len(), 1, "over");
}

#[test]
fn another_runtimes_fault_does_not_concern_the_pod() {
    let mut alone = to_go();
    let other = runtime_of_state(Component::Containerd, "/run/k3s/c.sock", Some(Halted::Stopped));
    let node = node_of_state(vec![containerd(None), other], Vec::new());
    let [draft] = found(last_verdicts(&mut alone, &[20, 30], &node)).try_into().unwrap();
    assert_eq!(draft.blocks_deletion, None);
    assert_eq!(draft.path, std::path::Path::new("/run/k3s/c.sock"));
}

#[test]
fn a_pod_that_a_sample_leaves_out_still_waits() {
    let mut alone = to_go();
    let node = node_of_state(vec![containerd(Some(Halted::Stopped))], Vec::new());
    assert_eq!(last_verdicts(&mut alone, &[20, 30], &node).len(), 1);
    let others = NodeSample { cgroups: Vec::new(), ..node.clone() };
    assert!(last_verdicts(&mut alone, &[32, 34], &others).is_empty());
    assert_eq!(last_verdicts(&mut alone, &[36], &node).len(), 1);
}

#[test]
fn a_container_of_docker_needs_both_its_daemons() {
    let container = |shim: Option<Shim>| ContainerState { shim, ..testing::container_state() };
    let dockerd = |halted| runtime_of_state(Component::Dockerd, "/run/docker.sock", halted);
    let causes = |shim: Option<Shim>, runtimes: Vec<Runtime>| {
        let containers = vec![container(shim)];
        let node = NodeSample { containers, runtimes, ..NodeSample::default() };
        let drafts = found(last_verdicts(&mut Alone::<RuntimeStates>::new(), &[20, 30], &node));
        let named = |it: &crate::verdict::Draft| {
            let of = it.target.container.clone();
            (of, it.blocks_deletion, it.explanation.split(' ').next().unwrap().to_owned())
        };
        drafts.iter().map(named).collect::<Vec<_>>()
    };
    let stopped = Some(Halted::Stopped);
    let of = |name: &str| vec![(Some(id()), Some(true), name.to_owned())];
    let with_shim = |runtimes| causes(Some(shim_of_state("moby")), runtimes);
    assert_eq!(with_shim(vec![containerd(None), dockerd(stopped.clone())]), of("dockerd"));
    assert_eq!(with_shim(vec![containerd(stopped.clone()), dockerd(None)]), of("containerd"));
    assert_eq!(with_shim(vec![containerd(None), dockerd(None)]), []);
    assert_eq!(causes(None, vec![dockerd(stopped.clone())]), of("dockerd"));
    let one_of_two = causes(None, vec![dockerd(stopped), Runtime { pid: 44, ..dockerd(None) }]);
    assert_eq!(one_of_two[0].1, None, "it is not known whose the container is");
}

/// The daemon gets no request: its clients show that it does not answer.
#[test]
fn a_daemon_that_runs_and_does_not_answer() {
    let dockerd = |connections: &[u64], halted| {
        let group = Some("/system.slice/docker.service".into());
        let connections = connections.to_vec();
        Runtime {
            group,
            connections,
            ..runtime_of_state(Component::Dockerd, "/run/docker.sock", halted)
        }
    };
    let client = |pid, command: &str, request| Client {
        pid,
        since: at(99),
        component: Component::Other,
        command: command.into(),
        request,
    };
    let (ps, info) =
        (client(77, "docker ps", Request::Read), client(78, "docker info", Request::Read));
    let look = |clients: &[Client], other: Option<Runtime>, is_measured: bool| {
        let mut alone = Alone::<RuntimeStates>::new();
        let mut last = Vec::new();
        for second in (100..140).step_by(2) {
            let runtimes =
                [Some(dockerd(&[5], None)), other.clone()].into_iter().flatten().collect();
            let spaces = is_measured.then(|| space(1 << 29, at(second))).into_iter().collect();
            let sample = NodeSample { at: at(second), runtimes, spaces, ..NodeSample::default() };
            let steps = alone.take(sample.at, What::Sample(sample.into()));
            last = steps.verdicts;
            for query in steps.queries {
                let answer = Box::new(Answer::Clients(Ok(clients.to_vec())));
                let query = Box::new(query);
                alone.take(at(second), What::Answer { query, answer });
            }
        }
        found(last)
    };
    let of = |clients: &[Client], other| look(clients, other, true);
    let [no_disk_seen] = look(&[ps.clone(), info.clone()], None, false).try_into().unwrap();
    assert_eq!(no_disk_seen.certainty(), Certainty::Likely, "a disk may be full");
    let [both] = of(&[ps.clone(), info], None).try_into().unwrap();
    both.assert_is("runtime-hang", Certainty::Firm);
    assert_eq!((both.first, both.blocks_deletion), (at(99), None));
    let fact = &both.evidence[0].fact;
    assert!(fact.contains("docker ps (pid 77") && fact.contains("docker info (pid 78"), "{fact}");
    assert_eq!(both.remedies[1].command.as_deref(), Some("systemctl restart docker.service"));
    let [one] = of(std::slice::from_ref(&ps), None).try_into().unwrap();
    assert_eq!(one.certainty(), Certainty::Possible, "one alone may be slow");
    let [shut] = of(&[client(79, "kubelet", Request::Pending)], None).try_into().unwrap();
    assert_eq!(shut.certainty(), Certainty::Firm, "{:?}", shut.not_known());
    assert!(shut.explanation.contains("no longer accepts connections"), "{}", shut.explanation);
    assert!(of(&[client(79, "docker volume ls", Request::Read)], None).is_empty());
    let stopped = of(&[ps], Some(containerd(Some(Halted::Stopped))));
    let [stopped] = stopped.try_into().unwrap();
    assert!(stopped.explanation.starts_with("containerd (pid 40)"), "{}", stopped.explanation);
}

/// As in kubernetes issue 129193 and nydus-snapshotter issue 631.
#[test]
fn a_runtime_that_no_client_can_connect_to_has_lost_its_sockets_file() {
    let text = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unavailable desc = \
        connection error: desc = \\\"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: \
        no such file or directory\\\"\"";
    let verdict = |socket: &str| {
        let mut sample = pod(Some(true));
        sample.runtimes = vec![runtime(Component::Containerd, socket)];
        draft(&mut heard(Complaint::SocketRefused, text), sample)
    };
    for socket in ["/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock"] {
        let draft = verdict(socket).unwrap();
        draft.assert_is("runtime-socket-gone", Certainty::Likely);
        assert!(draft.remedies[0].words().contains("restart containerd.service"));
        assert_eq!(holder_of(&draft.held_by), "containerd (pid 40)");
    }
    assert!(verdict("/run/k3s/containerd.sock").is_none(), "it is not the one that kubelet calls");
    let of_docker = "failed to \"KillContainer\" for \"front\" with KillContainerError: \"rpc error: code = Unknown desc = Cannot \
        connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\"";
    let mut sample = pod(Some(true));
    sample.runtimes = vec![runtime(Component::Dockerd, "/run/docker.sock")];
    let draft = draft(&mut heard(Complaint::SocketRefused, of_docker), sample).unwrap();
    draft.assert_is("runtime-socket-gone", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "dockerd (pid 43)");
}

/// gpu-operator#303.
#[test]
fn a_runtime_that_listens_nowhere_has_not_finished_its_start() {
    let text = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing dial unix \
        /run/containerd/containerd.sock: connect: connection refused\"";
    let silent = || Runtime { sockets: Vec::new(), ..runtime(Component::Containerd, "/") };
    let verdict = |runtimes: Vec<Runtime>| {
        let sample = NodeSample { runtimes, ..pod(Some(true)) };
        draft(&mut heard(Complaint::SocketRefused, text), sample)
    };
    let draft = verdict(vec![silent()]).unwrap();
    draft.assert_is("runtime-socket-gone", Certainty::Likely);
    assert!(draft.remedies[0].words().contains("journalctl --unit containerd.service"));
    assert_eq!(draft.must, Some("finish its start"));
    assert!(verdict(vec![silent(), silent()]).is_none(), "one of two");
    let of_one_line = |of_node: &[i64]| {
        let mut alone = Alone::<RuntimeSays>::new();
        alone.take(at(600), said(UID, Complaint::SocketRefused, text, 570));
        for second in of_node {
            alone.take(at(600), said("", Complaint::SocketRefused, text, *second));
        }
        let sample = NodeSample { runtimes: vec![silent()], ..pod(Some(true)) };
        found(alone.take(sample.at, What::Sample(sample.into())).verdicts).pop().unwrap()
    };
    assert_eq!(of_one_line(&[]).certainty(), Certainty::Possible);
    assert_eq!(of_one_line(&[590, 600]).certainty(), Certainty::Likely, "kubelet lists no pods");
    assert!(verdict(vec![Runtime { component: Component::CriO, ..silent() }]).is_none());
}

/// As in containerd issues 8425 and 12678, and cri-o issue 9521: nothing of the container is left, or all of it.
#[test]
fn a_runtime_that_fails_by_itself_must_act() {
    let id = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    let removed = format!(
        "Failed to remove container: rpc error: code = NotFound desc = get container info: container \"{id}\" in namespace \
         \"k8s.io\": not found"
    );
    let handler = format!(
        "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unknown desc = failed to stop \
         container {id}: failed to find runtime handler nvidia from runtime list map[crun:0xc0 runc:0xc1]\""
    );
    let cases = [
        (Complaint::StateLost, removed, "shim-or-containerd-state-lost", false),
        (Complaint::HandlerGone, handler, "runtime-handler-gone", true),
    ];
    for (complaint, text, cause, populated) in cases {
        let mut sample = pod(Some(populated));
        sample.runtimes = vec![runtime(Component::CriO, "/run/crio/crio.sock")];
        let draft = draft(&mut heard(complaint, &text), sample).unwrap();
        draft.assert_is(cause, Certainty::Likely);
        assert_eq!(holder_of(&draft.held_by), "cri-o (pid 40)");
        let first = match populated {
            true => "restore the handler nvidia in the runtime's configuration",
            false => "restart cri-o.service",
        };
        assert!(draft.remedies[0].words().contains(first), "{:?}", draft.remedies);
    }
}
