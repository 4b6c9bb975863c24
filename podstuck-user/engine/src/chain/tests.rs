//! Chains of waits, from facts.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;

use super::*;
use crate::{
    catalogue,
    kubelet_steps::NotAsked,
    ledger::Ledger,
    model::{
        call::Outcome,
        client::Request,
        csi::{CsiState, DriverState, Registration, VolumeData},
        errno::Errno,
        halted::{Halted, HaltedKubelet},
        identity::{Component, Pod, Target},
        mounted::Mounted,
        mounts::Device,
        node::{NodeSample, VolumeState},
        pod_group::{PodGroup, Task, Term},
        pod_record::{ContainerState, PodRecord},
        runtime::{Runtime, Shim, ShimOf, Unreaped},
        said::{Level, NamedLook, Said},
        time::{Clock, Monotonic},
        waiting::{On, Part, Waiting},
    },
    testing::{
        self, container_record, pod_group, pod_record, pod_state, reaper, runtime, task,
        volume_state,
    },
    tracker::TrackerId,
    verdict::{Draft, Verdict},
    waits::Waits,
};

const CLOCK: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));
static NO_WAITS: LazyLock<Waits> = LazyLock::new(Waits::default);
pub(crate) const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

pub(crate) fn at(stage: Stage) -> PodStage {
    let pod = Pod { uid: UID.into(), namespace: None, name: None };
    PodStage::new(pod, stage, "as seen")
}

pub(crate) fn node() -> NodeSample {
    let pods = vec![pod_state(UID)];
    NodeSample { kubelets: vec![1], pods, ..NodeSample::default() }
}

pub(crate) fn said(component: Component, text: &str) -> Said {
    Said::new(component, "log", UID, Timestamp::from_second(9).unwrap(), text)
}

/// Facts that consist of a scan only.
pub(crate) fn facts(sample: &NodeSample) -> Facts<'_> {
    Facts {
        sample,
        said: &[],
        terminating: None,
        record: None,
        causes: &[],
        waits: &NO_WAITS,
        clock: &CLOCK,
        kill_at: None,
        not_asked: None,
        has_acted: true,
        watch: None,
    }
}

/// Who must do what, and what each waits for.
fn who_waits(stage: Stage, sample: &NodeSample, said: &[Said]) -> Vec<(String, Option<String>)> {
    let facts = Facts { said, ..facts(sample) };
    let links = chain(&at(stage), &facts);
    links.into_iter().map(|link| (link.who.to_string(), link.waits_for)).collect()
}

#[test]
fn of_containers_that_live_their_process_is_the_last_link() {
    let mut web = task("web", 7);
    web.term = Some(Term::Ignored);
    let tasks = vec![task("pause", 5), web, task("sh", 9)];
    let cgroups = vec![PodGroup { tasks, ..pod_group(UID) }];
    let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
    let sample = NodeSample { cgroups, runtimes, ..node() };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        who_waits(Stage::Containers, &sample, &[]),
        [
            ("kubelet (pid 1)".into(), some("containerd")),
            ("containerd (pid 40)".into(), some("3 processes of the pod to end")),
            ("web (pid 7)".into(), some("SIGKILL, unless it exits by itself")),
        ]
    );
    let facts = facts(&sample);
    let links = chain(&at(Stage::Containers), &facts);
    let fact =
        "state S, ignores SIGTERM, no SIGKILL is pending; also alive: sh (pid 9), pause (pid 5)";
    assert_eq!(links[2].fact(), fact);
    let kill_at = Timestamp::from_second(40).ok();
    let links = chain(&at(Stage::Containers), &Facts { kill_at, ..facts });
    let until =
        "SIGKILL at 1970-01-01T00:00:40Z, when the grace period ends, unless it exits by itself";
    assert_eq!(links[2].waits_for.as_deref(), Some(until));
}

