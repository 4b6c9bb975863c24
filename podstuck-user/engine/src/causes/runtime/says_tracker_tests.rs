//! What runtimes and kubelet have said, as cited, against verdicts.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::{
    model::{
        evidence::Certainty,
        identity::{Component, Target},
        mounted::Mounted,
        mounts::Device,
        pod_group::PodGroup,
    },
    testing::{Alone, found, pod_state},
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
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

fn told(draft: Option<Draft>) -> Option<(&'static str, Certainty)> {
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
    assert_eq!(told(draft(&mut once, pod(Some(false)))), possible);
    let mut old = Alone::<RuntimeSays>::new();
    for second in [10, 20] {
        old.take(at(600), said(UID, Complaint::NetworkTeardown, CNI, second));
    }
    assert_eq!(told(draft(&mut old, pod(Some(false)))), None);
    let mut over = heard(Complaint::NetworkTeardown, CNI);
    let mut sample = pod(Some(false));
    sample.pods[0].volume_removed = Some(Timestamp::from_second(580).unwrap());
    assert_eq!(told(draft(&mut over, sample)), None, "volumes go after the sandbox");
    let mut tried = heard(Complaint::NetworkTeardown, CNI);
    let What::Said(mut line) = said(UID, Complaint::StillMounted, "unlinkat", 580) else {
        panic!()
    };
    (line.component, line.volume) = (Component::Kubelet, "v".into());
    tried.take(at(600), What::Said(line));
    assert_eq!(told(draft(&mut tried, pod(Some(false)))), None, "kubelet does not try before");
    let mut gone = heard(Complaint::NetworkTeardown, CNI);
    assert!(draft(&mut gone, pod(Some(false))).is_some());
    let nobody = NodeSample { at: at(604), ..NodeSample::default() };
    let verdicts = gone.take(at(604), What::Sample(nobody.into())).verdicts;
    assert!(matches!(verdicts[..], [Verdict::Over { .. }]), "{verdicts:?}");
}

/// As in containerd pull request 10123.
const DENIED: &str = "failed to kill container \"aa\": unknown error after kill: runc did not terminate \
    successfully: exit status 1: unable to signal init: permission denied";

fn with_group(mut sample: NodeSample) -> NodeSample {
    sample.cgroups.push(PodGroup {
        target_id: 7,
        target: Target::unknown().into(),
        uid: UID.into(),
        path: "/sys/fs/cgroup/x".into(),
        has_containers: true,
        frozen: None,
        tasks: Vec::new(),
        shims: Vec::new(),
    });
    sample
}

#[test]
fn a_refused_signal_is_likely_where_processes_are_left() {
    let verdict = |sample| told(draft(&mut heard(Complaint::SignalDenied, DENIED), sample));
    let id = "apparmor-signal-denied";
    assert_eq!(verdict(with_group(pod(Some(true)))), Some((id, Certainty::Likely)));
    assert_eq!(verdict(pod(Some(true))), Some((id, Certainty::Possible)), "nobody looked at them");
    assert_eq!(verdict(pod(Some(false))), None, "somebody has killed them");
    // As in moby pull request 47749.
    let kernel = "apparmor=\"DENIED\" operation=\"signal\" class=\"signal\" profile=\"docker-default\" \
        pid=9289 comm=\"runc\" requested_mask=\"receive\" denied_mask=\"receive\" signal=kill peer=\"runc\"";
    let mut alone = heard(Complaint::SignalDenied, DENIED);
    alone.take(at(600), said("", Complaint::SignalDenied, kernel, 570));
    let draft = draft(&mut alone, with_group(pod(Some(true)))).unwrap();
    assert_eq!(draft.certainty(), Certainty::Likely);
    assert!(draft.evidence.iter().any(|fact| fact.fact.contains("docker-default")), "{draft:?}");
    assert_eq!(
        draft.doubts,
        ["whether it is this pod's container that the kernel's log speaks of"]
    );
}

/// The root file system of a container, mounted there, of a pod.
fn left(container: &str, point: &str, pod: &str) -> LeftRootfs {
    let mount = Mounted {
        point: point.into(),
        id: 7,
        what: "overlay".into(),
        is_fuse: false,
        device: Device::default(),
        root: "/".into(),
        shared: false,
        namespace: 4,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
    };
    let (container, pod) = (container.into(), pod.into());
    LeftRootfs { target_id: 8, target: Arc::new(Target::unknown()), container, pod, mount }
}

