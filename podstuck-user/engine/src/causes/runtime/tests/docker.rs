//! Docker's records and containerd's tasks.

use super::*;

fn shim() -> Shim {
    let socket = "/run/containerd/containerd.sock".into();
    Shim { of: Some(ShimOf::Containerd { socket, namespace: "moby".into() }), ..testing::shim() }
}

fn asked(node: NodeSample) -> NodeSample {
    let container = node.out_of_step[0].container.clone();
    let containers = vec![ContainerState { container, ..testing::container_state() }];
    NodeSample { containers, ..node }
}

fn one(node: &NodeSample) -> Draft {
    let verdicts = last_verdicts(&mut Alone::<DockerStates>::new(), &[10, 20, 30], node);
    let [draft] = found(verdicts).try_into().unwrap();
    draft
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
