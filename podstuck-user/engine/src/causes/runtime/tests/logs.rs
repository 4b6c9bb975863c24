//! What the runtime and kubelet log about a pod.

use super::*;

/// Two lines, 120 s apart, read half a minute after the second.
pub(super) fn heard(complaint: Complaint, text: &str) -> Alone<RuntimeSays> {
    let mut alone = Alone::<RuntimeSays>::new();
    for second in [450, 570] {
        alone.take(at(600), said(UID, complaint, text, second));
    }
    alone
}

pub(super) fn pod(populated: Option<bool>) -> NodeSample {
    let state = PodState { populated, ..pod_state(UID) };
    NodeSample { at: at(602), pods: vec![state], ..NodeSample::default() }
}

pub(super) fn draft(alone: &mut Alone<RuntimeSays>, sample: NodeSample) -> Option<Draft> {
    found(alone.take(sample.at, What::Sample(sample.into())).verdicts).pop()
}

pub(super) fn verdict_of(draft: Option<Draft>) -> Option<(&'static str, Certainty)> {
    draft.map(|draft| (draft.id(), draft.certainty()))
}

/// As recorded with kubelet 1.20 and containerd 1.6.
pub(super) const STAYS: &str = "StopContainer for \"dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc\" \
    failed: rpc error: code = Canceled desc = an error occurs during waiting for container \
    \"dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc\" to be killed: context canceled";

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