/// As in runc issue 4281 and moby issue 22312: kubelet repeats the runtime's answer, and comes to no later step.
#[test]
fn a_runtime_that_answers_each_kill_with_an_error_is_the_last_link() {
    let runtimes = vec![runtime(Component::Containerd)];
    let mut sample = NodeSample { runtimes, ..node() };
    sample.pods[0].populated = Some(false);
    let error = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unknown desc = failed \
                 to get container 'stopped' status aa: no such file or directory\"";
    let answered = Said { times: 9, ..said(Component::Kubelet, error) };
    let last = |said: &Said| {
        let all = who_waits(Stage::Directories, &sample, std::slice::from_ref(said));
        (all[0].1.clone(), all.last().unwrap().0.clone())
    };
    let containerd = (Some("containerd".to_owned()), "containerd (pid 40)".to_owned());
    assert_eq!(last(&answered), containerd);
    let kubelets = (None, "kubelet (pid 1)".to_owned());
    assert_eq!(last(&Said { times: 1, ..answered.clone() }), kubelets, "it may be over");
    let own = Said { text: "failed to \"KillPodSandbox\": x".into(), ..answered };
    assert_eq!(last(&own), kubelets, "it is no answer");
}

/// As containerd answers whose CRI plugin is not loaded: it sends no signal to the processes that live.
#[test]
fn a_runtime_without_its_service_is_the_last_link_also_while_containers_live() {
    let runtimes = vec![runtime(Component::Containerd)];
    let mut sample = NodeSample { runtimes, ..node() };
    sample.pods[0].populated = Some(true);
    let error = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unimplemented desc = \
                 unknown service runtime.v1.RuntimeService\"";
    let answered = Said { times: 9, ..said(Component::Kubelet, error) };
    let links = who_waits(Stage::Containers, &sample, &[answered]);
    assert_eq!(links.last().unwrap().0, "containerd (pid 40)");
}

/// kubernetes#109132.
#[test]
fn kubelets_own_map_of_a_block_volume_is_not_the_drivers() {
    let csi = CsiState {
        data: VolumeData::Missing,
        registration: Registration::Unknown,
        registry_changed: None,
        socket: "/k/plugins_registry/d-reg.sock".into(),
        driver: None,
    };
    let mut sample = node();
    sample.pods[0].volumes =
        vec![VolumeState { csi: Some(csi), ..volume_state("/k/v", Vec::new()) }];
    let waits = |text: &str| {
        let said = Said { times: 9, ..said(Component::Kubelet, text) };
        who_waits(Stage::Volumes, &sample, &[said])[0].1.clone().unwrap()
    };
    assert_eq!(waits("kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: x"), "CSI driver");
    let own = waits("blkUtil.DetachFileDevice failed. umount: no mount point specified.");
    assert!(!own.contains("CSI driver"), "{own}");
}

pub(crate) fn shim(pid: u32) -> Shim {
    Shim { pid, started: 2, ..testing::shim() }
}

#[test]
fn a_shim_stands_between_its_runtime_and_its_processes() {
    let child = Unreaped { pid: 8, started: 20, comm: "api".into(), traced_by: None };
    let chain_with = |unreaped| {
        let (tasks, shims) = (
            vec![task("containerd-shim", 6), task("pause", 5)],
            vec![Shim { unreaped, ..shim(6) }],
        );
        let cgroups = vec![PodGroup { tasks, shims, ..pod_group(UID) }];
        let sample = NodeSample { cgroups, ..node() };
        who_waits(Stage::Containers, &sample, &[])
    };
    let who = || "containerd-shim-runc-v2 (pid 6)".to_owned();
    let works = chain_with(Vec::new());
    assert_eq!(works[1], (who(), Some("these processes to end".into())));
    let stop = Some("the runtime to stop the pod's sandbox".to_owned());
    assert_eq!(works[2], ("pause (pid 5)".into(), stop));
    assert_eq!(chain_with(vec![child.clone()])[1], (who(), None));
    let traced = Unreaped { traced_by: Some(reaper("strace", 9)), ..child };
    let tracer = Some("strace (pid 9), which traces api, to detach".to_owned());
    let chain = chain_with(vec![traced]);
    assert_eq!(chain[1..], [(who(), tracer), ("strace (pid 9)".into(), None)]);
}

