//! Tests of the verdicts about busy mounts.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    backoff::Attempts,
    causes::busy_mount::{
        held_volume::HeldVolumes,
        left_rootfs::RootFileSystems,
        mount_point::{cause, removal},
        tracker::{Busy, BusyObject},
    },
    event::What,
    kubelet_steps::KubeletSteps,
    model::{
        call::Call,
        csi::{DriverProcess, Reach},
        errno::Errno,
        evidence::{Certainty, Source},
        holder::{About, Holder, How, Snapshot, Through},
        identity::{Component, Pod, Target, TargetKind, Volume},
        mounted::Mounted,
        mountinfo,
        mounts::{Mount, Mounts},
        node::{LeftRootfs, NodeSample, PodState, VolumeState},
        operation::Operation,
        path::JsonPath,
        pod_group::{PodGroup, Task},
        said::{Complaint, NOT_ROOTS, Report, Said},
        time::Monotonic,
    },
    query::{Answer, NoAnswer, Query, Wants},
    testing::{
        Alone, FILE, VOLUME, failed, found, holder, mounted, pod_group, pod_state, snapshot,
        volume_state,
    },
    tracker::{Claim, Steps, Subject, Tracker as _},
    unmounts::{Tried, Unmounts},
    verdict::{Draft, Verdict},
};

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

/// A pod that kubelet is ending, one of whose processes was killed and stays.
fn sample(second: u64) -> NodeSample {
    let volume = VolumeState {
        file: Some(FILE),
        ..volume_state(VOLUME, vec![mounted(Path::new(VOLUME), 9)])
    };
    let task =
        Task { killed: true, started: 7, group: "/g".into(), ..crate::testing::task("app", 42) };
    let group = PodGroup { target_id: 8, path: "/g".into(), tasks: vec![task], ..pod_group("u") };
    let pod = PodState { populated: Some(true), volumes: vec![volume], ..pod_state("u") };
    NodeSample { at: at(second), pods: vec![pod], cgroups: vec![group], ..NodeSample::default() }
}

fn to_be_deleted() -> Alone<HeldVolumes> {
    deleted_at(0)
}

/// kubelet's log has the deletion at this second of the run.
fn deleted_at(second: u64) -> Alone<HeldVolumes> {
    let mut alone = Alone::<HeldVolumes>::new();
    let time = jiff::Timestamp::from_second(second.cast_signed()).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet", "u", time, "");
    let what = What::Said(Box::new(Said { report: Some(Report::ToGo), ..said }));
    alone.take(at(second), what);
    alone
}

fn look(alone: &mut Alone<HeldVolumes>, second: u64) -> Steps {
    alone.take(at(second), What::Sample(Arc::new(sample(second))))
}

/// One sample, and the answer that its search finds these holders.
fn seen(alone: &mut Alone<HeldVolumes>, second: u64, holders: Vec<Holder>) -> Option<Draft> {
    let query = look(alone, second).queries.pop()?;
    let taken = Snapshot { at: at(second), ..snapshot(holders) };
    alone.answer_at(at(second), &query, Answer::Holders(Ok(taken)))
}

fn backup() -> Holder {
    holder(How::Cwd, Through::Itself, Some(true))
}

#[test]
fn users_of_a_volume_are_named_before_kubelet_unmounts_it_and_not_first() {
    let mut alone = to_be_deleted();
    assert!(seen(&mut alone, 1, vec![backup()]).is_none(), "it may be a moment's");
    let draft = seen(&mut alone, 3, vec![backup()]).unwrap();
    draft.assert_is("volume-held-by-host-process", Certainty::Firm);
    assert!(draft.is_later, "the pod's containers hold it first");
    assert!(draft.remedies[0].words().ends_with(" && kill 77"), "{:?}", draft.remedies);
    let query = look(&mut alone, 20).queries.pop().unwrap();
    let taken = Snapshot { at: at(20), ..snapshot(Vec::new()) };
    let answer = What::Answer { query: Box::new(query), answer: Answer::Holders(Ok(taken)).into() };
    assert!(matches!(alone.take(at(20), answer).verdicts[..], [Verdict::Over { .. }]));
}

