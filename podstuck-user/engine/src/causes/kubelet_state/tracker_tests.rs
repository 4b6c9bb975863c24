//! Deletions that wait inside kubelet: facts against verdicts.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;

use super::tracker::KubeletsPart;
use crate::{
    event::What,
    model::{
        call::Outcome,
        csi::Registration,
        dra::{DeviceDriver, KeptClaim},
        errno::Errno,
        evidence::Certainty,
        identity::{Component, Target},
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        pod_group::{PodGroup, Task},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
        remedy::Remedy,
        said::{Complaint, Heard, Level, NamedLook, Report, Said},
        time::Monotonic,
    },
    testing::{
        Alone, container_record, found, holder_of, mounted, pod_group, pod_record, pod_state,
        runtime, task,
    },
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const NOW: i64 = 900;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn waiting() -> ContainerRecord {
    ContainerRecord { id: None, ..container_record(ContainerState::Waiting) }
}

/// A record whose grace ended at 600.
fn record() -> PodRecord {
    let deletion = Some(at(600));
    PodRecord { deletion, all_terminated: false, containers: Some(Vec::new()), ..pod_record(UID) }
}

fn says(text: &str, second: i64, times: u64) -> Said {
    Said { times, ..Said::new(Component::Kubelet, "log", UID, at(second), text) }
}

fn watch(text: &str, second: i64) -> Said {
    let complaint = Some(Complaint::WatchFails);
    Said { uid: String::new(), complaint, ..says(text, second, 9) }
}

struct Case {
    record: Option<PodRecord>,
    pod: PodState,
    said: Vec<Said>,
    heard: Option<i64>,
    tasks: Vec<Task>,
}

impl Default for Case {
    fn default() -> Self {
        let pod = PodState { populated: Some(false), ..pod_state(UID) };
        let (said, tasks) = (Vec::new(), Vec::new());
        Self { record: Some(record()), pod, said, heard: None, tasks }
    }
}

impl Case {
    fn draft(&self) -> Option<Draft> {
        let mut alone = Alone::<KubeletsPart>::new();
        let now = Monotonic(NOW.cast_unsigned() * 1_000_000_000);
        if let Some(record) = self.record.clone() {
            let (record, node) = (Box::new(record), "here".into());
            alone.take(now, What::Record { record, node });
        }
        for said in self.said.clone() {
            alone.take(now, What::Said(Box::new(said)));
        }
        if let Some(since) = self.heard {
            let (source, until) = ("log".into(), at(NOW));
            let heard = Heard { source, since: at(since), until, names_steps: true };
            alone.take(now, What::Heard(Box::new(heard)));
        }
        let (pods, kubelets) = (vec![self.pod.clone()], vec![7]);
        let cgroups = vec![PodGroup { tasks: self.tasks.clone(), ..pod_group(UID) }];
        let runtimes = vec![runtime(Component::Containerd)];
        let sample =
            NodeSample { at: now, pods, kubelets, cgroups, runtimes, ..NodeSample::default() };
        found(alone.take(now, What::Sample(Arc::new(sample))).verdicts).pop()
    }

    /// The cause, the holder, and whether a command deletes the record.
    fn verdict(&self) -> Option<(&'static str, String, bool)> {
        let draft = self.draft()?;
        assert_eq!(draft.certainty(), Certainty::Likely, "{:?}", draft.not_known());
        let is_forced = draft.remedies.iter().any(|it| it.words().contains("--force"));
        Some((draft.id(), holder_of(&draft.held_by), is_forced))
    }
}

fn runs() -> PodState {
    PodState { populated: Some(true), ..pod_state(UID) }
}

fn volume(plugin: &str) -> VolumeState {
    let path = format!("/k/pods/{UID}/volumes/{plugin}/v");
    let mounts = vec![mounted(Path::new(&path), 1)];
    let (target, path) = (Arc::new(Target::unknown()), path.into());
    VolumeState { target_id: 7, target, path, file: None, csi: None, mounts }
}

fn kubelet() -> String {
    "kubelet (pid 7)".into()
}

/// As in kubernetes issue 114546, and as busybox's `umount` says the same.
#[test]
fn a_directory_that_kubelet_takes_for_a_mount_point_is_to_be_removed() {
    let nfs = |mounts| VolumeState { mounts, ..volume("kubernetes.io~nfs") };
    let path = nfs(Vec::new()).path;
    let path = path.display();
    let case = |mounts, output: &str| {
        let text = format!(
            "unmount failed: exit status 32\nUnmounting arguments: {path}\nOutput: umount: {output}"
        );
        let pod = PodState { volumes: vec![nfs(mounts)], ..Case::default().pod };
        Case { record: None, pod, said: vec![says(&text, 890, 2)], ..Case::default() }
    };
    for output in [
        format!("{path}: not mounted."),
        format!("can't unmount {path}: Invalid argument"),
        format!("{path}: no mount point specified."),
    ] {
        let draft = case(Vec::new(), &output).draft().unwrap();
        assert_eq!(draft.id(), "kubelet-step-fails");
        let first = draft.remedies[0].words().to_owned();
        assert_eq!(first, format!("rmdir '{path}'"));
    }
    let mounted =
        case(nfs(volume("kubernetes.io~nfs").mounts).mounts, &format!("{path}: not mounted."));
    assert!(mounted.draft().is_none(), "it is mounted");
    assert!(case(Vec::new(), &format!("{path}: target is busy.")).draft().is_none());
    assert!(case(Vec::new(), "/other: not mounted.").draft().is_some(), "by what is unmounted");
}

/// As in kubernetes issue 25759.
#[test]
fn a_kubelet_whose_watch_fails_has_not_heard_of_the_deletion() {
    let old = "too old resource version: 7611676 (7611861)";
    let case = |text: &str| Case { pod: runs(), said: vec![watch(text, 890)], ..Case::default() };
    assert_eq!(case(old).verdict(), Some(("kubelet-missed-deletion", kubelet(), false)));
    let first = |text: &str| case(text).draft().unwrap().remedies[0].words().to_owned();
    assert!(first(old).starts_with("restart kubelet"));
    assert!(first("Get \"https://a:6443/\": x509: certificate has expired").contains("enddate"));
    assert!(first("dial tcp 10.0.0.1:6443: connect: connection refused").contains("connection"));
    for report in [Report::ToGo, Report::Killing, Report::ContainerEnded] {
        let mut case = case(old);
        case.said.push(Said { report: Some(report), ..says("x", 700, 1) });
        assert!(case.verdict().is_none(), "{report:?}: it has heard");
    }
    let ended = Case { pod: Case::default().pod, ..case(old) };
    assert!(ended.verdict().is_none(), "it may have ended them before");
    assert!(
        Case { said: vec![watch(old, 300)], ..Case::default() }.verdict().is_none(),
        "long ago"
    );
    let later = PodRecord { deletion: Some(at(895)), ..record() };
    assert!(Case { record: Some(later), ..case(old) }.verdict().is_none(), "a moment ago");
    let mirror = PodRecord { is_mirror: true, ..record() };
    assert!(Case { record: Some(mirror), ..case(old) }.verdict().is_none());
    assert!(Case { record: None, ..case(old) }.verdict().is_none(), "who says that it is to go?");
}

#[test]
fn a_log_that_is_whole_and_has_nothing_of_the_deletion_says_the_same() {
    let case = |heard| Case { pod: runs(), heard: Some(heard), ..Case::default() };
    assert_eq!(case(500).verdict(), Some(("kubelet-missed-deletion", kubelet(), false)));
    assert!(case(700).verdict().is_none(), "it begins too late");
    let added = Said { report: Some(Report::Added), ..says("x", 650, 1) };
    assert!(Case { said: vec![added], ..case(500) }.verdict().is_none(), "it was started again");
}

/// As in kubernetes issues 122960, 139772, 129402, 131957, 106711 and 87470.
#[test]
fn what_kubelet_fails_at_by_itself_is_named_and_what_helps() {
    let block = "blkUtil.DetachFileDevice failed. globalUnmapPath:, podUID: x, bindMount: true: failed to unmap device from \
        map path. mapPath is empty";
    let unmade = "Error syncing pod, skipping: unprepare dynamic resources: pod \"a/b\": ResourceClaim not created yet";
    let driver = "Error syncing pod, skipping: unprepare dynamic resources: get gRPC client for DRA driver gpu.example.com: \
        plugin name gpu.example.com not found in the list of registered DRA plugins";
    // Without the words before it, as kubelet 1.32 has it.
    let away = "Error syncing pod, skipping: failed to get gRPC client for driver gpu.example.com: plugin name gpu.example.com \
        not found in the list of registered DRA plugins";
    let fails = "Error syncing pod, skipping: unprepare dynamic resources: NodeUnprepareResources failed: rpc error: no";
    let gone = "Failed killing the pod \"web\": failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: \
        code = Unknown desc = Error response from daemon: No such container: 0a\"";
    let not_found = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = NotFound desc = an error \
        occurred when try to find container \\\"0a\\\": not found\"";
    let refuses = "Status update on pod shop/cart aborted: terminated container app attempted illegal transition to \
        non-terminated state";
    // kubernetes#59564.
    let no_image = "getPodContainerStatuses for pod \"cart_shop(u)\" failed: rpc error: code = 2 desc = unable to inspect \
        docker image \"sha256:db15\" while inspecting docker container \"807a82\": no such image: \"sha256:db15\"";
    let of_driver = "the DRA driver gpu.example.com, which is not registered".to_owned();
    let file = "/vol_data.json]: open /k/pods/u/volumes/kubernetes.io~csi/pv/vol_data.json: no such file or directory";
    let lost = format!(
        "kubernetes.io/csi: unmounter failed to load volume data file [/k]: kubernetes.io/csi: failed to open volume data file \
         [{}",
        file.replace("/k/pods/u", &pod_state(UID).directory.to_string_lossy())
    );
    let unreached = "Error syncing pod, skipping: unprepare dynamic resources: NodeUnprepareResources: rpc error: code = \
        Unavailable desc = dial unix /k/plugins/gpu.example.com/dra.sock: connect: connection refused";
    let locked = "Error syncing pod, skipping: unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim a: \
        timeout acquiring lock (/k/plugins/gpu.example.com/pu.lock)";
    let full = "Error syncing pod, skipping: unprepare dynamic resources: checkpoint ResourceClaim state: open /k/.7: no space \
        left on device";
    let of_driver_down = "the DRA driver gpu.example.com, which does not accept kubelet's calls";
    for (text, who, first) in [
        (unreached, of_driver_down.into(), "start the DRA driver gpu.example.com"),
        (locked, "the DRA driver gpu.example.com".into(), "end the process that holds the lock"),
        (full, kubelet(), "free space"),
        (block, kubelet(), "restart kubelet"),
        (&lost, kubelet(), "restart kubelet"),
        (unmade, kubelet(), "[ \"$(kubectl --namespace shop get pod cart"),
        (away, of_driver.clone(), "start the DRA driver gpu.example.com"),
        (driver, of_driver, "start the DRA driver gpu.example.com"),
        (fails, "a DRA driver of the pod".into(), "look into"),
        (gone, kubelet(), "restart kubelet"),
        (not_found, kubelet(), "restart kubelet"),
        (refuses, kubelet(), "[ \"$(kubectl --namespace shop get pod cart"),
        (no_image, kubelet(), "docker ps --all --quiet"),
    ] {
        let case = Case { said: vec![says(text, 800, 4)], ..Case::default() };
        assert_eq!(case.verdict(), Some(("kubelet-step-fails", who, true)), "{text}");
        assert!(case.draft().unwrap().remedies[0].words().starts_with(first), "{text}");
        for said in [says(text, 800, 1), says(text, 300, 4)] {
            assert!(Case { said: vec![said], ..Case::default() }.verdict().is_none(), "{text}");
        }
        let case = Case { said: vec![says(text, 800, 4)], pod: runs(), ..Case::default() };
        assert!(case.verdict().is_none(), "a container lives");
        let case = Case { said: vec![says(text, 800, 4)], record: None, ..Case::default() };
        assert!(case.verdict().is_some(), "kubelet says of the teardown, without a record");
        let stays = PodRecord { deletion: None, ..record() };
        let case = Case { said: vec![says(text, 800, 4)], record: Some(stays), ..Case::default() };
        assert!(case.verdict().is_none(), "it is not to go");
    }
    // A volume's directory that is left, or another pod's volume, is no fault of kubelet's memory.
    let path = pod_state(UID).directory.join("volumes/kubernetes.io~csi/pv");
    let left = VolumeState { path, ..volume("kubernetes.io~csi") };
    let pod = PodState { volumes: vec![left], populated: Some(false), ..pod_state(UID) };
    let case = Case { said: vec![says(&lost, 800, 4)], pod, ..Case::default() };
    assert!(case.verdict().is_none(), "its directory is there");
    let elsewhere = lost.replace(UID, "0f0e0d0c-1111-2222-3333-444455556667");
    assert!(Case { said: vec![says(&elsewhere, 800, 4)], ..Case::default() }.verdict().is_none());
    let other =
        "Error syncing pod, skipping: failed to \"KillContainer\": context deadline exceeded";
    assert!(Case { said: vec![says(other, 800, 4)], ..Case::default() }.verdict().is_none());
}

/// kubelet's file of ResourceClaims says which driver an error without a name is of.
#[test]
fn the_driver_that_kubelet_has_to_ask_is_named_from_its_file() {
    let fails = "Error syncing pod, skipping: unprepare dynamic resources: NodeUnprepareResources: rpc error: no";
    let claim = |name: &str, driver: &str, registration| KeptClaim {
        namespace: "shop".into(),
        name: name.into(),
        drivers: vec![DeviceDriver { name: driver.into(), registration }],
        source: "/k/dra_manager_state".into(),
    };
    let of = |text: &str, claims: &[KeptClaim]| {
        let pod = PodState { populated: Some(false), claims: claims.to_vec(), ..pod_state(UID) };
        let case = Case { pod, said: vec![says(text, 800, 4)], ..Case::default() };
        let draft = case.draft().unwrap();
        let facts = draft.evidence.iter().filter(|it| it.fact.contains("keeps ResourceClaim"));
        let facts: Vec<String> = facts.map(|it| it.fact.clone()).collect();
        (holder_of(&draft.held_by), draft.remedies[0].words().to_owned(), facts)
    };
    let deaf = claim("gpu", "gpu.example.com", Registration::Deaf);
    let fact = |name: &str, driver: &str, socket: &str| {
        format!(
            "kubelet keeps ResourceClaim shop/{name} for this pod alone, until it is unprepared by driver {driver} ({socket} \
             socket in plugins_registry)"
        )
    };
    let silent = || fact("gpu", "gpu.example.com", "no process listens on its");
    let (who, first, facts) = of(fails, std::slice::from_ref(&deaf));
    assert_eq!((&*who, facts), ("the DRA driver gpu.example.com", vec![silent()]));
    assert!(first.starts_with("start the DRA driver gpu.example.com"), "{first}");
    let listens = claim("gpu", "gpu.example.com", Registration::Listening);
    let (_, first, _) = of(fails, &[listens]);
    assert!(first.starts_with("look into the log of the DRA driver gpu.example.com"), "{first}");
    let nic = claim("nic", "nic.example.com", Registration::Absent);
    let both = [deaf, nic];
    let (who, first, facts) = of(fails, &both);
    let absent = fact("nic", "nic.example.com", "it has no");
    assert_eq!((&*who, facts), ("a DRA driver of the pod", vec![silent(), absent]));
    assert!(first.starts_with("look into the DRA driver's log"), "{first}");
    let names = "Error syncing pod, skipping: unprepare dynamic resources: DRA driver gpu.example.com is not registered";
    assert_eq!(of(names, &both).2, [silent()], "not the other driver's");
}

/// As in kubernetes issues 118286, 23742 and 22480.
#[test]
fn a_pod_that_kubelet_never_started_goes_without_it() {
    let rejected = "Predicate failed on Pod: Predicate TaintToleration failed";
    let failed = "Error syncing pod 0f, skipping: failed to \"StartContainer\" for \"app\" with RegistryUnavailable: \"x\"";
    let record = || PodRecord { containers: Some(vec![waiting()]), ..record() };
    let case = |said| Case { record: Some(record()), said, ..Case::default() };
    for text in [rejected, failed] {
        let verdict = case(vec![says(text, 400, 1)]).verdict();
        assert_eq!(verdict, Some(("pod-never-started", kubelet(), true)), "{text}");
    }
    assert!(case(Vec::new()).verdict().is_none(), "why?");
    let by_record = PodRecord { reason: Some("OutOfcpu".into()), ..record() };
    assert!(Case { record: Some(by_record), ..case(Vec::new()) }.verdict().is_some());
    let said = || vec![says(rejected, 400, 1)];
    let began = ContainerRecord { id: Some("containerd://0a".into()), ..waiting() };
    let began = PodRecord { containers: Some(vec![began]), ..record() };
    assert!(Case { record: Some(began), ..case(said()) }.verdict().is_none());
    assert!(Case { pod: runs(), ..case(said()) }.verdict().is_none(), "its sandbox lives");
    let with = |plugin| {
        let volumes = vec![volume(plugin)];
        let pod = PodState { volumes, populated: Some(false), ..pod_state(UID) };
        Case { pod, ..case(said()) }.verdict().is_some()
    };
    assert!(with("kubernetes.io~projected") && !with("kubernetes.io~nfs"));
    let known = Said { complaint: Some(Complaint::MountFails), ..says("MountVolume", 880, 3) };
    assert!(case([said(), vec![known]].concat()).verdict().is_none(), "that is another rule's");
}

/// As in kubernetes issues 30042 and 116032.
#[test]
fn a_post_start_hook_keeps_kubelet() {
    let creating = |has_post_start| {
        let reason = Some("ContainerCreating".into());
        let containers = Some(vec![ContainerRecord { reason, has_post_start, ..waiting() }]);
        Some(PodRecord { containers, ..record() })
    };
    let case = |has_post_start| Case {
        record: creating(has_post_start),
        pod: runs(),
        heard: Some(500),
        tasks: vec![task("pause", 4), task("nginx", 5), task("sh", 6)],
        ..Case::default()
    };
    let holder = "the postStart hook of container app".to_owned();
    assert_eq!(case(true).verdict(), Some(("poststart-hook-pending", holder, false)));
    let draft = case(true).draft().unwrap();
    assert!(draft.remedies[0].words().contains("kill -9 5"), "{}", draft.remedies[0].words());
    let none = |case: Case| case.draft().is_none_or(|it| it.id() != "poststart-hook-pending");
    assert!(none(case(false)));
    let stops = Said { report: Some(Report::Killing), ..says("x", 620, 1) };
    assert!(none(Case { said: vec![stops], ..case(true) }), "kubelet goes on");
    assert!(none(Case { tasks: vec![task("pause", 4)], ..case(true) }));
}

/// As in kubernetes issue 57095.
#[test]
fn a_mount_that_kubelet_may_not_search_is_to_be_unmounted() {
    let volume = volume("kubernetes.io~nfs");
    let path = volume.path.join("..");
    let looked = |outcome| Some(NamedLook { path: path.clone(), outcome });
    let pod = PodState { volumes: vec![volume.clone()], populated: Some(false), ..pod_state(UID) };
    let unique = format!("kubernetes.io/nfs/{UID}-v");
    let says = |errno: Errno| Said {
        volume: unique.clone(),
        looked: looked(Outcome::from(errno)),
        ..says(&format!("lstat {}: permission denied", path.display()), 890, 4)
    };
    let case = |errno| Case { pod: pod.clone(), said: vec![says(errno)], ..Case::default() };
    let draft = case(Errno::EACCES).draft().unwrap();
    assert_eq!(draft.id(), "kubelet-step-fails");
    assert!(draft.remedies[0].words().contains("umount"), "{}", draft.remedies[0].words());
    assert!(case(Errno::ESTALE).draft().is_none(), "its server does not know it any more");
}

/// As in kubernetes issue 123365.
#[test]
fn a_container_that_is_still_made_keeps_kubelet() {
    let to_go = || Said { report: Some(Report::ToGo), ..says("x", 610, 1) };
    let creating = |reason: &str| ContainerRecord { reason: Some(reason.into()), ..waiting() };
    let with = |containers| PodRecord { containers: Some(containers), ..record() };
    let case = |record, said: Vec<Said>| Case {
        record: Some(record),
        pod: runs(),
        said,
        heard: Some(500),
        tasks: vec![task("pause", 5)],
    };
    let makes = || with(vec![creating("ContainerCreating")]);
    let who = "containerd (pid 40), which creates container app".to_owned();
    assert_eq!(case(makes(), vec![to_go()]).verdict(), Some(("image-pull-pending", who, false)));
    let draft = case(makes(), vec![to_go()]).draft().unwrap();
    assert!(draft.remedies[0].words().starts_with("ctr --namespace k8s.io content active"));
    let none = |case: Case| case.draft().is_none();
    assert!(none(case(with(vec![creating("ImagePullBackOff")]), vec![to_go()])), "it has returned");
    let id = Some("containerd://0a".into());
    let running = ContainerRecord { state: ContainerState::Running, id, ..waiting() };
    assert!(none(case(with(vec![creating("PodInitializing"), running]), vec![to_go()])));
    let killing = Said { report: Some(Report::Killing), ..says("x", 620, 1) };
    assert!(none(case(makes(), vec![to_go(), killing])), "it has asked for its end");
    assert!(none(case(makes(), vec![to_go(), says("failed to stop", 880, 2)])), "it fails");
    let lives =
        Case { tasks: vec![task("pause", 5), task("web", 7)], ..case(makes(), vec![to_go()]) };
    assert!(none(lives), "a container of it runs");
    assert!(none(Case { heard: None, ..case(makes(), vec![to_go()]) }), "its log is not whole");
}

#[test]
fn what_is_mounted_or_lives_keeps_the_record() {
    let text = "unprepare dynamic resources: ResourceClaim not created yet";
    let with = |plugin: &str, populated| {
        let pod = PodState { volumes: vec![volume(plugin)], populated, ..pod_state(UID) };
        Case { pod, said: vec![says(text, 800, 4)], ..Case::default() }
            .verdict()
            .map(|verdict| verdict.2)
    };
    assert_eq!(with("kubernetes.io~projected", Some(false)), Some(true));
    assert_eq!(with("kubernetes.io~csi", Some(false)), Some(false));
    assert_eq!(with("kubernetes.io~projected", None), Some(false));
}

/// As containerd#8425, in words that no rule knows.
#[test]
fn an_unknown_error_counts_where_nothing_of_the_pod_is_left() {
    let to_go = || Said { report: Some(Report::ToGo), ..says("SyncLoop DELETE", 600, 1) };
    let error = || says("failed to frobnicate the sandbox of the pod", 880, 3);
    let with = |pod: PodState, said: Vec<Said>| Case { pod, said, ..Case::default() }.verdict();
    let bare = || PodState { populated: Some(false), ..pod_state(UID) };
    let found = with(bare(), vec![to_go(), error()]).unwrap();
    assert_eq!(found, ("kubelet-step-fails", kubelet(), true));
    let none = |pod: PodState, said: Vec<Said>| with(pod, said).is_none();
    assert!(none(bare(), vec![to_go(), says("failed to frobnicate", 880, 2)]), "it may pass");
    assert!(none(bare(), vec![to_go(), says("failed to frobnicate", 899, 3)]), "it has just begun");
    assert!(none(bare(), vec![error()]), "it may not be about the deletion");
    let refused = says("unlinkat /k/pods/x: device or resource busy", 880, 3);
    assert!(none(bare(), vec![to_go(), refused]), "a call that the kernel refuses");
    let unmount =
        "unmount failed: exit status 32 Output: umount: /k: must be superuser to unmount.";
    let unmount = says(unmount, 880, 3);
    assert!(none(bare(), vec![to_go(), unmount]), "kubelet sees a mount");
    let hook = says("PreStop hook failed: command 'drain' exited with 1", 880, 3);
    assert!(none(bare(), vec![to_go(), hook]), "kubelet continues after it");
    let warns = Said { level: Level::Warning, ..error() };
    assert!(none(bare(), vec![to_go(), warns]));
    let mounted = PodState { volumes: vec![volume("kubernetes.io~projected")], ..bare() };
    assert!(none(mounted, vec![to_go(), error()]), "kubelet has something to unmount");
    let runs = PodState { populated: Some(true), ..bare() };
    assert!(none(runs, vec![to_go(), error()]), "a process of it lives");
}

/// docker/for-linux#710: kubelet repeats what the runtime answers, so that the runtime must act.
#[test]
fn an_answer_of_the_runtime_to_a_kill_is_the_runtimes() {
    let error = "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = Unknown desc = Error response \
                 from daemon: cannot stop container aa: removal of container aa is already in progress\"";
    let to_go = Said { report: Some(Report::ToGo), ..says("SyncLoop DELETE", 600, 1) };
    let pod = PodState { populated: Some(false), ..pod_state(UID) };
    let case = Case { pod, said: vec![to_go, says(error, 880, 3)], ..Case::default() };
    let draft = case.draft().unwrap();
    draft.assert_is("kubelet-step-fails", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "the container runtime");
    let words: Vec<&str> = draft.remedies.iter().map(Remedy::words).collect();
    assert!(words[0].starts_with("look for what the earlier request waits for"), "{words:?}");
    assert!(!words.iter().any(|it| it.contains("restart kubelet")), "{words:?}");
}

/// moby#43080: kubelet's memory is not in the way, and its restart does not help.
#[test]
fn a_container_that_the_runtime_does_not_remove_is_the_runtimes() {
    let id = "a".repeat(64);
    let error = format!(
        "RemoveContainer from runtime service failed: rpc error: code = Unknown desc = failed to remove container \
         \"{id}\": Error response from daemon: container {id}: driver \"zfs\" failed to remove root filesystem"
    );
    // crun#709, with kubelet 1.20: crun's record of the container has a stale process.
    let of_crun = format!(
        "RemoveContainer \"{id}\" from runtime service failed: rpc error: code = Unknown desc = failed to delete container {id}: \
         `/usr/bin/crun --root /run/runc delete --force {id}` failed: open pidfd: Invalid argument"
    );
    let refused = format!(
        "RemoveContainer \"{id}\" from runtime service failed: rpc error: code = Unknown desc = unlinkat /var/lib/docker/x: \
         operation not permitted"
    );
    let of = |error: &str| {
        let to_go = Said { report: Some(Report::ToGo), ..says("SyncLoop DELETE", 600, 1) };
        let pod = PodState { populated: Some(false), ..pod_state(UID) };
        Case { pod, said: vec![to_go, says(error, 880, 3)], ..Case::default() }.draft()
    };
    for error in [error, of_crun] {
        let draft = of(&error).unwrap();
        draft.assert_is("kubelet-step-fails", Certainty::Likely);
        assert_eq!(holder_of(&draft.held_by), "the container runtime");
        let first = draft.remedies[0].advice.as_deref().unwrap_or_default();
        assert!(first.contains(&id) && !first.contains("restart"), "{first}");
    }
    assert!(of(&refused).is_none(), "the file has a cause of its own");
}

/// kubernetes#24252: dockerd's log has the request that kubelet's error is the answer to.
#[test]
fn a_container_that_docker_does_not_describe_is_removed() {
    let id = "a".repeat(64);
    let lost = "stat /var/lib/docker/overlay2/b4ad: no such file or directory";
    let of = |answer: &str, refused: &str| {
        let kubelets = format!("Error syncing pod {UID}, skipping: {answer}");
        let of_docker =
            format!("Handler for GET /v1.24/containers/{id}/json returned error: {refused}");
        let of_docker = Said { component: Component::Dockerd, ..says(&of_docker, 890, 3) };
        let said = vec![says(&kubelets, 880, 3), of_docker];
        Case { pod: runs(), said, record: None, ..Case::default() }.draft()
    };
    let newer = format!("rpc error: code = Unknown desc = Error response from daemon: {lost}");
    for answer in [format!("API error (500): {lost}"), newer] {
        let draft = of(&answer, lost).unwrap();
        draft.assert_is("kubelet-step-fails", Certainty::Likely);
        assert_eq!(holder_of(&draft.held_by), "the container runtime");
        let command = draft.remedies[0].command.clone().unwrap_or_default();
        assert!(command.contains(&id) && command.ends_with("docker rm"), "{command}");
        assert!(draft.evidence.iter().any(|it| it.fact.starts_with("dockerd logged")));
        assert!(of(&answer, "another error").is_none(), "it answers something else");
    }
    assert!(of(lost, lost).is_none(), "an error of kubelet's own");
    let gone = format!("No such container: {id}");
    assert!(of(&format!("API error (500): {gone}"), &gone).is_none(), "Docker knows its state");
}

/// An error of kubelet's own about a volume, kubernetes#90851 and #110818.
#[test]
fn what_kubelet_leaves_mounted_for_an_error_of_its_own_is_unmounted_by_hand() {
    let huge = volume("kubernetes.io~empty-dir");
    let of = |text: &str, volume: &VolumeState| {
        let said =
            Said { volume: format!("kubernetes.io/empty-dir/{UID}-v"), ..says(text, 890, 3) };
        let pod =
            PodState { volumes: vec![volume.clone()], populated: Some(false), ..pod_state(UID) };
        Case { record: None, pod, said: vec![said], ..Case::default() }.draft()
    };
    let size = "error getting page size from 'pagesize=2Mi' mount option: unable to parse quantity's suffix";
    let draft = of(size, &huge).unwrap();
    draft.assert_is("kubelet-step-fails", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), kubelet());
    let command = |draft: &Draft| draft.remedies[0].command.clone().unwrap_or_default();
    assert!(command(&draft).contains("umount "), "{}", command(&draft));
    // kubernetes#96916: kubelet's root is a symbolic link.
    let mut linked = huge.clone();
    let below = huge.path.strip_prefix("/k").unwrap();
    linked.mounts[0].point = Path::new("/data/kubelet").join(below);
    let unseen = format!("mount point for {} not found", huge.path.display());
    let draft = of(&unseen, &linked).unwrap();
    draft.assert_is("kubelet-step-fails", Certainty::Likely);
    assert!(command(&draft).contains("/data/kubelet/pods/"), "{}", command(&draft));
    linked.mounts[0].point = huge.path.join("below");
    assert!(of(&unseen, &linked).is_none(), "another mount");
    let mut stacked = huge.clone();
    let own = 4;
    let on_it = |id| Mounted { namespace: own, ..mounted(&stacked.path, id) };
    stacked.mounts = (1..4).map(on_it).collect();
    let failed = format!("error processing /k: Failed to unmount path {}", stacked.path.display());
    let draft = of(&failed, &stacked).unwrap();
    assert!(command(&draft).contains("while umount"), "{}", command(&draft));
    // kubernetes#65003.
    let unseen = format!(
        "pod \"{UID}\" found, but error stat {}: no such file or directory occurred during checking mounted volumes from \
         disk",
        huge.path.display()
    );
    let draft = of(&unseen, &huge).unwrap();
    draft.assert_is("kubelet-step-fails", Certainty::Likely);
    assert!(command(&draft).contains("umount "), "{}", command(&draft));
    let elsewhere = unseen.replace(": no such", "/below: no such");
    assert!(of(&elsewhere, &huge).is_none(), "nothing is mounted there");
    let refused = format!("remove {}: device or resource busy", huge.path.display());
    assert!(of(&refused, &huge).is_none(), "a call that the kernel refuses");
    let beyond = "open /proc/mounts: Too many open files in system";
    assert!(of(beyond, &huge).is_none(), "a call of any kind");
    let gone = VolumeState { mounts: Vec::new(), ..huge };
    assert!(of(size, &gone).is_none(), "nothing is mounted");
}
