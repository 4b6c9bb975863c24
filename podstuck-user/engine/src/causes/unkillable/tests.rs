//! unkillable: facts against verdicts.

use std::sync::Arc;

use podstuck_common::record::reason;

use crate::{
    causes::unkillable::{
        tracker::Unkillables,
        wait::{UNKNOWN, of, of_task},
    },
    event::What,
    model::{
        call::{Call, Outcome},
        disk::{Disk, ServedBy},
        errno::Errno,
        evidence::Certainty,
        identity::{Component, Pod, Target, TargetKind},
        mounted::Mounted,
        mounts::{Device, NodeMounts},
        node::{NodeSample, PodState, VolumeState},
        pod_group::{Member, PodGroup, Reaper, Task},
        runtime::Shim,
        said::{Report, Said},
        time::Monotonic,
    },
    testing::{self, Alone, FILE, failed, holder_of, lock_holder, mounted, reaper},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn group(tasks: Vec<Task>) -> PodGroup {
    let target = Target {
        kind: TargetKind::PodDirectory,
        pod: Some(Pod { uid: UID.into(), namespace: None, name: None }),
        ..Target::unknown()
    };
    PodGroup {
        target_id: 8,
        target: Arc::new(target),
        path: format!("/sys/fs/cgroup/pids/kubepods/pod{UID}").into(),
        tasks,
        ..testing::pod_group(UID)
    }
}

fn task(state: char, killed: bool) -> Task {
    Task {
        state,
        killed,
        started: 7,
        wait_channel: Some("rpc_wait_bit_killable".into()),
        group: format!("/sys/fs/cgroup/pids/kubepods/pod{UID}/c").into(),
        ..testing::task("app", 42)
    }
}

fn pod(volumes: usize) -> PodState {
    let volume = VolumeState { file: Some(FILE), ..testing::volume_state("/v", Vec::new()) };
    PodState { populated: Some(true), volumes: vec![volume; volumes], ..testing::pod_state(UID) }
}

struct Run {
    alone: Alone<Unkillables>,
    /// In each sample.
    disks: Vec<Disk>,
}

impl Run {
    fn new() -> Self {
        Self::beside(Vec::new())
    }

    fn beside(disks: Vec<Disk>) -> Self {
        Self { alone: Alone::new(), disks }
    }

    fn verdicts(
        &mut self,
        second: u64,
        pods: Vec<PodState>,
        groups: Vec<PodGroup>,
    ) -> Vec<Verdict> {
        let at = Monotonic(second * 1_000_000_000);
        let disks = self.disks.clone();
        let sample = NodeSample { at, pods, cgroups: groups, disks, ..NodeSample::default() };
        self.alone.take(at, What::Sample(Arc::new(sample))).verdicts
    }

    /// The last finding of samples that are all the same.
    fn lasting(&mut self, pod: Option<PodState>, group: &PodGroup) -> Option<Draft> {
        let mut said = None;
        let lasts = if group.frozen.is_some() { 10 } else { 5 };
        for second in (0..=lasts + 1).step_by(2) {
            let pods = pod.iter().cloned().collect();
            said = self.verdicts(second, pods, vec![group.clone()]).pop();
            let is_firm = matches!(&said, Some(Verdict::Found(draft)) if draft.doubts.is_empty());
            assert!(second >= lasts || !is_firm, "after {second} s");
            assert!(second >= 5 || said.is_none(), "after {second} s");
        }
        said.map(|verdict| match verdict {
            Verdict::Found(draft) => *draft,
            other => panic!("{other:?}"),
        })
    }
}

#[test]
fn a_killed_process_that_waits_in_the_kernel_is_named() {
    let draft = Run::new().lasting(Some(pod(2)), &group(vec![task('S', false), task('D', true)]));
    let draft = draft.unwrap();
    assert_eq!((draft.id(), draft.actor.as_ref().unwrap().pid), ("dstate-process", 42));
    assert!(draft.path.ends_with("c") && draft.explanation.contains("an NFS server"));
    assert_eq!(draft.target.pod.as_ref().unwrap().uid, UID);
}

/// huggingface/hf-mount#192: a FUSE server that waits for a page which only it could write.
#[test]
fn a_page_may_be_one_of_the_pods_own_fuse_file_system() {
    let wait = Task { wait_channel: Some("folio_wait_bit".into()), ..task('D', true) };
    let draft = |is_fuse| {
        let mut pod = pod(1);
        let mount = mounted(std::path::Path::new("/v"), 12);
        let device = Device { major: 0, minor: 40 };
        pod.volumes[0].mounts = vec![Mounted { is_fuse, device, ..mount }];
        Run::new().lasting(Some(pod), &group(vec![wait.clone()])).unwrap()
    };
    let (served, on_disk) = (draft(true), draft(false));
    served.assert_is("dstate-process", Certainty::Likely);
    let first = served.remedies[0].words();
    assert!(first.ends_with("echo 1 > /sys/fs/fuse/connections/40/abort"), "{first}");
    on_disk.assert_is("dstate-process", Certainty::Firm);
    assert!(!on_disk.remedies[0].words().contains("abort"));
    assert!(!on_disk.explanation.contains("block device"), "{}", on_disk.explanation);
}

/// Alluxio#15161: a process is killed while it waits for the server of the pod's own FUSE mount.
#[test]
fn the_connection_of_the_pods_fuse_mount_is_aborted_by_its_number() {
    let wait = Task { wait_channel: Some("request_wait_answer".into()), ..task('D', true) };
    let mut pod = pod(1);
    let mount = mounted(std::path::Path::new("/v"), 12);
    let device = Device { major: 0, minor: 40 };
    pod.volumes[0].mounts = vec![Mounted { is_fuse: true, device, ..mount }];
    let draft = Run::new().lasting(Some(pod), &group(vec![wait])).unwrap();
    draft.assert_is("dstate-process", Certainty::Firm);
    let first = draft.remedies[0].words();
    assert!(first.ends_with("echo 1 > /sys/fs/fuse/connections/40/abort"), "{first}");
}

/// mayastor#474: the pod's volume is on a disk that does not answer.
#[test]
fn the_device_of_the_pods_volume_is_named_where_it_may_be_the_one() {
    let wait = |channel: &str| Task { wait_channel: Some(channel.into()), ..task('D', true) };
    let words = |channel: &str, major| {
        let mut pod = pod(1);
        let mount = mounted(std::path::Path::new("/v"), 12);
        let device = Device { major, minor: 40 };
        pod.volumes[0].mounts =
            vec![Mounted { device, what: "/dev/nvme2n1 of type xfs".into(), ..mount }];
        let draft = Run::new().lasting(Some(pod), &group(vec![wait(channel)])).unwrap();
        draft.assert_is("dstate-process", Certainty::Firm);
        let facts: Vec<&str> = draft.evidence.iter().map(|it| it.fact.as_str()).collect();
        let ways: Vec<&str> = draft.remedies.iter().map(|it| it.words()).collect();
        facts.join("\n") + &ways.join("\n")
    };
    let named = words("folio_wait_bit", 259);
    assert!(
        named.contains("/dev/nvme2n1") && named.contains("bring back the device of /v"),
        "{named}"
    );
    assert!(!words("folio_wait_bit", 0).contains("/dev/nvme2n1"), "it is on no block device");
    assert!(!words("rpc_wait_bit_killable", 259).contains("/dev/nvme2n1"), "it waits for NFS");
}

/// containerd#8285 and hpe csi-driver#578: the disk that does not answer is known by its requests.
#[test]
fn a_wait_for_a_disk_is_followed_to_what_serves_it() {
    let wait = Task { wait_channel: Some("xlog_wait_on_iclog".into()), ..task('D', true) };
    let disk = |name: &str, minor, below: &[&str], served_by| {
        let below = below.iter().map(|name| (*name).to_owned()).collect();
        let device = Device { major: 253, minor };
        Disk { name: name.into(), device, in_flight: 2, done: 9, below, served_by }
    };
    let draft = |of_volume| {
        let session = ServedBy::Iscsi {
            target: "iqn.2026-01.example:a".into(),
            portal: "192.0.2.7:3260".into(),
            state: "FAILED".into(),
        };
        let mut pod = pod(1);
        let mount = mounted(std::path::Path::new("/v"), 12);
        let device = Device { major: 253, minor: of_volume };
        pod.volumes[0].mounts = vec![Mounted { device, ..mount }];
        let mapped = disk("dm-0", 0, &["sda"], None);
        let mut run = Run::beside(vec![mapped, disk("sda", 1, &[], Some(session))]);
        run.lasting(Some(pod), &group(vec![wait.clone()])).unwrap()
    };
    let (own, other) = (draft(0), draft(7));
    own.assert_is("dstate-process", Certainty::Firm);
    let waits = own.waits_for.as_deref().unwrap();
    assert!(waits.starts_with("sda (") && waits.contains("its session is FAILED"), "{waits}");
    let first = own.remedies[0].words();
    assert!(first.starts_with("bring back the iSCSI target iqn.2026-01.example:a at"), "{first}");
    assert!(own.evidence.iter().any(|it| it.fact.starts_with("sda has 2 requests in flight")));
    assert_eq!(other.waits_for, None, "no volume of the pod is on it");
    assert!(other.remedies[0].words().ends_with("no volume of the pod is on it"));
}

/// A killed process that has a file open closes it before it ends, and the client waits for the server's answer.
#[test]
fn the_nfs_volume_of_the_pod_is_unmounted_by_force() {
    let point = format!("/k/pods/{UID}/volumes/x/v");
    let first = |fs_type: &str, shared: &str| {
        let own = format!("12 2 0:40 / {point} rw - {fs_type} 10.0.0.5:/x rw\n");
        let table = testing::mounts(&(own + shared));
        let tables = [(4, table.into())].into();
        let mut pod = pod(1);
        let device = Device { major: 0, minor: 40 };
        let mount = mounted(&point, 12);
        pod.volumes[0].mounts = vec![Mounted { device, namespace: 4, ..mount }];
        let sample = NodeSample {
            pods: vec![pod],
            cgroups: vec![group(vec![task('D', true)])],
            mounts: NodeMounts { tables, host: Some(4) },
            ..NodeSample::default()
        };
        let mut run = Run::new();
        let mut at = |second: u64| {
            let at = Monotonic(second * 1_000_000_000);
            run.alone.take(at, What::Sample(NodeSample { at, ..sample.clone() }.into())).verdicts
        };
        at(0);
        let [Verdict::Found(draft)] = &at(6)[..] else { panic!() };
        draft.assert_is("dstate-process", Certainty::Firm);
        draft.remedies[0].clone().given(Certainty::Firm, false)
    };
    let own = first("nfs4", "");
    assert!(own.words().contains("timeout -s KILL 5 umount -f /k/pods/"), "{own:?}");
    assert!(!first("tmpfs", "").words().contains("umount"));
    let shared = first("nfs4", "13 2 0:40 / /srv/backup rw - nfs4 10.0.0.5:/x rw\n");
    assert_eq!(shared.affects, ["/srv/backup"], "{}", shared.words());
}

#[test]
fn waiting_for_a_disk_or_being_killed_alone_is_nothing() {
    for (state, killed) in [('D', false), ('R', true), ('S', false)] {
        let said = Run::new().lasting(Some(pod(2)), &group(vec![task(state, killed)]));
        assert!(said.is_none(), "{state} {killed}");
    }
}

#[test]
fn another_process_each_time_is_a_busy_disk_and_not_stuck() {
    let mut run = Run::new();
    for second in [0, 2, 4, 6, 8] {
        let other = Task { started: second, ..task('D', true) };
        assert!(run.verdicts(second, vec![pod(2)], vec![group(vec![other])]).is_empty());
    }
}

#[test]
fn of_several_threads_the_one_that_stays_is_reported() {
    let mut run = Run::new();
    let mut said = Vec::new();
    for second in [0, 2, 4, 6] {
        let passing = Task { tid: 9, started: second, ..task('D', true) };
        let both = vec![passing, task('D', true)];
        said = run.verdicts(second, vec![pod(2)], vec![group(both)]);
    }
    let [Verdict::Found(draft)] = &said[..] else { panic!("{said:?}") };
    assert!(draft.evidence[0].fact.contains("process 42"), "{:?}", draft.evidence);
    let over = run.verdicts(8, vec![pod(2)], vec![group(vec![task('S', false)])]);
    assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
}

#[test]
fn a_thread_that_is_woken_repeatedly_writes_before_it_ends() {
    let mut run = Run::new();
    let mut said = None;
    for second in (0..=120).step_by(2) {
        let woken = Some(second * 10);
        let task = Task { woken, ..task('D', true) };
        said = run.verdicts(second, vec![pod(2)], vec![group(vec![task])]).pop();
        assert!(second >= 120 || said.is_none(), "after {second} s");
    }
    let Some(Verdict::Found(draft)) = said.take() else { panic!() };
    assert!(
        draft.not_known()[0].contains("it is woken, reads or writes"),
        "{:?}",
        draft.not_known()
    );
    // It is reported once it is quiet.
    let still = Task { woken: Some(1200), ..task('D', true) };
    for second in [122, 124, 126, 128] {
        said = run.verdicts(second, vec![pod(2)], vec![group(vec![still.clone()])]).pop();
    }
    let Some(Verdict::Found(draft)) = said else { panic!() };
    assert!(draft.not_known().is_empty(), "{:?}", draft.not_known());
}

#[test]
fn a_thread_that_moves_data_or_whose_server_answers_is_slow() {
    let on_disk = Task { wait_channel: Some("folio_wait_bit".into()), ..task('D', true) };
    let with = |moved, received| Task { moved, received, ..task('D', true) };
    let of_disk = |moved, received| Task { moved, received, ..on_disk.clone() };
    type Of<'a> = &'a dyn Fn(Option<u64>, Option<u64>) -> Task;
    type Sample = fn(u64) -> (Option<u64>, Option<u64>);
    let idle: Sample = |_| (Some(7), Some(7));
    let moves: Sample = |second| (Some(second), None);
    let answers: Sample = |second| (None, Some(second));
    // A value that every other sample lacks has not changed.
    let gaps: Sample = |second| ((second % 4 == 0).then_some(7), None);
    let all: [(&str, Of<'_>, Sample, u64); 6] = [
        ("nothing moves", &with, idle, 6),
        ("it reads or writes", &with, moves, 120),
        ("its NFS server answers a client", &with, answers, 120),
        ("it waits for a disk, and an NFS server answers", &of_disk, answers, 6),
        ("it waits for a disk, and writes", &of_disk, moves, 120),
        ("not always readable", &with, gaps, 6),
    ];
    for (what, task, sample, from) in all {
        let mut run = Run::new();
        let reported_at = (0..=120).step_by(2).find(|second| {
            let (moved, received) = sample(*second);
            let group = group(vec![task(moved, received)]);
            !run.verdicts(*second, vec![pod(2)], vec![group]).is_empty()
        });
        assert_eq!(reported_at, Some(from), "{what}");
    }
}

#[test]
fn a_frozen_group_is_reported_with_its_thaw() {
    let mut frozen = group(vec![task('D', true)]);
    frozen.frozen = Some("/sys/fs/cgroup/freezer/kubepods".into());
    let draft = Run::new().lasting(Some(pod(2)), &frozen).unwrap();
    assert_eq!(draft.id(), "cgroup-v1-frozen");
    let thaw = "echo THAWED > /sys/fs/cgroup/freezer/kubepods/freezer.state";
    assert_eq!(draft.remedies[0].words(), thaw);
    // The pod is paused, and no process was killed.
    frozen.tasks = vec![task('D', false)];
    assert!(Run::new().lasting(Some(pod(2)), &frozen).is_none());
}

#[test]
fn a_zombie_that_no_process_outside_reaps_keeps_the_init_process() {
    let group_of_agent = Some("/system.slice/agent.service".into());
    let reaper = Reaper { group: group_of_agent, ..reaper("agent", 90) };
    let of = |state, reaper: Option<Reaper>| {
        let member = Member { pid: 50, comm: "probe".into(), state, reaper };
        let channel = Some("zap_pid_ns_processes".into());
        let init = task('S', false);
        group(vec![Task { exiting: true, wait_channel: channel, members: vec![member], ..init }])
    };
    let says = |group: &PodGroup| Run::new().lasting(Some(pod(2)), group);
    let draft = says(&of('Z', Some(reaper.clone()))).unwrap();
    draft.assert_is("zombie-not-reaped", Certainty::Firm);
    assert_eq!(draft.actor.as_ref().unwrap().pid, 90);
    let [end] = &draft.remedies[..] else { panic!("{:?}", draft.remedies) };
    assert!(
        end.words().ends_with("kill -KILL 90") && end.risk.contains("agent.service"),
        "{end:?}"
    );
    // A debugger or the shell's job control has stopped it.
    let stopped = Reaper { state: 'T', ..reaper.clone() };
    let draft = says(&of('Z', Some(stopped))).unwrap();
    assert!(draft.remedies[0].words().ends_with("kill -CONT 90"), "{:?}", draft.remedies);
    // A daemon of the node is not killed.
    let group_of_docker = Some("/system.slice/docker.service".into());
    let dockerd = Reaper { comm: "dockerd".into(), group: group_of_docker, ..reaper.clone() };
    let draft = says(&of('Z', Some(dockerd))).unwrap();
    assert_eq!(draft.remedies[0].words(), "systemctl restart docker.service");
    // Its parent is in the namespace, too, and is to end as the others.
    assert!(says(&of('Z', None)).is_none());
    assert!(says(&of('S', None)).is_none());
    // A tracer stops a process that has taken SIGKILL before it exits.
    let tracer = Reaper { traces: true, state: 'T', ..reaper.clone() };
    let traced = Task { exiting: true, traced_by: Some(tracer), ..task('t', false) };
    let draft = says(&group(vec![traced.clone()])).unwrap();
    draft.assert_is("tracer-keeps-process", Certainty::Firm);
    let words: Vec<String> = draft.remedies.iter().map(|it| it.words().to_owned()).collect();
    assert!(
        words[0].ends_with("kill -CONT 90") && words[1].ends_with("kill -KILL 90"),
        "{words:?}"
    );
    assert!(says(&group(vec![Task { exiting: false, ..traced }])).is_none(), "it was not killed");
    // A shim that does not reap is a finding of its own.
    let mut of_shim = of('Z', Some(reaper));
    of_shim.shims.push(Shim { pid: 90, comm: "containerd-shim".into(), ..testing::shim() });
    assert!(says(&of_shim).is_none());
}

#[test]
fn processes_without_volumes_and_containers_are_left_over() {
    let mut left = group(vec![task('S', false)]);
    left.has_containers = false;
    // A runtime with names of its own for groups leaves no other traces while the pod runs.
    let draft = Run::new().lasting(Some(pod(0)), &left).unwrap();
    draft.assert_is("cgroup-populated-leftover", Certainty::Possible);
    assert!(Run::new().lasting(Some(pod(1)), &left).is_none(), "still torn down");
    // A static pod has neither volumes nor a reason to end.
    left.has_containers = true;
    assert!(Run::new().lasting(Some(pod(0)), &left).is_none());
    // Its kubelet's root may be unknown.
    assert!(Run::new().lasting(None, &left).is_none());
}

#[test]
fn a_pod_whose_volumes_were_removed_is_known_to_end() {
    let left = group(vec![task('S', false)]);
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "", 1.0);
    op.outcome = Outcome::OK;
    op.reason = reason::ROOT_GONE;
    let pod_of = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(pod_of);
    let mut run = Run::new();
    run.alone.ask(&op);
    let draft = run.lasting(Some(pod(0)), &left).unwrap();
    draft.assert_is("cgroup-populated-leftover", Certainty::Firm);
    // The process has ended.
    let over = run.verdicts(8, vec![pod(0)], vec![group(Vec::new())]);
    assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
}

#[test]
fn a_running_pod_whose_directory_cannot_be_read_has_no_finding() {
    let running = group(vec![task('S', false)]);
    let mut run = Run::new();
    assert!(run.verdicts(0, vec![pod(2)], vec![running.clone()]).is_empty());
    for second in [2, 4, 6, 8, 10] {
        let said = run.verdicts(second, Vec::new(), vec![running.clone()]);
        assert!(said.is_empty(), "{said:?}");
    }
}

/// A frozen process that was killed ends at the thaw, so it has been frozen since the kill.
#[test]
fn a_group_is_known_to_be_frozen_since_the_runtime_has_killed_its_container() {
    let id = "c".repeat(64);
    let mut killed = task('D', true);
    killed.group = format!("/sys/fs/cgroup/freezer/kubepods/pod{UID}/{id}").into();
    let mut group = group(vec![killed]);
    group.frozen = Some(format!("/sys/fs/cgroup/freezer/kubepods/pod{UID}").into());
    let finding = |container: &str, killed: i64| {
        let mut run = Run::new();
        let at = jiff::Timestamp::from_second(killed).unwrap();
        let text = format!("Kill container \"{container}\"");
        let said = Said::new(Component::Containerd, "log of containerd", UID, at, &text);
        let said = Said { report: Some(Report::Killed), ..said };
        run.alone.take(Monotonic(30_000_000_000), What::Said(Box::new(said)));
        let mut verdicts = run.verdicts(30, vec![pod(1)], vec![group.clone()]);
        verdicts.pop().map(|verdict| match verdict {
            Verdict::Found(draft) => (draft.certainty(), draft.first.0 / 1_000_000_000),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(finding(&id, 18), Some((Certainty::Firm, 18)), "in the first sample");
    assert_eq!(finding(&id, 23), Some((Certainty::Likely, 23)), "a snapshot may have frozen it");
    assert_eq!(finding(&id, 28), None);
    assert_eq!(finding(&"d".repeat(64), 18), None, "one that ran before");
}

#[test]
fn a_killed_process_that_sleeps_for_a_lock_waits_for_what_its_holder_waits_for() {
    let holder = lock_holder("tar", 77, &["request_wait_answer", "fuse_lookup"]);
    let channel = Some("rwsem_down_write_slowpath".into());
    let task = Task { lock: vec![holder], wait_channel: channel, ..task('D', true) };
    assert_eq!(of_task(&task).what, "a FUSE server");
    let draft = Run::new().lasting(Some(pod(2)), &group(vec![task])).unwrap();
    assert_eq!(holder_of(&draft.held_by), "tar (pid 77)");
    let says = format!("{:?}", draft.evidence);
    assert!(
        says.contains("the thread waits for a rw_semaphore of the kernel, held by tar"),
        "{says}"
    );
    assert!(draft.remedies.iter().any(|it| it.words().contains("tar (pid 77")));
}

#[test]
fn each_wait_has_its_cause_and_words() {
    let of = |channel, stack: &[&str]| {
        let stack: Vec<String> = stack.iter().map(|name| (*name).into()).collect();
        let wait = of(channel, &stack);
        (wait.cause.id.as_str(), wait.what)
    };
    assert_eq!(of(Some("io_schedule"), &["folio_wait_bit", "nfs_wb_all"]).1, "an NFS server");
    assert_eq!(of(Some("percpu_rwsem_wait"), &[]).1, "a frozen file system");
    assert_eq!(of(Some("down_read"), &["foo [nvidia]"]).0, "gpu-driver-dstate");
    assert_eq!(of(None, &[]).0, "dstate-process");
    assert_eq!(of(Some("rmqueue"), &[]).1, UNKNOWN.what);
}