/// As captured: no process is left, and the runtime keeps the container until its root file system is free.
#[test]
fn kubelet_comes_to_a_volume_after_the_containers_that_the_runtime_keeps() {
    let ended = |rootfs: Vec<LeftRootfs>| {
        let mut alone = to_be_deleted();
        let mut last = None;
        for second in [1, 3] {
            let mut sample = sample(second);
            sample.pods[0].populated = Some(false);
            sample.rootfs = rootfs.clone();
            let query =
                alone.take(at(second), What::Sample(Arc::new(sample))).queries.pop().unwrap();
            let taken = Snapshot { at: at(second), ..snapshot(vec![backup()]) };
            last = alone.answer_at(at(second), &query, Answer::Holders(Ok(taken)));
        }
        last.unwrap()
    };
    let free = ended(Vec::new());
    assert!(
        !free.is_later && free.explanation.ends_with("kubelet unmounts the pod's volumes now.")
    );
    let left = LeftRootfs {
        target_id: 9,
        target: Target::unknown().into(),
        container: "c".into(),
        pod: "u".into(),
        mount: mounted(Path::new("/run/c/rootfs"), 9),
    };
    assert!(ended(vec![left.clone()]).is_later);
    assert!(!ended(vec![LeftRootfs { pod: "other".into(), ..left }]).is_later);
}

#[test]
fn the_pods_own_processes_and_changing_ones_do_not_count() {
    let mut own = backup();
    own.pod = Some(Pod { uid: "u".into(), namespace: None, name: None });
    let mut alone = to_be_deleted();
    assert!(seen(&mut alone, 1, vec![own.clone()]).is_none());
    let mut alone = to_be_deleted();
    for second in [1, 3, 5] {
        let mut other = backup();
        other.pid = Some(second);
        assert!(seen(&mut alone, u64::from(second), vec![other]).is_none(), "it reads each file");
    }
}

#[test]
fn no_user_is_searched_for_while_a_deletion_during_the_run_takes_its_usual_time() {
    let mut alone = deleted_at(10);
    let queries: Vec<usize> =
        [11, 13, 14, 15].map(|second| look(&mut alone, second).queries.len()).into();
    assert_eq!(queries, [0, 0, 0, 1]);
    assert_eq!(look(&mut to_be_deleted(), 11).queries.len(), 1, "it was deleted before");
}

#[test]
fn a_pod_that_is_not_deleted_is_not_scanned() {
    assert!(look(&mut Alone::new(), 1).queries.is_empty());
    let mut alone = Alone::<HeldVolumes>::new();
    assert!(found(look(&mut alone, 3).verdicts).is_empty());
}

#[test]
fn a_mount_that_kubelet_does_not_unmount_may_be_used() {
    let deeper = |plugin: &str| {
        let mut sample = sample(1);
        let volume = &mut sample.pods[0].volumes[0];
        let (name, path) = ("data".into(), JsonPath(VOLUME.into()));
        let of = Some(Volume { name, plugin: plugin.into(), path });
        volume.target = Target { volume: of, ..Target::unknown() }.into();
        volume.mounts = vec![mounted(Path::new(VOLUME).join("m"), 9)];
        to_be_deleted().take(at(1), What::Sample(Arc::new(sample))).queries.len()
    };
    assert_eq!(deeper("kubernetes.io/empty-dir"), 0, "kubelet fails at the mount, held or not");
    assert_eq!(deeper("kubernetes.io/csi"), 1, "the driver unmounts it");
}

fn ask(busy: &mut Alone<Busy>, second: f64) -> Query {
    busy.ask(&failed(Call::Umount2, Errno::EBUSY, "", second)).pop().unwrap()
}