/// cri-o#595 and containerd/cri#732.
#[test]
fn a_sandboxs_own_process_is_no_link_where_the_runtime_says_what_it_fails_at() {
    let group = |tasks| vec![PodGroup { tasks, ..pod_group(UID) }];
    let sample = |tasks| NodeSample {
        cgroups: group(tasks),
        runtimes: vec![runtime(Component::CriO)],
        ..node()
    };
    let complains = [said(Component::CriO, "failed to destroy network: cni config uninitialized")];
    let last =
        |tasks, said: &[Said]| who_waits(Stage::Containers, &sample(tasks), said).pop().unwrap();
    assert_eq!(last(vec![task("pause", 5)], &complains), ("cri-o (pid 40)".into(), None));
    assert_eq!(last(vec![task("pause", 5)], &[]).0, "pause (pid 5)");
    assert_eq!(last(vec![task("pause", 5), task("web", 7)], &complains).0, "web (pid 7)");
}

#[test]
fn a_shim_that_waits_comes_before_volumes_and_leads_to_the_last() {
    let answer = On::Socket {
        number: 5,
        path: Some("/run/dbus/system_bus_socket".into()),
        peer: Some(4),
        request: Request::Read,
        unread: 0,
    };
    let child = On::Child { pid: 8, is_waited_for: false };
    let found = vec![
        waiting(6, "containerd-shim-runc-v2", Part::Shim, vec![child]),
        waiting(8, "runc delete", Part::Task, vec![answer]),
        waiting(4, "dbus-daemon", Part::Other, vec![]),
    ];
    let mut waits = Waits::default();
    for second in [10, 14] {
        waits.answered(&Ok(found.clone()), Monotonic(second * 1_000_000_000));
    }
    let sample = NodeSample { runtimes: vec![runtime(Component::Containerd)], ..node() };
    let facts = Facts { waits: &waits, ..facts(&sample) };
    let links = chain(&at(Stage::Volumes), &facts);
    let who: Vec<String> = links.iter().map(|link| link.who.to_string()).collect();
    let expected = [
        "kubelet (pid 1)",
        "containerd (pid 40)",
        "containerd-shim-runc-v2 (pid 6)",
        "runc delete (pid 8)",
        "dbus-daemon (pid 4)",
    ];
    assert_eq!(who, expected);
    assert_eq!(links[0].must, "stop the pod's containers");
    let answer = "dbus-daemon (pid 4) to answer at /run/dbus/system_bus_socket";
    assert_eq!(links[3].waits_for.as_deref(), Some(answer));
}

fn waiting(pid: u32, command: &str, part: Part, on: Vec<On>) -> Waiting {
    let (command, channel) = (command.to_owned(), None);
    Waiting { pid, started: 100, command, state: 'S', channel, part, on, lock: Vec::new() }
}

#[test]
fn of_a_process_that_lives_its_own_wait_is_a_fact_and_no_link() {
    let remote = ([10, 0, 0, 9], 5432).into();
    let (request, peer) = (Request::Unread, None);
    let unread = On::Connection { number: 3, remote, peer, request, unread: 74, retries: 6 };
    let sleeps = On::Kernel {
        tid: 9,
        is_worker: false,
        channel: Some("rpc_wait_bit_killable".into()),
        file: None,
        sleeps: 3,
    };
    let last = |state, on| {
        let mut waits = Waits::default();
        let found = vec![Waiting { state, ..waiting(7, "app", Part::Container, vec![on]) }];
        for second in [10, 16] {
            waits.answered(&Ok(found.clone()), Monotonic(second * 1_000_000_000));
        }
        let tasks = vec![task("pause", 5), Task { state, ..task("app", 7) }];
        let cgroups = vec![PodGroup { tasks, ..pod_group(UID) }];
        let sample = NodeSample { cgroups, ..node() };
        let links = chain(&at(Stage::Containers), &Facts { waits: &waits, ..facts(&sample) });
        let last = links.last().unwrap();
        (last.who.to_string(), last.waits_for.clone().unwrap(), last.facts[1].fact.clone())
    };
    let (who, waits_for, fact) = last('S', unread);
    let kill = "SIGKILL, unless it exits by itself";
    assert_eq!((who.as_str(), waits_for.as_str()), ("app (pid 7)", kill));
    let expected = "app (pid 7) waits for the other end, 10.0.0.9:5432, to acknowledge what it has sent (74 bytes are \
        not acknowledged, and the kernel has retransmitted 6 times)";
    assert_eq!(fact, expected);
    let (who, waits_for, _) = last('D', sleeps);
    let nfs = "an NFS server, in the kernel function rpc_wait_bit_killable";
    assert_eq!((who.as_str(), waits_for.as_str()), ("app (pid 7)", nfs));
}