/// An id from a log is used where the runtime's own state has it, of the same pod; a service where a shim of
/// the pod runs in it.
#[test]
fn what_only_a_log_names_is_in_no_command() {
    const ID: &str = "dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc";
    const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task";
    let commands = |rootfs: LeftRootfs, group: &str| -> Vec<String> {
        let mut sample = with_group(pod(Some(false)));
        let comm = "containerd-shim".into();
        let group = Some(group.into());
        let shim =
            Shim { pid: 5, comm, state: 'S', started: 3, group, wait_channel: None, of: None };
        sample.cgroups[0].tasks.clear();
        sample.cgroups[0].shims = vec![shim];
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
    assert_eq!((likely.id(), likely.certainty()), (id, Certainty::Likely));
    assert!(likely.remedies.iter().all(|remedy| remedy.command.is_none()), "only a log names it");
    assert_eq!(verdict(Some(true)).certainty(), Certainty::Possible);
}

#[test]
fn a_runtime_that_does_not_answer_is_likely_where_it_answers_nobody() {
    let text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let mut alone = heard(Complaint::NoAnswer, text);
    let possible = Some(("dockerd-hang", Certainty::Possible));
    assert_eq!(told(draft(&mut alone, pod(Some(false)))), possible);
    let mut once = Alone::<RuntimeSays>::new();
    once.take(at(600), said(UID, Complaint::NoAnswer, text, 590));
    assert_eq!(told(draft(&mut once, pod(Some(false)))), None, "one timeout is a slow stop");
    let pleg = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
    alone.take(at(600), said("", Complaint::NoAnswer, pleg, 595));
    let draft = draft(&mut alone, pod(Some(false))).unwrap();
    assert!(draft.evidence.iter().any(|fact| fact.fact.contains("PLEG")), "{draft:?}");
    // Whether a disk is full was not looked at.
    assert_eq!(draft.certainty(), Certainty::Possible);
}

/// kubelet syncs no pod while it says so, and then nothing is said of one.
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
    assert_eq!(found.id(), "dockerd-hang");
    let facts: Vec<&str> = found.evidence.iter().map(|fact| &*fact.fact).collect();
    assert!(facts[0].ends_with("container runtime is down"), "{facts:?}");
    assert!(facts.iter().any(|fact| fact.contains("is to be deleted")), "{facts:?}");
    assert_eq!(told(draft(&mut hears(597, false), pod(Some(true)))), None, "nobody deletes it");
    assert_eq!(told(draft(&mut hears(597, true), pod(Some(false)))), None, "it has ended");
    assert_eq!(told(draft(&mut hears(560, true), pod(Some(true)))), None, "it answers again");
}

#[test]
fn why_a_container_does_not_go_is_told_before_that_it_does_not() {
    let mut alone = heard(Complaint::NoAnswer, "DeadlineExceeded");
    for second in [460, 580] {
        alone.take(at(600), said(UID, Complaint::NetworkTeardown, CNI, second));
    }
    assert_eq!(draft(&mut alone, pod(None)).map(|draft| draft.id()), Some("cni-teardown-failed"));
}

#[test]
fn nobody_is_said_not_to_unmount_while_the_sandbox_is_there() {
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
    assert_eq!(told(draft(&mut alone, in_group(here))), None, "it is there, and the runtime works");
    let lost = Some(("shim-or-containerd-state-lost", Certainty::Likely));
    assert_eq!(told(draft(&mut alone, in_group("/k/pod/the-sandboxs"))), lost);
}

#[test]
fn a_shim_that_cannot_run_is_there() {
    // As recorded with containerd 1.6.
    let text = "get state for dc2ca0615937ecc648dd5a6c64aff5c0993c3b0f31dbccd55fe2849371204bdc: context deadline \
        exceeded: unknown";
    let with = |state| {
        let mut sample = with_group(pod(Some(true)));
        sample.cgroups[0].tasks = vec![task("/k/pod/dc2c")];
        let (comm, wait_channel) = ("containerd-shim".into(), None);
        let shim = Shim { pid: 5, comm, state, started: 3, group: None, wait_channel, of: None };
        sample.cgroups[0].shims = vec![shim];
        draft(&mut heard(Complaint::StateLost, text), sample).unwrap()
    };
    let stopped = with('T');
    assert_eq!((stopped.id(), stopped.certainty()), ("shim-hung", Certainty::Firm));
    assert!(stopped.remedies[0].words().ends_with("kill -CONT 5"), "{:?}", stopped.remedies);
    assert_eq!((with('D').id(), with('D').certainty()), ("shim-hung", Certainty::Likely));
    assert_eq!(with('S').id(), "shim-or-containerd-state-lost");
}

fn task(group: &str) -> Task {
    Task {
        pid: 7,
        tid: 7,
        comm: "sleep".into(),
        state: 'S',
        killed: false,
        exiting: false,
        started: 1,
        woken: None,
        moved: None,
        received: None,
        wait_channel: None,
        stack: Vec::new(),
        directory: None,
        group: group.into(),
    }
}