/// The finding after this number of failed attempts, with these holders.
fn after(attempts: u32, holders: Vec<Holder>) -> Option<Draft> {
    let mut busy = Alone::new();
    let query = (1..=attempts).map(|nth| ask(&mut busy, f64::from(nth))).last().unwrap();
    assert!(matches!(&query.wants, Wants::Holders(About::Mount { .. })));
    busy.answer(&query, Answer::Holders(Ok(snapshot(holders))))
}

fn conclude(holders: Vec<Holder>) -> Draft {
    after(3, holders).unwrap()
}

#[test]
fn two_attempts_without_a_holder_are_transient() {
    assert!(after(2, Vec::new()).is_none());
    assert_eq!(after(3, Vec::new()).unwrap().id(), "busy-unexplained");
    let held = after(2, vec![holder(How::Fd, Through::Itself, Some(true))]);
    assert_eq!(held.unwrap().id(), "volume-held-by-host-process");
}

#[test]
fn the_holder_decides_the_cause() {
    let table = [
        (How::Cwd, Through::Itself, "volume-held-by-host-process"),
        (How::Fd, Through::PropagatedCopy, "volume-held-by-hosttocontainer-agent"),
        (How::Swap, Through::Itself, "swapfile-active"),
        (How::NestedMount, Through::Itself, "nested-mount-under-volume"),
    ];
    for (how, through, id) in table {
        let draft = conclude(vec![holder(how, through, Some(true))]);
        assert_eq!(draft.id(), id);
        assert_eq!(draft.certainty(), Certainty::Firm, "{id}: {:?}", draft.not_known());
        assert!(!draft.remedies.is_empty(), "{id}");
        assert!(draft.ruled_out.iter().all(|other| other.cause != draft.cause.id), "{id}");
    }
}

#[test]
fn a_private_copy_and_kubelet_itself_are_no_culprits() {
    let mut kubelet = holder(How::Fd, Through::Itself, Some(true));
    kubelet.component = Some(Component::Kubelet);
    let private = holder(How::Fd, Through::OtherMount, Some(false));
    let draft = conclude(vec![kubelet, private]);
    assert_eq!(draft.id(), "busy-unexplained");
    let names_it = |fact: &str| fact.contains("has it open");
    assert!(draft.evidence.iter().any(|e| names_it(&e.fact)), "{draft:#?}");
    assert!(draft.explanation.contains("kubelet itself"), "{}", draft.explanation);
    assert_eq!(draft.certainty(), Certainty::Possible, "{:?}", draft.not_known());
}

#[test]
fn a_holder_seen_once_is_remembered() {
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    let held = snapshot(vec![holder(How::Fd, Through::Itself, Some(true))]);
    busy.answer(&query, Answer::Holders(Ok(held)));
    let query = ask(&mut busy, 2.0);
    let no_holder = || Answer::Holders(Ok(snapshot(Vec::new())));
    assert!(
        busy.answer(&query, no_holder()).is_none(),
        "the holder is gone: the next attempt may succeed"
    );
    let query = ask(&mut busy, 3.0);
    let draft = busy.answer(&query, no_holder()).unwrap();
    assert_eq!(draft.id(), "volume-held-by-host-process");
    assert!(draft.evidence.iter().any(|e| e.fact.contains("earlier attempt")));
    assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
}

#[test]
fn without_a_snapshot_nothing_is_claimed() {
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    ask(&mut busy, 2.0);
    let hung = Answer::Holders(Err(NoAnswer::Deadline(Duration::from_secs(2))));
    assert_eq!(busy.answer(&query, hung).unwrap().id(), "busy-unexplained");
    let gone = Snapshot { subject: Err("gone".into()), ..snapshot(Vec::new()) };
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    let answer = busy.answer(&query, Answer::Holders(Ok(gone)));
    assert!(answer.is_none(), "not a mount point any more");
    // An answer about an object that is not followed.
    assert!(Alone::<Busy>::new().answer(&query, Answer::Mounts(None)).is_none());
}