/// rook#6327: kubelet unmounts NFS by itself.
#[test]
fn what_kubelet_has_started_stands_behind_it() {
    let child = On::Child { pid: 8, is_waited_for: true };
    let found = vec![
        waiting(1, "kubelet", Part::Daemon, vec![child]),
        Waiting { state: 'D', ..waiting(8, "umount", Part::Task, vec![]) },
    ];
    let mut waits = Waits::default();
    for second in [10, 14] {
        waits.answered(&Ok(found.clone()), Monotonic(second * 1_000_000_000));
    }
    let sample = node();
    let links = chain(&at(Stage::Volumes), &Facts { waits: &waits, ..facts(&sample) });
    let who: Vec<String> = links.iter().map(|link| link.who.to_string()).collect();
    assert_eq!(who, ["kubelet (pid 1)", "umount (pid 8)"]);
    assert_eq!(links[0].waits_for.as_deref(), Some("umount (pid 8) to end"));
    assert_eq!(links[0].must, "unmount the pod's volumes and remove their directories");
}

#[test]
fn a_cause_is_said_at_the_link_of_whom_it_names() {
    let link = |who: Who, waits_for: Option<&str>| {
        seen(who, "act", waits_for.map(str::to_owned), "as seen".into(), "/proc")
    };
    let ended = |links: &[Link], named: Who| {
        let mut links = links.to_vec();
        end_with(&mut links, Some(seen(named, "let go", None, "why".into(), "cause x")));
        links.iter().map(|link| format!("{}: {}", link.who, link.fact())).collect::<Vec<_>>()
    };
    let umount = || Who::process("umount", 9);
    let csi = Who::component("CSI driver a.b", Some(7));
    let all = [link(csi, Some("umount (pid 9) to end")), link(umount(), None)];
    let said = "CSI driver a.b (pid 7): as seen; why";
    let driver = |name: &str| Who::component(format!("the CSI driver {name}"), None);
    assert_eq!(ended(&all, driver("a.b")), [said, "umount (pid 9): as seen"]);
    let waits = driver("a.b").and(", which waits for umount (pid 9)");
    assert_eq!(ended(&all, waits), ended(&all, driver("a.b")));
    assert_eq!(ended(&all, umount())[1], "umount (pid 9): as seen; why");
    assert_eq!(ended(&all, driver("a")).len(), 3, "it is another one");
    assert_eq!(ended(&all, Who::process("backup", 77))[2], "backup (pid 77): why");
    // A shim that is stopped does not wait for the pod's processes.
    let shim = || Who::process("shim", 6);
    let halted = [link(shim(), Some("a SIGCONT")), link(Who::process("pause", 5), None)];
    assert_eq!(ended(&halted, shim()), ["shim (pid 6): as seen; why"]);
}

#[test]
fn who_cannot_act_is_the_last_link() {
    let stopped = HaltedKubelet { pid: 1, started: None, halted: Halted::Stopped };
    let sample = NodeSample { halted_kubelets: vec![stopped], ..node() };
    let facts = facts(&sample);
    let links = chain(&at(Stage::Volumes), &facts);
    assert!(links[0].fact().contains("SIGCONT"), "{links:?}");
    let none = NodeSample { kubelets: Vec::new(), begun: Some(Monotonic(1)), ..node() };
    let its_start = Some("its start".to_owned());
    assert_eq!(who_waits(Stage::Volumes, &none, &[]), [("kubelet".into(), its_start)]);
    // Without a scan of the node, nothing is known of its kubelet.
    let unseen = NodeSample { begun: None, ..none };
    assert_eq!(who_waits(Stage::Gone, &unseen, &[]), [("kubelet".into(), None)]);
}