/// sriov-cni#250.
#[test]
fn the_first_error_of_a_plugin_may_be_the_reason_of_the_later_ones() {
    let advice = |first: &str| {
        let mut alone = Alone::<RuntimeSays>::new();
        let last = "failed (delete): Failed to get link neto1c: Link not found";
        for (text, second) in [(first, 450), (last, 560), (last, 590)] {
            alone.take(at(600), said(UID, Complaint::NetworkTeardown, text, second));
        }
        let draft = draft(&mut alone, pod(Some(false))).unwrap();
        (draft.remedies[0].words().to_owned(), format!("{:?}", draft.evidence))
    };
    let (act, facts) = advice("failed to move interface enp1s17f5 to init netns: file exists");
    assert!(act.starts_with("repair what the error of the first attempt names"), "{act}");
    assert!(facts.contains("enp1s17f5"), "{facts}");
    let (act, _) = advice("failed (delete): Failed to get link neto1c: Link not found");
    assert!(act.starts_with("restore for one attempt"), "{act}");
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

pub(super) fn with_group(mut sample: NodeSample) -> NodeSample {
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

/// As with thousands of ended containers, and with a containerd whose CRI plugin did not load.
#[test]
fn a_runtime_that_lists_nothing_holds_each_pod_that_is_to_go() {
    let long = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (16788921 vs. 16777216)";
    let unknown =
        "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService";
    for (text, way_out) in [(long, "crictl rm"), (unknown, "CRI plugin")] {
        for populated in [true, false] {
            let mut alone = Alone::<RuntimeSays>::new();
            for second in [598, 599] {
                alone.take(at(600), said("", Complaint::ListFails, text, second));
            }
            assert!(draft(&mut alone, pod(Some(populated))).is_none(), "it is not to go");
            let to_go =
                Said::new(Component::Kubelet, "log of kubelet", UID, Timestamp::UNIX_EPOCH, "");
            alone.take(at(600), What::Said(Box::new(Said { report: Some(Report::ToGo), ..to_go })));
            let draft = draft(&mut alone, pod(Some(populated))).unwrap();
            draft.assert_is("runtime-hang", Certainty::Likely);
            let words = draft.remedies[0].words();
            assert!(words.contains(way_out), "{words}");
        }
    }
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
    assert_eq!(holder_of(&found.held_by), "the container runtime");
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

/// urunc#716: containerd's own words about the container's end, and the OCI runtime's error.
#[test]
fn a_container_that_the_oci_runtime_does_not_clean_up_is_its_own() {
    const ID: &str = "4ebeb2940451fd5b439c1e794fa038f356fbbeb8d6f87f46275ab9597e3ded01";
    let text = format!(
        "Failed to handle backOff event &TaskExit{{ContainerID:{ID},ID:{ID},Pid:312,}} for {ID}: failed to handle container TaskExit \
         event: failed to stop container: unknown error after kill: /usr/local/bin/urunc did not terminate successfully: exit \
         status 1: Incorrect Usage: flag provided but not defined: -all"
    );
    let mut sample = with_group(pod(Some(true)));
    sample.cgroups[0].tasks = vec![task("/k/pod/the-sandboxs")];
    sample.cgroups[0].shims = vec![shim_of_shim('S')];
    let mut alone = heard(Complaint::StateLost, &text);
    let draft = draft(&mut alone, sample).unwrap();
    draft.assert_is("shim-or-containerd-state-lost", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "the OCI runtime urunc");
    let words: Vec<String> = draft.remedies.iter().map(|it| it.words().to_owned()).collect();
    assert!(
        words[0].starts_with("repair the OCI runtime") && words[1].contains("kill -KILL 41"),
        "{words:?}"
    );
}

/// crun src/libcrun/cgroup-utils.c: a process is left in the container's control group.
#[test]
fn what_the_oci_runtimes_error_names_is_looked_at() {
    let text = "failed to handle container TaskExit event: failed to stop container: crun did not terminate successfully: exit \
        status 1: cannot delete path `/sys/fs/cgroup/a.scope`: Device or resource busy: unknown";
    let mut alone = heard(Complaint::StateLost, text);
    let draft = draft(&mut alone, pod(Some(false))).unwrap();
    let first = draft.remedies[0].words();
    assert!(
        first.starts_with(
            "end the processes that are left in the control group /sys/fs/cgroup/a.scope"
        ),
        "{first}"
    );
}

/// CRI-O internal/oci/runtime_oci.go: kubelet's request times out, and CRI-O logs why the container does not end.
#[test]
fn a_runtime_that_logs_why_it_does_not_stop_the_pod_does_not_hang() {
    let late = "failed to \"KillContainer\": context deadline exceeded";
    let mut alone = heard(Complaint::NoAnswer, late);
    let hangs = verdict_of(draft(&mut alone, pod(Some(false))));
    assert_eq!(hangs.map(|it| it.0), Some("runtime-hang"));
    for second in [455, 575] {
        let text = "Conmon for container 0a is stopped, although the container is running";
        let What::Said(line) = said(UID, Complaint::NoAnswer, text, second) else { panic!() };
        let line = Said { complaint: None, component: Component::CriO, ..*line };
        alone.take(at(600), What::Said(Box::new(line)));
    }
    assert_eq!(verdict_of(draft(&mut alone, pod(Some(false)))), None);
}

/// containerd#11209: the directory of the configurations was removed and made again, and containerd watches the old one.
#[test]
fn a_configuration_that_is_there_is_not_to_be_restored() {
    let text = "StopPodSandbox for \"a\" failed: failed to destroy network for sandbox \"a\": cni plugin not initialized";
    let finding = |name: &str, age: u64| {
        let mut alone = heard(Complaint::NetworkTeardown, text);
        let containerd = Runtime { mnt_ns: Some(4), ..runtime(Component::Containerd, SOCKET) };
        let sample = |second| NodeSample {
            at: at(second),
            runtimes: vec![containerd.clone()],
            ..with_group(pod(Some(true)))
        };
        let mut steps = alone.take(at(602), What::Sample(sample(602).into()));
        let query = Box::new(steps.queries.pop().unwrap());
        assert_eq!(query.path, Path::new("/etc/cni/net.d"));
        let entry = Entry { name: name.into(), is_directory: false, age: Duration::from_secs(age) };
        let entries = Ok(Entries { listed: vec![entry], count: 1, directory: None });
        let found = Contents { mounts: None, entries, users: Vec::new() };
        let answer = Box::new(Answer::Directory(found));
        alone.take(at(603), What::Answer { query, answer });
        let again = alone.take(at(604), What::Sample(sample(604).into()));
        assert!(again.queries.is_empty(), "it was asked moments ago");
        draft(&mut alone, sample(606)).unwrap()
    };
    let there = finding("10-calico.conflist", 3600);
    there.assert_is("cni-teardown-failed", Certainty::Likely);
    assert_eq!(holder_of(&there.held_by), "containerd (pid 40)");
    let first = there.remedies[0].words();
    assert!(first.contains("restart containerd"), "{first}");
    assert!(there.evidence.iter().any(|it| it.fact.contains("10-calico.conflist is there")));
    for (name, age) in [("10-calico.conflist", 1), ("cni.lock", 3600)] {
        let gone = finding(name, age);
        assert!(gone.remedies[0].words().starts_with("restore the network's configuration"));
    }
}