#[test]
fn one_refusal_alone_is_a_moments() {
    let held = |second: u64| {
        let holders = vec![holder(How::Fd, Through::Itself, Some(true))];
        Snapshot { at: Monotonic(second * 1_000_000_000), ..snapshot(holders) }
    };
    let look = |busy: &mut Alone<Busy>, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let sample = NodeSample { at, ..NodeSample::default() };
        busy.take(at, What::Sample(sample.into())).queries
    };
    let mut busy = Alone::<Busy>::new();
    let query = ask(&mut busy, 10.0);
    assert!(busy.answer(&query, Answer::Holders(Ok(held(10)))).is_none());
    assert!(look(&mut busy, 11).is_empty(), "an agent that looks at every file is about to go on");
    let again = look(&mut busy, 13).pop().unwrap();
    assert!(look(&mut busy, 15).is_empty(), "asked once");
    let mut gone = busy;
    let draft = gone.answer(&again, Answer::Holders(Ok(held(13)))).unwrap();
    assert_eq!(draft.id(), "volume-held-by-host-process");
    let mut busy = Alone::<Busy>::new();
    let query = ask(&mut busy, 10.0);
    busy.answer(&query, Answer::Holders(Ok(held(10))));
    let again = look(&mut busy, 13).pop().unwrap();
    let no_holder = Snapshot { at: Monotonic(13_000_000_000), ..snapshot(Vec::new()) };
    assert!(busy.answer(&again, Answer::Holders(Ok(no_holder))).is_none());
}

const POINT: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/aa/rootfs";

fn left() -> LeftRootfs {
    let mount = Mounted {
        what: "overlay of type overlay, device 0:59".into(),
        namespace: 4,
        ..mounted(POINT, 9)
    };
    let target = Target { kind: TargetKind::ContainerBundle, ..Target::unknown() };
    LeftRootfs {
        target_id: 8,
        target: target.into(),
        container: "aa".into(),
        pod: "u".into(),
        mount,
    }
}

fn look_of_left_rootfs(
    tracker: &mut Alone<RootFileSystems>,
    second: u64,
    rootfs: Vec<LeftRootfs>,
) -> Steps {
    let at = Monotonic(second * 1_000_000_000);
    let sample = NodeSample { at, rootfs, ..NodeSample::default() };
    tracker.take(at, What::Sample(Arc::new(sample)))
}

/// The finding after two samples and an answer.
fn verdict(taken: Snapshot) -> (Alone<RootFileSystems>, Option<Draft>) {
    let mut alone = Alone::<RootFileSystems>::new();
    assert!(
        look_of_left_rootfs(&mut alone, 1, vec![left()]).queries.is_empty(),
        "a shim needs moments"
    );
    let query = look_of_left_rootfs(&mut alone, 3, vec![left()]).queries.pop().unwrap();
    let draft = alone.answer(&query, Answer::Holders(Ok(taken)));
    (alone, draft)
}

#[test]
fn the_holder_is_reported_without_any_call() {
    let (mut alone, draft) = verdict(snapshot(vec![holder(How::Cwd, Through::Itself, Some(true))]));
    let draft = draft.unwrap();
    draft.assert_is("shim-rootfs-busy", Certainty::Firm);
    assert!(draft.remedies[0].words().ends_with(" && kill 77"));
    assert!(draft.call.is_none());
    let over = look_of_left_rootfs(&mut alone, 5, Vec::new()).verdicts;
    assert!(matches!(over[..], [Verdict::Over { target_id: 8, .. }]), "{over:?}");
}

#[test]
fn a_mount_inside_is_to_be_unmounted() {
    let mut inside = holder(How::NestedMount, Through::Itself, Some(true));
    inside.object = JsonPath(format!("{POINT}/tmp").into());
    let (_, draft) = verdict(snapshot(vec![inside]));
    let draft = draft.unwrap();
    assert!(
        draft.remedies[0].words().ends_with(&format!("'12 {POINT}/tmp' && umount {POINT}/tmp"))
    );
}