#[test]
fn the_last_complaint_is_quoted_and_a_report_is_none() {
    let sample = node();
    let kubelet = said(Component::Kubelet, "orphaned pod found, but failed to rmdir()");
    let report = Some(crate::model::said::Report::ContainerEnded);
    let ended = Said { report, ..said(Component::Kubelet, "ContainerDied") };
    let all = [Said { times: 3, ..kubelet }, ended];
    let facts = Facts { said: &all, ..facts(&sample) };
    let links = chain(&at(Stage::Directories), &facts);
    assert_eq!(
        links[0].fact(),
        "it logged, 3 times, last at 1970-01-01T00:00:09Z: orphaned pod found, but failed to rmdir()"
    );
    assert_eq!(links[0].source(), "log");
}

#[test]
fn an_error_says_more_than_a_warning_and_what_lasts_more_than_what_was_said_once() {
    let at = |level, times, second| {
        let at = Timestamp::from_second(second).unwrap();
        let text = format!("at {second}");
        Said { level, times, ..Said::new(Component::Kubelet, "log", UID, at, &text) }
    };
    let first = |all: &[Said]| weightiest(all.iter()).unwrap().text.clone();
    let warning = at(Level::Warning, 2, 1020);
    assert_eq!(first(&[at(Level::Error, 2, 1000), warning.clone()]), "at 1000");
    assert_eq!(first(&[at(Level::Error, 1, 1000), warning.clone()]), "at 1000");
    assert_eq!(first(&[at(Level::Error, 1, 700), warning.clone()]), "at 1020");
    assert_eq!(first(&[at(Level::Error, 2, 700), warning]), "at 700");
    assert_eq!(first(&[at(Level::Info, 9, 1000), at(Level::Info, 1, 1001)]), "at 1001");
}

/// kubernetes#75065.
#[test]
fn a_kubelet_that_fails_before_it_asks_the_runtime_is_the_last_link() {
    let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
    let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
    let sample = NodeSample { cgroups, runtimes, ..node() };
    let fails = said(Component::Kubelet, "getPodContainerStatuses failed: No such container");
    let fails = [Said { level: Level::Error, times: 3, ..fails }];
    let facts = Facts { said: &fails, has_acted: false, ..facts(&sample) };
    let links = chain(&at(Stage::Containers), &facts);
    assert_eq!((links.len(), links[0].waits_for.as_deref()), (1, None), "{links:?}");
    assert!(links[0].fact().ends_with("No such container"), "{links:?}");
    // kubernetes#24252: the runtime's answer.
    let text = "Error syncing pod, skipping: API error (500): Unknown device 4b1d";
    let answer = [Said { text: text.into(), ..fails[0].clone() }];
    let answered = chain(&at(Stage::Containers), &Facts { said: &answer, ..facts });
    assert_eq!(answered[0].waits_for.as_deref(), Some("containerd"));
    assert_eq!((answered.len(), answered[1].who.name.as_str()), (2, "containerd"), "{answered:?}");
    assert!(answered[1].fact().starts_with("kubelet logged, 3 times"), "{answered:?}");
    let acted = chain(&at(Stage::Containers), &Facts { has_acted: true, ..facts });
    assert_eq!(acted.len(), 3, "{acted:?}");
    let once = [Said { times: 1, ..fails[0].clone() }];
    assert_eq!(chain(&at(Stage::Containers), &Facts { said: &once, ..facts }).len(), 3);
}