/// containerd#6772: the runtime's own complaint is suppressed only while the mount may be at fault.
#[test]
fn a_mount_without_holders_is_not_reported() {
    let suspects = |alone: &Alone<RootFileSystems>| {
        let subject = Subject { target_id: 0, path: Path::new(""), pod: "u", at: Monotonic(1) };
        alone.tracker.explains(&subject, Claim::Suspicion)
    };
    let (mut alone, draft) = verdict(snapshot(Vec::new()));
    assert!(draft.is_none() && !suspects(&alone));
    look_of_left_rootfs(&mut alone, 5, vec![left()]);
    assert!(!suspects(&alone));
    let (alone, _) = verdict(snapshot(vec![holder(How::Cwd, Through::Itself, Some(true))]));
    assert!(suspects(&alone));
    let private = holder(How::Mount, Through::OtherMount, Some(false));
    assert!(verdict(snapshot(vec![private])).1.is_none());
    let mut kubelet = holder(How::Fd, Through::Itself, Some(true));
    kubelet.component = Some(Component::Kubelet);
    assert!(verdict(snapshot(vec![kubelet])).1.is_none());
}

#[test]
fn one_that_is_unmounted_in_time_is_never_asked_about() {
    let mut alone = Alone::<RootFileSystems>::new();
    look_of_left_rootfs(&mut alone, 1, vec![left()]);
    assert!(look_of_left_rootfs(&mut alone, 3, Vec::new()).verdicts.is_empty());
    assert!(
        look_of_left_rootfs(&mut alone, 5, vec![left()]).queries.is_empty(),
        "another container's"
    );
    assert!(found(look_of_left_rootfs(&mut alone, 7, Vec::new()).verdicts).is_empty());
}

#[test]
fn a_line_of_the_runtimes_log_is_a_fact_of_its_own() {
    let said = |text: &str| {
        let text = format!("failed to cleanup rootfs mount: {text}");
        let (source, at) = ("log of containerd (pid 9), /c.log", jiff::Timestamp::UNIX_EPOCH);
        let said = Said::new(Component::Containerd, source, "u", at, &text);
        What::Said(Box::new(Said { complaint: Some(Complaint::RootfsBusy), ..said }))
    };
    for (text, is_expected) in [(POINT, true), ("of another container", false)] {
        let mut alone = Alone::<RootFileSystems>::new();
        alone.take(Monotonic(0), said(text));
        look_of_left_rootfs(&mut alone, 1, vec![left()]);
        let query = look_of_left_rootfs(&mut alone, 3, vec![left()]).queries.pop().unwrap();
        let taken = snapshot(vec![holder(How::Cwd, Through::Itself, Some(true))]);
        let draft = alone.answer(&query, Answer::Holders(Ok(taken))).unwrap();
        let is_reported =
            draft.evidence.iter().any(|fact| fact.fact.starts_with("containerd says"));
        assert_eq!(is_reported, is_expected, "{text}");
    }
}

fn target(plugin: &str, root: &str) -> Target {
    let path = JsonPath(root.into());
    let volume = Volume { name: "v".into(), plugin: plugin.into(), path };
    Target {
        kind: TargetKind::PodVolume,
        root: root.into(),
        volume: Some(volume),
        ..Target::unknown()
    }
}

fn tried(ok: Option<u32>, busy: u64) -> Tried {
    let last_ok = ok.map(|namespace| (Monotonic(1), namespace));
    Tried { ok: u64::from(ok.is_some()), last_ok, busy, ..Tried::default() }
}

fn op(call: Call, target: &Target, path: &str) -> Operation {
    let mut op = failed(call, Errno::EBUSY, "x", 1.0);
    (op.target, op.path, op.mnt_ns) = (Arc::new(target.clone()), path.into(), 1);
    op
}

#[test]
fn the_attempts_distinguish_the_causes() {
    let csi = target("kubernetes.io/csi", "/pv");
    let own = op(Call::UnlinkatDir, &csi, "/pv/mount");
    let of = |stacked, tried| cause(&own, &mount(b"/"), stacked, &tried, None).id.as_str();
    assert_eq!(of(1, tried(None, 0)), "csi-driver-lost-publish-state");
    assert_eq!(of(1, tried(Some(1), 0)), "stacked-mounts");
    assert_eq!(of(1, tried(Some(2), 0)), "csi-umount-wrong-namespace");
    assert_eq!(of(2, tried(None, 0)), "stacked-mounts");
    assert_eq!(of(1, tried(None, 3)), "volume-held-by-host-process");
    let deep = op(Call::UnlinkatDir, &csi, "/pv/mount/a/b");
    let deep = cause(&deep, &mount(b"/"), 1, &tried(None, 0), None);
    assert_eq!(deep.id.as_str(), "nested-mount-under-volume");
}

fn mount(root: &[u8]) -> Mount {
    let line = [b"9 2 0:9 ".as_slice(), root, b" /pv/mount rw - ext4 /dev/sdb rw\n"].concat();
    mountinfo::parse(&line).remove(0)
}

fn driver(reach: Reach) -> DriverProcess {
    DriverProcess {
        pid: 7,
        comm: "driver".into(),
        started: Monotonic(1),
        ticks: Some(1),
        reach,
        halted: None,
    }
}

#[test]
fn a_driver_whose_unmounts_stay_with_it_has_not_forgotten() {
    let csi = target("kubernetes.io/csi", "/pv");
    let own = op(Call::UnlinkatDir, &csi, "/pv/mount");
    let of = |reach, tried: Tried| {
        cause(&own, &mount(b"/"), 1, &tried, Some(&driver(reach))).id.as_str()
    };
    let forgot = "csi-driver-lost-publish-state";
    assert_eq!(of(Reach::Whole, tried(None, 0)), forgot);
    assert_eq!(of(Reach::Cut { mounted: true }, tried(None, 0)), forgot);
    assert_eq!(of(Reach::Cut { mounted: false }, tried(None, 0)), "csi-umount-wrong-namespace");
    // A process calls umount2 in the right namespace.
    let held = of(Reach::Cut { mounted: false }, tried(None, 3));
    assert_eq!(held, "volume-held-by-host-process");
}

#[test]
fn a_mount_inside_an_empty_dir_has_its_own_names() {
    let empty = target("kubernetes.io/empty-dir", "/data");
    let on =
        |root: &[u8], op: &Operation| cause(op, &mount(root), 1, &tried(None, 0), None).id.as_str();
    let of = |call, path: &str| on(b"/", &op(call, &empty, path));
    assert_eq!(of(Call::UnlinkatDir, "/data/m"), "emptydir-bidirectional-submount");
    assert_eq!(of(Call::Unlinkat, "/data/log"), "termination-message-in-bidirectional");
    assert_eq!(of(Call::UnlinkatDir, "/data"), "busy-unexplained");
    // A log does not show whether the path is a file; the mount on it does.
    let mut logged = op(Call::Unlinkat, &empty, "/data/log");
    logged.logged_in = Some("log of kubelet".into());
    assert_eq!(on(b"/srv", &logged), "emptydir-bidirectional-submount");
    for root in ["/k/pods/u/containers/c/98546bb6", "/pods/u/containers/c/9//deleted"] {
        assert_eq!(on(root.as_bytes(), &logged), "termination-message-in-bidirectional", "{root}");
    }
}

/// The finding about a CSI volume's own mount after this number of attempts.
fn after_of_mount_point(attempts: u64, tried: &Tried) -> Draft {
    let csi = target("kubernetes.io/csi", "/pv");
    after_on(op(Call::UnlinkatDir, &csi, "/pv/mount"), "ext4", attempts, tried).unwrap()
}