/// knative/serving#12865 and cri-o#7004: sandboxes have processes of other names than pause, too.
#[test]
fn a_shim_and_a_record_tell_containers_from_the_sandbox() {
    let in_group = |pid, digit: &str| Task {
        group: format!("/kubepods/pod{UID}/cri-containerd-{}.scope", digit.repeat(64)).into(),
        ..task("sh", pid)
    };
    let containers = vec![container_record(ContainerState::Running)];
    let record = PodRecord { containers: Some(containers), ..pod_record(UID) };
    let (socket, namespace) = ("/run/c.sock".into(), "k8s.io".into());
    let of = Some(ShimOf::Containerd { socket, namespace });
    let shims = vec![Shim { of, container: Some("f".repeat(64)), ..shim(6) }];
    let group = |tasks| PodGroup { tasks, shims: shims.clone(), ..pod_group(UID) };
    let last = |group, said: &[Said]| {
        let runtimes = vec![runtime(Component::Containerd)];
        let sample = NodeSample { cgroups: vec![group], runtimes, ..node() };
        let facts = Facts { record: Some(&record), said, ..facts(&sample) };
        chain(&at(Stage::Containers), &facts).pop().unwrap()
    };
    let link = last(group(vec![in_group(5, "f"), in_group(7, "a")]), &[]);
    assert_eq!(link.who.to_string(), "sh (pid 7)");
    assert!(link.fact().starts_with("of the container app; state S"), "{}", link.fact());
    let fails = [said(Component::Kubelet, "failed to \"KillContainer\" for \"app\"")];
    let link = last(group(vec![in_group(5, "f")]), &fails);
    let must = "stop the container app";
    assert_eq!((&link.who.to_string()[..], link.must.as_str()), ("containerd (pid 40)", must));
    assert!(link.fact().ends_with("; no process of the container app is left"), "{}", link.fact());
    // Another instance of it, which an old record does not have, or a container that no record has.
    assert_eq!(
        last(group(vec![in_group(5, "f"), in_group(8, "b")]), &fails).who.to_string(),
        "sh (pid 8)"
    );
    let in_pods = Task { group: format!("/kubepods/pod{UID}").into(), ..task("sh", 5) };
    assert_eq!(
        last(group(vec![in_pods]), &fails).who.to_string(),
        "sh (pid 5)",
        "it is in no container's"
    );
    // runc#2105: a group below the container's is frozen.
    let killed = Task { killed: true, ..in_group(8, "a") };
    let frozen = Some("/g".into());
    let below = PodGroup { frozen, ..group(vec![in_group(7, "a"), killed]) };
    let link = last(below, &[]);
    assert_eq!(link.who.to_string(), "sh (pid 8)");
    assert!(link.fact().contains("its control group is frozen"), "{}", link.fact());
    // containerd#11984: it comes after a container's process, and is not frozen with the pod's group.
    let moved = PodGroup { outside: vec![task("pause", 3)], ..group(vec![in_group(7, "a")]) };
    assert_eq!(last(moved.clone(), &[]).who.to_string(), "sh (pid 7)");
    let alone = PodGroup { tasks: Vec::new(), frozen: Some("/g".into()), ..moved };
    let link = last(alone, &[]);
    assert_eq!(link.who.to_string(), "pause (pid 3)");
    assert!(
        link.fact().contains("; it is in the control group /k/pod, outside the pod's"),
        "{}",
        link.fact()
    );
    assert_eq!(link.waits_for.as_deref(), Some("SIGKILL, unless it exits by itself"));
}

/// kubernetes#52641.
#[test]
fn a_kubelet_that_reports_ended_containers_as_running_is_the_last_link() {
    let must = |state, populated| {
        let pods = vec![PodState { populated, ..pod_state(UID) }];
        let sample = NodeSample { pods, ..node() };
        let [deletion, read] = [600, 630].map(|second| Timestamp::from_second(second).ok());
        let containers = Some(vec![container_record(state)]);
        let record = PodRecord { containers, deletion, read, ..pod_record(UID) };
        let facts = Facts { record: Some(&record), ..facts(&sample) };
        chain(&at(Stage::Directories), &facts).pop().unwrap().must
    };
    let own = "remove the pod's directory and delete its record";
    let learn = "learn that the pod's containers have ended";
    assert_eq!(must(ContainerState::Running, Some(false)), learn);
    assert_eq!(must(ContainerState::Terminated, Some(false)), own);
    assert_eq!(must(ContainerState::Running, None), own, "processes may be left");
}

#[test]
fn a_runtime_that_was_not_asked_is_no_link() {
    let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
    let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
    let sample = NodeSample { cgroups, runtimes, ..node() };
    let since = Timestamp::from_second(1).unwrap();
    let not_asked = NotAsked { since, received: Some(since), is_unheard: false, log: "log" };
    let no_watch = Facts { not_asked: Some(not_asked), ..facts(&sample) };
    let links = chain(&at(Stage::Containers), &no_watch);
    assert_eq!((links.len(), links[0].waits_for.as_deref()), (1, None), "{links:?}");
    assert!(links[0].fact().contains("no `Killing container` since"), "{links:?}");
    let watch = Said { times: 7, ..said(Component::Kubelet, "Unauthorized") };
    let links = chain(&at(Stage::Containers), &Facts { watch: Some(&watch), ..no_watch });
    assert_eq!(links.len(), 1);
    assert!(links[0].waits_for.as_deref().unwrap().starts_with("its watch"), "{links:?}");
    assert!(links[0].fact().ends_with("Unauthorized"), "{links:?}");
}

/// azurefile-csi-driver#662, and any other file system that a server has.
#[test]
fn a_stat_that_fails_each_time_is_what_kubelet_waits_for() {
    let point = std::path::Path::new("/k/pods/u/volumes/kubernetes.io~csi/pv/mount");
    let failing = |major: u32, times: u64, later: Option<i64>| {
        let device = Device { major, minor: 40 };
        let what = "//a/share of type fuse.smb".to_owned();
        let mount = Mounted { device, what, ..testing::mounted(point, 12) };
        let volume = volume_state(point.parent().unwrap(), vec![mount]);
        let pods = vec![PodState { volumes: vec![volume], ..pod_state(UID) }];
        let sample = NodeSample { pods, ..node() };
        let outcome = Outcome(Errno::EHOSTDOWN as u16);
        let looked = Some(NamedLook { path: point.into(), outcome });
        let of = |second| Said {
            at: Timestamp::from_second(second).unwrap(),
            volume: "kubernetes.io/csi/d^h".into(),
            ..said(Component::Kubelet, "stat: host is down")
        };
        let mut said = vec![Said { looked, times, ..of(5) }];
        said.extend(later.map(of));
        let links = chain(&at(Stage::Volumes), &Facts { said: &said, ..facts(&sample) });
        let is_one = failed_look(&sample.pods[0], &said).is_some();
        (links, is_one)
    };
    let (links, is_one) = failing(0, 2, None);
    let [kubelet, server] = &links[..] else { panic!("{links:?}") };
    assert!(kubelet.waits_for.as_ref().unwrap().ends_with("fails with EHOSTDOWN"), "{links:?}");
    assert!(server.who.name.starts_with("//a/share"), "{links:?}");
    assert!(server.fact().starts_with("kubelet logged, 2 times"), "{links:?}");
    assert!(is_one);
    assert!(!failing(8, 2, None).1, "a device of the node has it");
    assert!(!failing(0, 1, None).1, "once is a moment");
    assert!(!failing(0, 2, Some(9)).1, "kubelet has met something else since");
}

/// aws-ebs-csi-driver#1027: kubelet has lost the volume, and calls no driver.
#[test]
fn a_driver_that_kubelet_does_not_call_is_no_link() {
    let path = "/k/pods/u/volumes/kubernetes.io~csi/pv";
    let (socket, source) = ("/k/plugins/d/csi.sock".into(), "/proc/7/cmdline".to_owned());
    let driver = Some(DriverState { socket, source, process: None, registrar: None });
    let (registration, data) = (Registration::Listening, VolumeData::Missing);
    let socket = "/k/plugins_registry/d-reg.sock".into();
    let csi = CsiState { data, socket, registration, registry_changed: None, driver };
    let mounts = vec![testing::mounted(format!("{path}/mount"), 12)];
    let volume = VolumeState { csi: Some(csi), ..volume_state(path, mounts) };
    let pods = vec![PodState { volumes: vec![volume], ..pod_state(UID) }];
    let sample = NodeSample { pods, ..node() };
    let who = |cause| {
        let pod = Some(Pod { uid: UID.into(), namespace: None, name: None });
        let target = Arc::new(Target { pod, ..Target::unknown() });
        let cause = catalogue::all().find(|it| it.id == cause).unwrap();
        let (tracker, path) = (TrackerId::NotAttempted, path.into());
        let mut draft = Draft::about_state(tracker, cause, 1, target, path, Monotonic(0));
        draft.blocks_deletion = Some(true);
        let causes = Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft)));
        let links = chain(&at(Stage::Volumes), &Facts { causes: &causes, ..facts(&sample) });
        links.iter().map(|link| link.who.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(who(ids::KUBELET_RESTART_LOST_VOLUME), ["kubelet (pid 1)", path]);
    assert_eq!(who(ids::CSI_DRIVER_ERROR), ["kubelet (pid 1)", "CSI driver", path]);
}