/// The finding about a removal where a file system of this type is mounted.
fn after_on(op: Operation, fs_type: &str, attempts: u64, tried: &Tried) -> Option<Draft> {
    let mut object = BusyObject {
        op,
        count: attempts,
        first: Monotonic(1),
        attempts: Attempts::default(),
        held: None,
        asked_again: false,
        confirmed: false,
    };
    for attempt in 0..attempts {
        object.attempts.note(Monotonic(attempt * 1_000_000_000));
    }
    let line = format!("9 2 0:9 / /pv/mount rw - {fs_type} /dev/sdb rw\n");
    let mounts = Mounts {
        all: mountinfo::parse(line.as_bytes()),
        source: "/proc/1/mountinfo".into(),
        pid: 1,
    };
    let (unmounts, steps) = (Unmounts::default(), KubeletSteps::default());
    let context = crate::testing::context(Monotonic(9_000_000_000), &unmounts, &steps, &[]);
    removal(&context, &object, tried, Some(&mounts))
}

#[test]
fn a_fuse_mount_is_asked_before_it_is_called_left() {
    let empty = target("kubernetes.io/empty-dir", "/pv");
    let mut busy = op(Call::UnlinkatDir, &empty, "/pv/mount");
    let is_found = |op: &Operation, fs_type, attempts| {
        after_on(op.clone(), fs_type, attempts, &tried(None, 0)).is_some()
    };
    assert!(is_found(&busy, "ext4", 2) && !is_found(&busy, "fuse.sshfs", 2));
    assert!(is_found(&busy, "fuse.sshfs", 3));
    busy.logged_in = Some("log of kubelet".into());
    assert!(is_found(&busy, "fuse.sshfs", 2));
}

#[test]
fn an_absent_unmount_is_known_only_after_some_attempts() {
    let silent = tried(None, 0);
    assert_eq!(after_of_mount_point(3, &silent).certainty(), Certainty::Likely);
    let sure = after_of_mount_point(4, &silent);
    sure.assert_is("csi-driver-lost-publish-state", Certainty::Firm);
    let fact = "no process unmounted it since 00:00:00Z, when the observation began";
    let fact = sure.evidence.iter().find(|known| known.fact == fact).unwrap();
    assert_eq!((&fact.source, fact.since), (&Source::Probe, Some(Monotonic(0))));
    // A log that other processes may write makes no finding firm.
    let mut heard = after_of_mount_point(4, &silent);
    heard.fact("x", Source::Log("log of kubelet (pid 7), /var/log/kubelet".into()));
    assert_eq!(heard.certainty(), Certainty::Firm, "{:?}", heard.not_known());
    heard.fact("x", Source::Log(format!("log of kubelet (pid 7), /var/log/syslog, {NOT_ROOTS}")));
    assert_eq!(heard.certainty(), Certainty::Likely, "{:?}", heard.not_known());
    assert_eq!(heard.not_known(), [format!("whether a log {NOT_ROOTS} is correct")]);
    // Guessed from the pauses, and not seen by a probe.
    let guessed = |known: &&crate::verdict::Fact| known.fact.contains("back-off");
    let sources = sure.evidence.iter().filter(guessed).map(|known| &known.source);
    assert!(sources.into_iter().all(|source| *source == Source::Inference));
}

#[test]
fn without_the_user_of_a_mount_its_use_is_only_possible() {
    let held = after_of_mount_point(9, &tried(None, 3));
    assert_eq!(held.id(), "volume-held-by-host-process");
    assert_eq!(held.certainty(), Certainty::Possible, "{:?}", held.not_known());
    for (ok, id) in [(1, "stacked-mounts"), (2, "csi-umount-wrong-namespace")] {
        let other = after_of_mount_point(2, &tried(Some(ok), 0));
        other.assert_is(id, Certainty::Firm);
    }
}