/// kubernetes#90593.
#[test]
fn a_kubelet_that_waits_in_a_call_asks_no_runtime() {
    let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
    let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
    let sample = NodeSample { cgroups, runtimes, kubelets: vec![42], ..node() };
    let pod = Some(Pod { uid: UID.into(), namespace: None, name: None });
    let target = Arc::new(Target { pod, ..Target::unknown() });
    let cause = catalogue::all().find(|it| it.id == ids::FUSE_DAEMON_HUNG).unwrap();
    let (tracker, path) = (TrackerId::HungCall, "/k/pods/b/volumes/x~y/z".into());
    let mut draft = Draft::about_state(tracker, cause, 1, target, path, Monotonic(0));
    draft.blocks_deletion = Some(true);
    let held_by = |name: &str, pid: u32| {
        let mut draft = draft.clone();
        draft.held_by(Who::process(name, pid));
        let causes = Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft)));
        chain(&at(Stage::Containers), &Facts { causes: &causes, ..facts(&sample) })
    };
    let links = held_by("kubelet", 42);
    assert_eq!(links.len(), 1, "{links:?}");
    let waits = "its call on /k/pods/b/volumes/x~y/z to return";
    assert_eq!(links[0].waits_for.as_deref(), Some(waits));
    let stopped = catalogue::all().find(|it| it.id == ids::KUBELET_STOPPED).unwrap();
    let (target, path) = (draft.target.clone(), "/k/pods/b".into());
    let tracker = TrackerId::KubeletState;
    let mut draft_of = Draft::about_state(tracker, stopped, 1, target, path, Monotonic(0));
    draft_of.held_by(links[0].who.clone());
    let cause = &Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft_of)))[0];
    assert_eq!(kubelet::kubelets_call(cause, &links[0].who), None, "it makes no call");
    assert!(held_by("backup", 43).len() > 2);
    let called = held_by("kubelet (pid 42)", 43);
    assert_eq!(
        called.last().unwrap().who.to_string(),
        "kubelet (pid 42) (pid 43)",
        "a program's name"
    );
}

#[test]
fn a_cause_of_another_pod_cuts_no_chain() {
    let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
    let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
    let sample = NodeSample { cgroups, runtimes, ..node() };
    let rejected = |uid: &str| {
        let pod = Some(Pod { uid: uid.into(), namespace: None, name: None });
        let target = Arc::new(Target { pod, ..Target::unknown() });
        let cause = catalogue::all().find(|it| it.id == ids::POD_NEVER_STARTED).unwrap();
        let (tracker, path) = (TrackerId::KubeletsPart, "/k/pods/x".into());
        let mut draft = Draft::about_state(tracker, cause, 1, target, path, Monotonic(0));
        draft.blocks_deletion = Some(true);
        Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft)))
    };
    let (own, others) = (rejected(UID), rejected("another"));
    let links = chain(&at(Stage::Containers), &Facts { causes: &own, ..facts(&sample) });
    assert_eq!((links.len(), links[0].must.as_str()), (1, "delete the pod's record"));
    let links = chain(&at(Stage::Containers), &Facts { causes: &others, ..facts(&sample) });
    assert_eq!((links.len(), links[0].must.as_str()), (3, "stop the pod's containers"));
}

#[test]
fn a_record_that_finalizers_keep_is_not_kubelets_to_delete() {
    let (sample, by) = (NodeSample::default(), "its record".to_owned());
    let record = PodRecord { finalizers: vec!["a/b".into()], ..pod_record(UID) };
    let terminating = Terminating { since: Timestamp::from_second(1).unwrap(), by };
    let (terminating, record) = (Some(&terminating), Some(&record));
    let facts = Facts { terminating, record, ..facts(&sample) };
    let links = chain(&at(Stage::Api), &facts);
    assert_eq!(links.len(), 1, "{links:?}");
    assert_eq!(links[0].waits_for.as_deref(), Some("the controllers of the finalizers a/b"));
}
