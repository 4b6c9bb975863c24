//! Tests of the verdicts about CSI volumes.

use std::{collections::BTreeSet, sync::Arc};

use nix::errno::Errno;

use crate::{
    causes::{busy_mount::tracker::Busy, csi_volume::tracker::NotAttempted},
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        claim::{Claim, CsiSource, PersistentVolume},
        csi::{CsiState, DriverProcess, DriverState, Reach, Registration, VolumeData},
        evidence::Certainty,
        finding::FindingState,
        halted::Halted,
        hung::MountPoint,
        identity::{Actor, Component, Pod, Target, TargetKind, Volume},
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        node_record::NodeRecord,
        operation::Operation,
        path::JsonPath,
        pod_record::PodRecord,
        said::{Complaint, Heard, NamedLook, Report, Said},
        thread::Thread,
        time::Monotonic,
        waiting::{On, Part, Waiting},
    },
    query::Answer,
    testing::{self, Alone, FILE, failed, holder_of, pod_record},
    tracker::{self, TrackerId},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const ROOT: &str = "/k/pods/0f0e0d0c-1111-2222-3333-444455556666";

/// A volume whose target is identified by its path.
fn volume(path: &str, csi: Option<CsiState>, mounts: Vec<Mounted>) -> VolumeState {
    let target = Target {
        kind: TargetKind::PodVolume,
        root: path.into(),
        pod: Some(Pod { uid: UID.into(), namespace: None, name: None }),
        ..Target::unknown()
    };
    let target_id = podstuck_common::component::path_hash(path.as_bytes());
    let target = Arc::new(target);
    VolumeState { target_id, target, file: Some(FILE), csi, ..testing::volume_state(path, mounts) }
}

fn csi(registration: Registration) -> VolumeState {
    let path = format!("{ROOT}/volumes/kubernetes.io~csi/pv");
    let data = VolumeData::Known {
        driver: "d.example".into(),
        handle: "h".into(),
        lifecycle: "Persistent".into(),
    };
    let mounted = Mounted { what: "a disk".into(), ..testing::mounted(format!("{path}/mount"), 7) };
    let socket = "/k/plugins_registry/d.example-reg.sock".into();
    let csi = CsiState { data, socket, registration, driver: None, registry_changed: None };
    volume(&path, Some(csi), vec![mounted])
}

fn tokens() -> VolumeState {
    let path = format!("{ROOT}/volumes/kubernetes.io~projected/kube-api-access-x");
    volume(&path, None, Vec::new())
}

fn pod(volumes: Vec<VolumeState>) -> PodState {
    PodState { directory: ROOT.into(), volumes, ..testing::pod_state(UID) }
}

struct Played(Alone<NotAttempted>);

impl Played {
    fn new() -> Self {
        Self(Alone::new())
    }

    fn sample(&mut self, pod: &PodState, second: u64) -> Vec<Verdict> {
        let at = Monotonic(second * 1_000_000_000);
        let pods = vec![pod.clone()];
        let sample = NodeSample { at, kubelets: vec![1], pods, ..NodeSample::default() };
        self.0.take(at, What::Sample(Arc::new(sample))).verdicts
    }

    /// The last finding and its certainty, if the state lasts from second 10 to `until`.
    fn finding(&mut self, pod: &PodState, until: u64) -> Option<(&'static str, Certainty)> {
        let mut last = None;
        for second in (10..=until).step_by(2) {
            for verdict in self.sample(pod, second) {
                last = match verdict {
                    Verdict::Found(draft) => Some((draft.id(), draft.certainty())),
                    _ => None,
                };
            }
        }
        last
    }
}

fn umount(errno: Option<Errno>, second: f64, namespace: u32) -> Operation {
    let mut op = failed(Call::Umount2, errno.unwrap_or(Errno::EBUSY), "x", second);
    if errno.is_none() {
        op.outcome = Outcome::OK;
    }
    op.path = format!("{ROOT}/volumes/kubernetes.io~csi/pv/mount").into();
    op.mnt_ns = namespace;
    op
}

#[test]
fn nothing_is_said_before_the_threshold() {
    let lost = pod(vec![with_driver(as_it_is)]);
    let played = || {
        let mut played = Played::new();
        let (since, until) = (second(5), second(6));
        let heard = Heard { source: "log".into(), since, until, names_steps: true };
        played.0.take(Monotonic(6_000_000_000), What::Heard(Box::new(heard)));
        played
    };
    assert_eq!(played().finding(&lost, 238), None);
    let (id, early) = Played::new().finding(&lost, 252).unwrap();
    assert_eq!(id, "csi-driver-lost-publish-state");
    let (_, late) = played().finding(&lost, 600).unwrap();
    assert!(late > early, "{late:?} {early:?}");
}

#[test]
fn a_driver_without_a_socket_is_reported_sooner() {
    for registration in [Registration::Absent, Registration::Deaf] {
        let gone = pod(vec![csi(registration)]);
        assert_eq!(Played::new().finding(&gone, 68), None);
        assert_eq!(Played::new().finding(&gone, 72).unwrap().0, "csi-driver-not-registered");
    }
}

#[test]
fn a_pod_that_runs_or_has_not_started_is_not_judged() {
    for registration in [Registration::Absent, Registration::Listening] {
        let mut running = pod(vec![csi(registration)]);
        running.populated = Some(true);
        assert_eq!(Played::new().finding(&running, 2000), None);
        running.populated = None;
        assert_eq!(Played::new().finding(&running, 2000), None);
        let mut waiting = pod(vec![csi(registration)]);
        waiting.started = false;
        assert_eq!(Played::new().finding(&waiting, 2000), None);
    }
}

#[test]
fn a_pod_of_which_nothing_is_taken_down_may_not_be_deleted_at_all() {
    for registration in [Registration::Listening, Registration::Absent, Registration::Deaf] {
        let whole = pod(vec![csi(registration), tokens()]);
        assert_eq!(Played::new().finding(&whole, 248), None);
        let (id, certainty) = Played::new().finding(&whole, 600).unwrap();
        assert_eq!(id, "unmount-not-attempted");
        assert_eq!(certainty, Certainty::Possible);
    }
    let whole = pod(vec![csi(Registration::Listening), tokens()]);
    let mut begun = Played::new();
    let mut op = umount(None, 9.0, 1);
    op.path = format!("{ROOT}/volumes/kubernetes.io~empty-dir/data").into();
    let uid = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(uid);
    begun.0.ask(&op);
    assert_eq!(begun.finding(&whole, 600).unwrap().0, "csi-driver-lost-publish-state");
}

#[test]
fn an_unmount_that_did_not_help_says_which_mounts_are_left() {
    let mounted = pod(vec![csi(Registration::Listening)]);
    for (namespace, id) in [(1, "stacked-mounts"), (2, "csi-umount-wrong-namespace")] {
        let mut played = Played::new();
        played.0.unmounts.note(&umount(None, 30.0, namespace));
        assert_eq!(played.finding(&mounted, 88), None, "not yet a minute since");
        assert_eq!(played.finding(&mounted, 92).unwrap().0, id);
    }
}

#[test]
fn an_unmount_from_before_the_mount_was_made_says_nothing_about_it() {
    let mut mounted = pod(vec![csi(Registration::Listening)]);
    let mut played = Played::new();
    played.sample(&mounted, 10);
    // As when the first attempt to publish fails and is undone, and the second succeeds.
    played.0.unmounts.note(&umount(None, 11.0, 1));
    mounted.volumes[0].mounts[0].id = 8;
    played.sample(&mounted, 12);
    assert_eq!(played.finding(&mounted, 200), None);
}

#[test]
fn tokens_that_are_renewed_are_no_sign_of_an_end() {
    let whole = pod(vec![csi(Registration::Listening), tokens()]);
    let mut op = failed(Call::Unlinkat, Errno::EBUSY, "..2026_11_21/token", 9.0);
    op.outcome = Outcome::OK;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
    assert_eq!(played.finding(&whole, 600).unwrap().0, "unmount-not-attempted");
    // But that they are gone is.
    let bare = pod(vec![csi(Registration::Absent)]);
    assert!(Played::new().finding(&bare, 600).unwrap().1 < Certainty::Firm);
    let mut played = Played::new();
    played.sample(&whole, 4);
    assert!(played.finding(&bare, 600).unwrap().1 == Certainty::Firm);
}

#[test]
fn failed_attempts_belong_to_another_tracker() {
    let mounted = pod(vec![csi(Registration::Absent)]);
    let mut played = Played::new();
    played.0.unmounts.note(&umount(Some(Errno::EBUSY), 30.0, 1));
    assert_eq!(played.finding(&mounted, 2000), None);
    // As when its directory could not be removed, because it is busy.
    let mut busy = Alone::<Busy>::new();
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "x", 9.0);
    op.target_id = mounted.volumes[0].target_id;
    busy.ask(&op);
    let mut played = Played::new();
    played.0.others.push(Box::new(busy.tracker));
    assert_eq!(played.finding(&mounted, 2000), None);
}

#[test]
fn a_mount_that_is_made_again_is_another_mount() {
    let mut played = Played::new();
    let mut mounted = pod(vec![csi(Registration::Absent)]);
    for second in (10..2000).step_by(2) {
        // As when a static pod is deleted and made again and again.
        mounted.volumes[0].mounts[0].id = 1000 + u32::try_from(second).unwrap() / 20;
        assert!(played.sample(&mounted, second).is_empty());
    }
}

#[test]
fn vol_data_must_exist() {
    for data in [VolumeData::Missing, VolumeData::Corrupt { size: 0 }] {
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = data;
        let id = |volume: VolumeState| {
            Played::new().finding(&pod(vec![volume]), 72).map(|finding| finding.0)
        };
        assert_eq!(id(volume.clone()), Some("vol-data-missing-or-corrupt"));
        volume.mounts.clear();
        assert_eq!(id(volume), Some("vol-data-missing-or-corrupt"));
    }
    let mut unread = csi(Registration::Unknown);
    unread.csi.as_mut().unwrap().data = VolumeData::Unknown;
    unread.mounts.clear();
    assert_eq!(Played::new().finding(&pod(vec![unread]), 2000), None);
}

/// Without the pod's claim, the content of kubelet's file is not known.
#[test]
fn vol_data_is_restored_from_the_persistent_volume() {
    let remedies = |record: Option<PodRecord>| {
        let mut played = Played::new();
        if let Some(record) = record {
            let what = What::Record { record: Box::new(record), node: "n".into() };
            played.0.take(Monotonic(1), what);
        }
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = VolumeData::Missing;
        let (name, plugin) = ("pv".into(), "kubernetes.io/csi".into());
        let own = Volume { name, plugin, path: JsonPath(volume.path.clone()) };
        Arc::make_mut(&mut volume.target).volume = Some(own);
        let lost = pod(vec![volume]);
        let found = (10..80).step_by(2).flat_map(|second| played.sample(&lost, second)).last();
        let Some(Verdict::Found(draft)) = found else { panic!("{found:?}") };
        draft.remedies
    };
    let commands = |record| -> Vec<String> {
        remedies(record).into_iter().filter_map(|remedy| remedy.command).collect()
    };
    let without = commands(None);
    assert!(without.iter().all(|command| !command.contains("printf")), "{without:#?}");
    let with = commands(Some(claimed()));
    let (script, words) = with[0].split_once("' sh '").unwrap();
    let (directory, text) = words.split_once("' '").unwrap();
    let text = text.strip_suffix('\'').unwrap();
    let data: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!((&data["volumeHandle"], &data["driverName"]), (&"h 1".into(), &"d.example".into()));
    assert_eq!((&data["specVolID"], &data["nodeName"]), (&"pv".into(), &"n".into()));
    assert!(script.ends_with("&& printf %s \"$2\" > ./pv/vol_data.json"), "{script}");
    assert!(script.starts_with("sh -c 'cd \"$1\" && [ \"$(stat -c %d:%i ./pv)\" = "), "{script}");
    assert!(directory.ends_with("/kubernetes.io~csi"), "{directory}");
    assert_eq!(with[1..], without, "what can be done without it still can");
}

/// The record of the pod, whose volume is a claim.
fn claimed() -> PodRecord {
    let csi =
        CsiSource { driver: "d.example".into(), handle: "h 1".into(), attachment: "csi-1".into() };
    let bound = PersistentVolume { name: "pv".into(), deletion: None, csi: Some(csi) };
    let read = Some(jiff::Timestamp::UNIX_EPOCH);
    let claim = Claim {
        volume_name: "data".into(),
        claim: "cart".into(),
        read,
        deletion: None,
        bound: Some(bound),
        attachment: None,
    };
    PodRecord {
        pod: Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("cart-0".into()) },
        deletion: read,
        node: Some("n".into()),
        read,
        claims: vec![claim],
        ..pod_record(UID)
    }
}

#[test]
fn it_is_over_when_it_is_unmounted() {
    let mut played = Played::new();
    let mut lost = pod(vec![csi(Registration::Absent)]);
    played.finding(&lost, 100);
    lost.volumes[0].mounts.clear();
    let verdicts = played.sample(&lost, 102);
    assert!(matches!(
        verdicts.as_slice(),
        [Verdict::Over { tracker: TrackerId::NotAttempted, .. }]
    ));
}

#[test]
fn it_is_over_when_something_else_is_wrong() {
    let mut played = Played::new();
    assert!(played.finding(&pod(vec![csi(Registration::Absent)]), 100).is_some());
    let back = pod(vec![csi(Registration::Listening)]);
    let over = [played.sample(&back, 102), played.sample(&back, 104)].concat();
    assert!(
        matches!(over[..], [Verdict::Over { tracker: TrackerId::NotAttempted, .. }]),
        "{over:?}"
    );
}

#[test]
fn it_is_over_when_a_log_has_an_attempt() {
    let mut played = Played::new();
    let mounted = pod(vec![csi(Registration::Absent)]);
    assert!(played.finding(&mounted, 100).is_some());
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "x", 9.0);
    op.target_id = mounted.volumes[0].target_id;
    let at = Monotonic(101_000_000_000);
    let over = played.0.take(at, What::Operation(Box::new(op))).verdicts;
    assert!(matches!(over[..], [Verdict::Over { at: when, .. }] if when == at), "{over:?}");
}

#[test]
fn a_container_that_tidies_up_takes_nothing_down() {
    let mut op = umount(None, 9.0, 1);
    Arc::make_mut(&mut op.actor).component = Component::Workload;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
}

/// A registered driver whose process listens where kubelet calls it, and was started at second 100.
fn with_driver(change: impl FnOnce(&mut Option<DriverProcess>)) -> VolumeState {
    let mut volume = csi(Registration::Listening);
    let (comm, started) = ("driver".into(), Monotonic(100_000_000_000));
    let mut process = Some(DriverProcess {
        pid: 77,
        comm,
        started,
        ticks: None,
        reach: Reach::Whole,
        halted: None,
    });
    change(&mut process);
    let (socket, source) = ("/k/plugins/d/csi.sock".into(), "/proc/7/cmdline".into());
    volume.csi.as_mut().unwrap().driver =
        Some(DriverState { socket, source, process, registrar: None });
    volume
}

fn as_it_is(_: &mut Option<DriverProcess>) {}

fn second(at: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at).unwrap()
}

fn said(at: i64) -> Said {
    let said = Said::new(Component::Kubelet, "log", UID, second(at), "an error");
    Said { volume: "kubernetes.io/csi/d.example^h".into(), ..said }
}

fn complains(complaint: Complaint, at: i64) -> Said {
    Said { complaint: Some(complaint), ..said(at) }
}

fn reports(report: Report, at: i64) -> Said {
    Said { report: Some(report), ..said(at) }
}

/// The finding about a pod at second 3200, after one sample or several.
struct Late {
    pod: PodState,
    said: Vec<Said>,
    heard_since: Option<i64>,
    kubelet_since: i64,
    kubelets: Vec<u32>,
    /// How long the pod is watched.
    seconds: u64,
}

/// Cause, certainty, whether the finding is settled, and what is not known.
type Finding = (&'static str, Certainty, bool, Vec<String>);

impl Late {
    fn of(volume: VolumeState) -> Self {
        let (said, heard_since) = (Vec::new(), None);
        let kubelets = vec![1];
        Self { pod: pod(vec![volume]), said, heard_since, kubelet_since: 50, kubelets, seconds: 0 }
    }

    fn said(mut self, said: impl IntoIterator<Item = Said>) -> Self {
        self.said.extend(said);
        self
    }

    /// Another volume of the pod was removed at second 1000.
    fn torn_down(mut self) -> Self {
        (self.pod.changed, self.pod.volume_removed) = (Some(second(1000)), Some(second(1000)));
        self
    }

    fn found(self) -> Option<Finding> {
        let draft = self.draft()?;
        Some((draft.id(), draft.certainty(), draft.is_settled, draft.not_known()))
    }

    fn facts(self) -> Vec<String> {
        let draft = self.draft();
        draft.into_iter().flat_map(|draft| draft.evidence).map(|fact| fact.fact).collect()
    }

    fn draft(self) -> Option<Draft> {
        const AT: u64 = 3200;
        let mut played = Played::new();
        let now = |second: u64| Monotonic(second * 1_000_000_000);
        for said in self.said {
            played.0.take(now(AT), What::Said(Box::new(said)));
        }
        if let Some(since) = self.heard_since {
            let (since, until) = (second(since), second(3200));
            for source in self.kubelets.iter().map(|pid| format!("log of {pid}")) {
                let heard = Heard { source, since, until, names_steps: true };
                played.0.take(now(AT), What::Heard(Box::new(heard)));
            }
        }
        let mut last = None;
        for at in (AT..=AT + self.seconds).step_by(2) {
            let sample = NodeSample {
                at: now(at),
                kubelets: self.kubelets.clone(),
                kubelet_since: Some(now(self.kubelet_since.unsigned_abs())),
                pods: vec![self.pod.clone()],
                ..NodeSample::default()
            };
            let verdicts = played.0.take(now(at), What::Sample(Arc::new(sample))).verdicts;
            last = verdicts.into_iter().find_map(|verdict| match verdict {
                Verdict::Found(draft) => Some(*draft),
                _ => None,
            });
        }
        last
    }

    fn cause(self) -> Option<(&'static str, Certainty)> {
        self.found().map(|(id, certainty, ..)| (id, certainty))
    }
}

#[test]
fn earlier_complaints_of_kubelet_are_reported_at_the_first_sample() {
    let first_look = |complaints: &[i64]| {
        let said = complaints.iter().map(|at| complains(Complaint::NoDriver, *at));
        Late::of(csi(Registration::Absent)).said(said).cause()
    };
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(first_look(&[3000, 3122]), expected);
    assert_eq!(first_look(&[3180]), None, "it may be a restart");
    assert_eq!(first_look(&[1000, 1122]), None, "an attempt since met something else");
    assert_eq!(first_look(&[]), None);
}

/// kubelet names an inline volume by its pod, as in secrets-store-csi-driver issue 895.
#[test]
fn a_complaint_about_an_inline_volume_is_known_by_the_pod() {
    let mut volume = csi(Registration::Absent);
    let data = &mut volume.csi.as_mut().unwrap().data;
    let VolumeData::Known { lifecycle, .. } = data else { panic!() };
    *lifecycle = "Ephemeral".into();
    let complaint = |name: &str| {
        let volume = format!("kubernetes.io/csi/{name}");
        [3000, 3122].map(|at| Said { volume: volume.clone(), ..complains(Complaint::NoDriver, at) })
    };
    let cause = |name: &str| Late::of(volume.clone()).said(complaint(name)).cause();
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(cause(&format!("{UID}-pv")), expected);
    assert_eq!(cause("d.example^h"), None);
}

#[test]
fn missing_data_and_repeated_complaints_are_reported_while_kubelet_retries() {
    let live = |seconds: u64, said: &[Said]| {
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = VolumeData::Missing;
        Late { seconds, ..Late::of(volume) }.said(said.to_vec()).cause().map(|cause| cause.0)
    };
    let lacks = &[complains(Complaint::NoData, 3200)];
    assert_eq!(live(10, lacks), Some("vol-data-missing-or-corrupt"));
    assert_eq!(live(10, &[]), None, "kubelet has not met it");
    assert_eq!(live(4, lacks), None, "it may be a moment's");
}

#[test]
fn no_driver_has_come_since_the_directory_of_their_sockets_was_changed() {
    let first_look = |changed: i64| {
        let mut volume = csi(Registration::Absent);
        volume.csi.as_mut().unwrap().registry_changed = Some(second(changed));
        Late::of(volume).torn_down().cause()
    };
    assert_eq!(first_look(3100), Some(("csi-driver-not-registered", Certainty::Firm)));
    assert_eq!(first_look(3180), None, "it may be a restart");
}

/// kubelet takes any socket in that directory, and asks the driver for its name.
#[test]
fn a_driver_that_answers_is_registered_whatever_its_sockets_name() {
    let first_look = |complaint: Complaint, changed: i64| {
        let mut volume = csi(Registration::Absent);
        volume.csi.as_mut().unwrap().registry_changed = Some(second(changed));
        let said = [3000, 3122].map(|at| complains(complaint, at));
        Late::of(volume).said(said).cause()
    };
    let errors = |changed| first_look(Complaint::DriverError, changed);
    assert_eq!(errors(2900), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(errors(3130), None, "kubelet's next attempt will show it");
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(first_look(Complaint::NoDriver, 2900), expected);
}

#[test]
fn whether_the_api_server_lists_the_driver_is_a_fact() {
    let node = |drivers: &[&str]| NodeRecord {
        node: "n".into(),
        read: jiff::Timestamp::UNIX_EPOCH,
        ready: None,
        drivers: Some(drivers.iter().map(|name| (*name).into()).collect()),
        missing: Vec::new(),
    };
    for (drivers, fact, is_doubted) in [
        (&["other"][..], "the driver is not listed in CSINode n", false),
        (&["d.example"], "the driver is listed in CSINode n", true),
    ] {
        let mut played = Played::new();
        played.0.take(Monotonic(1), What::Node(node(drivers).into()));
        let gone = pod(vec![csi(Registration::Absent)]);
        let found = (10..80).step_by(2).flat_map(|second| played.sample(&gone, second)).last();
        let Some(Verdict::Found(draft)) = found else { panic!("{found:?}") };
        assert!(draft.evidence.iter().any(|known| known.fact == fact), "{draft:#?}");
        let has_doubt = draft.doubts.iter().any(|doubt| doubt.contains("another name"));
        assert_eq!(has_doubt, is_doubted, "{draft:#?}");
    }
}

#[test]
fn a_driver_that_answers_with_errors_has_not_forgotten() {
    let first_look = |complaints: &[i64]| {
        let said = complaints.iter().map(|at| complains(Complaint::DriverError, *at));
        Late::of(with_driver(as_it_is)).said(said).cause()
    };
    assert_eq!(first_look(&[3000, 3122]), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(first_look(&[3122]), None, "one may be a moment's");
    assert_eq!(first_look(&[1000, 1122]), None, "an attempt since met something else");
}

#[test]
fn a_driver_that_was_restarted_is_likely_to_answer_as_before() {
    let found = |text: &str, is_mounted: bool| {
        let says = |at| Said { text: text.into(), ..complains(Complaint::DriverError, at) };
        let since = |process: &mut Option<DriverProcess>| {
            process.as_mut().unwrap().started = Monotonic(3_150_000_000_000);
        };
        let mut late = Late::of(with_driver(since)).said([says(3000), says(3122)]);
        if !is_mounted {
            late.pod.volumes[0].mounts.clear();
        }
        late.cause()
    };
    assert_eq!(found("no such volume", true), Some(("csi-driver-error", Certainty::Likely)));
    let not_idempotent = Some(("csi-driver-not-idempotent", Certainty::Likely));
    assert_eq!(found("umount: /v/mount: not mounted.", false), not_idempotent);
    // open-local#118: the driver requires that the mount point is gone.
    let there = format!(
        "volume local-1 at path {}/mount still existed",
        with_driver(as_it_is).path.display()
    );
    assert_eq!(found(&there, false), not_idempotent);
    let other = found("the snapshot of /v/mount still exists", false);
    assert_eq!(other.unwrap().0, "csi-driver-error", "of something else");
}

/// zfs-localpv#615: the driver checks whether the path exists, and the file system has shut down.
#[test]
fn a_mount_that_the_driver_cannot_look_at_is_unmounted_first() {
    let late = Late::of(with_driver(as_it_is));
    let path = late.pod.volumes[0].mounts[0].point.clone();
    let look = NamedLook { path, outcome: Errno::EIO.into() };
    let fails = |at| Said { looked: Some(look.clone()), ..complains(Complaint::DriverError, at) };
    let draft = late.said([fails(3000), fails(3122)]).draft().unwrap();
    draft.assert_is("csi-driver-error", Certainty::Firm);
    let first = draft.remedies[0].command.as_deref().unwrap_or_default();
    assert!(first.contains("umount"), "{first}");
    assert!(draft.explanation.contains("with EIO"), "{}", draft.explanation);
}

/// blob-csi-driver#474: the driver compares devices, and takes a bind mount of the same one for a directory.
#[test]
fn a_mount_that_the_driver_takes_for_a_directory_is_unmounted_first() {
    let first = |text: &str| {
        let late = Late::of(with_driver(as_it_is));
        let point = late.pod.volumes[0].mounts[0].point.display().to_string();
        let text = text.replace("POINT", &point);
        let says = |at| Said { text: text.clone(), ..complains(Complaint::DriverError, at) };
        let draft = late.said([says(3000), says(3122)]).draft().unwrap();
        draft.assert_is("csi-driver-error", Certainty::Firm);
        draft.remedies[0].words().to_owned()
    };
    let removed =
        first("failed to unmount target \"POINT\": remove POINT: device or resource busy");
    assert!(removed.contains("umount "), "{removed}");
    for other in ["umount POINT: device or resource busy", "remove POINT: permission denied"] {
        assert!(first(other).starts_with("kubectl"), "{other}");
    }
}

/// The driver's own log is evidence only, and decides nothing: other pods may use the same volume.
#[test]
fn a_line_of_the_drivers_log_is_evidence_and_not_a_complaint_of_kubelet() {
    let says = |at| Said {
        component: Component::CsiDriver,
        source: "log of csi-driver (pid 77), /var/log/pods/x".into(),
        text: "GRPC error: rpc error: code = NotFound desc = volume h".into(),
        ..complains(Complaint::DriverError, at)
    };
    let late = || Late::of(with_driver(as_it_is));
    assert_eq!(late().said([3000, 3122].map(says)).cause(), None);
    let both = [
        says(3120),
        complains(Complaint::DriverError, 3000),
        complains(Complaint::DriverError, 3122),
    ];
    assert_eq!(late().said(both.clone()).cause(), Some(("csi-driver-error", Certainty::Firm)));
    let facts = late().said(both).facts();
    assert!(facts.iter().any(|fact| fact.starts_with("the CSI driver said at ")), "{facts:?}");
}

#[test]
fn a_driver_that_reported_success_has_forgotten_at_the_first_sample() {
    let lost = ("csi-driver-lost-publish-state", Certainty::Firm);
    let well = || reports(Report::TornDown, 3000);
    let late = || Late::of(with_driver(as_it_is)).said([well()]);
    assert_eq!(late().cause(), Some(lost));
    assert_eq!(late().said([complains(Complaint::DriverError, 2900)]).cause(), Some(lost));
    // kubelet up to 1.29 fails to remove what is still mounted, once the driver has answered.
    let busy = [3000, 3122].map(|at| complains(Complaint::StillMounted, at));
    assert_eq!(Late::of(with_driver(as_it_is)).said(busy).cause(), Some(lost));
    // After its success the driver's state makes no difference.
    let gone = Late::of(with_driver(|process| *process = None)).said([well()]);
    assert_eq!(gone.cause(), Some((lost.0, Certainty::Likely)), "its mounts are gone, too");
    // The driver was called again since, and failed.
    let error = |at| complains(Complaint::DriverError, at);
    let again = late().said([error(3010), error(3132)]).cause();
    assert_eq!(again, Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(late().said([said(3010)]).cause(), None, "an error of another kind");
    // If its mounts are not known, the driver may have unmounted a mount that only it sees.
    let (id, certainty, _, unknown) =
        Late::of(csi(Registration::Listening)).said([well()]).found().unwrap();
    assert_eq!((id, certainty), (lost.0, Certainty::Likely));
    assert!(unknown[0].contains("csi-umount-wrong-namespace"), "{unknown:?}");
}

#[test]
fn a_driver_of_which_only_the_registrar_lives_is_down() {
    let gone = || Late::of(with_driver(|process| *process = None)).torn_down();
    let down = Some(("csi-driver-down", Certainty::Firm));
    assert_eq!(gone().cause(), None, "it may be a restart");
    assert_eq!(Late { seconds: 58, ..gone() }.cause(), None);
    assert_eq!(Late { seconds: 62, ..gone() }.cause(), down);
    let unavailable = |at| complains(Complaint::DriverDown, at);
    assert_eq!(gone().said([unavailable(3000), unavailable(3122)]).cause(), down);
    // kubelet could not connect, and a process listens by now: an old one, or one that was started since.
    let back = |started: u64| {
        let volume = with_driver(|process| {
            process.as_mut().unwrap().started = Monotonic(started * 1_000_000_000);
        });
        Late::of(volume).said([unavailable(3000), unavailable(3122)]).cause()
    };
    assert_eq!(back(3100), Some(("csi-driver-down", Certainty::Likely)));
    assert_eq!(back(3150), None, "kubelet's next attempt reaches it");
}

/// As captured when driver and registrar were killed: kubelet continues to call the driver.
#[test]
fn a_driver_whose_registrar_left_its_socket_is_registered_as_long_as_kubelet_calls_it() {
    use Complaint::{DriverDown, DriverError, DriverHangs, NoDriver};
    let said = |complaints: &[(Complaint, i64)]| {
        let said = complaints.iter().map(|(complaint, at)| complains(*complaint, *at));
        Late { seconds: 62, ..Late::of(csi(Registration::Deaf)) }.said(said).cause()
    };
    let down = [(DriverDown, 3000), (DriverDown, 3122)];
    assert_eq!(said(&down), Some(("csi-driver-down", Certainty::Firm)));
    let lost = [&down[..], &[(NoDriver, 3150), (NoDriver, 3180)]].concat();
    assert_eq!(said(&lost), Some(("csi-driver-not-registered", Certainty::Firm)));
    // The registrar alone has ended.
    let error = [&down[..], &[(DriverError, 3150), (DriverError, 3180)]].concat();
    assert_eq!(said(&error), Some(("csi-driver-error", Certainty::Firm)));
    let hangs = [&down[..], &[(DriverHangs, 3150), (DriverHangs, 3180)]].concat();
    assert_eq!(said(&hangs), Some(("csi-unpublish-hung-lock", Certainty::Firm)));
    // Whether kubelet has the driver in its list is not known.
    let (id, certainty) =
        Late { seconds: 62, ..Late::of(csi(Registration::Deaf)).torn_down() }.cause().unwrap();
    assert_eq!((id, certainty), ("csi-driver-not-registered", Certainty::Likely));
}

#[test]
fn a_driver_that_is_halted_has_not_forgotten() {
    let halted = |by: Halted| {
        let volume = with_driver(|process| process.as_mut().unwrap().halted = Some(by));
        Late::of(volume).torn_down()
    };
    let hangs = "csi-unpublish-hung-lock";
    assert_eq!(halted(Halted::Stopped).cause(), None, "for a moment, as by a debugger");
    let lasts = |by| Late { seconds: 62, ..halted(by) }.cause();
    assert_eq!(lasts(Halted::Stopped), Some((hangs, Certainty::Firm)));
    let group = "/sys/fs/cgroup/freezer/x".into();
    assert_eq!(lasts(Halted::Frozen { group }), Some((hangs, Certainty::Firm)));
    let waits = Halted::Waits { tid: 79, state: 'S', channel: "request_wait_answer".into() };
    assert_eq!(lasts(waits), Some((hangs, Certainty::Likely)));
    let error = |at| complains(Complaint::DriverHangs, at);
    let registered = || Late::of(with_driver(as_it_is));
    let aborted = registered().said([error(3000), error(3122)]).cause();
    assert_eq!(aborted, Some((hangs, Certainty::Firm)));
    // That the first call hangs shows only over time, unless kubelet has already waited for it.
    let aborted = |seconds| Late { seconds, ..registered().said([error(3193), error(3194)]) };
    assert_eq!(aborted(10).cause(), None);
    let timed_out = complains(Complaint::DriverTimesOut, 3192);
    let waited = |seconds| aborted(seconds).said([timed_out.clone()]);
    assert_eq!(waited(0).cause(), None, "it may come back at the second attempt");
    assert_eq!(waited(10).cause(), Some((hangs, Certainty::Firm)));
    // A late run does not repeat the wait that kubelet has made.
    let before = [complains(Complaint::DriverTimesOut, 3150), error(3151), error(3190)];
    let late = Late { seconds: 2, ..registered().said(before) };
    assert_eq!(late.cause(), Some((hangs, Certainty::Firm)));
    // As kubelet 1.36 reports a stopped driver: the connection is there, and no answer comes.
    let stopped = |seconds| {
        let volume = with_driver(|process| {
            process.as_mut().unwrap().halted = Some(Halted::Stopped);
        });
        let unavailable = |at| complains(Complaint::DriverHangs, at);
        Late { seconds, ..Late::of(volume).said([unavailable(3180), unavailable(3195)]) }
    };
    assert_eq!(stopped(0).cause(), None, "for a moment");
    assert_eq!(stopped(10).cause(), Some((hangs, Certainty::Firm)));
    // In a driver without a lock, the second call times out, too.
    let one = Late { seconds: 10, ..registered().said([timed_out.clone()]) };
    assert_eq!(one.cause(), Some((hangs, Certainty::Firm)));
    let well = reports(Report::TornDown, 3199);
    assert_ne!(waited(10).said([well]).cause().map(|it| it.0), Some(hangs));
}

/// ceph-csi#2123: a driver that locks the volume, and not each pod's mount, refuses all pods but one.
#[test]
fn a_driver_that_serves_one_pod_after_the_other_does_not_hang() {
    const OTHER: &str = "1f0e0d0c-1111-2222-3333-444455556666";
    let refused = |locked: &str, at| {
        let text = format!("rpc error: code = Aborted desc = {locked} already exists");
        Said { text, ..complains(Complaint::DriverHangs, at) }
    };
    let of_other = |said: Said| Said { uid: OTHER.into(), ..said };
    let cause = |locked: &str, others: Vec<Said>| {
        let own = [3000, 3122].map(|at| refused(locked, at));
        Late::of(with_driver(as_it_is)).said(own.into_iter().chain(others)).cause()
    };
    let done = |at| vec![of_other(reports(Report::TornDown, at))];
    let (volume, mount) = ("an operation with the given Volume ID h", UID);
    let hangs = |certainty| Some(("csi-unpublish-hung-lock", certainty));
    assert_eq!(cause(volume, done(3100)), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(cause(volume, done(2990)), hangs(Certainty::Firm), "before this one began");
    assert_eq!(cause(mount, done(3100)), hangs(Certainty::Firm), "it locks each mount");
    let others_wait = vec![of_other(refused(volume, 3100))];
    assert_eq!(cause(volume, others_wait), hangs(Certainty::Likely), "it may be slow");
}

#[test]
fn threads_that_wait_one_after_the_other_do_not_hang() {
    let mut played = Played::new();
    for at in (10_u32..200).step_by(2) {
        let channel = "folio_wait_bit".into();
        let waits = Halted::Waits { tid: 80 + at % 4, state: 'D', channel };
        let volume = with_driver(|process| process.as_mut().unwrap().halted = Some(waits));
        assert!(played.sample(&pod(vec![volume]), at.into()).is_empty());
    }
}

#[test]
fn an_unmount_that_does_not_propagate_is_known_by_the_drivers_mounts() {
    let with = |reach| with_driver(|process| process.as_mut().unwrap().reach = reach);
    let well = || reports(Report::TornDown, 3000);
    let cut = Late::of(with(Reach::Cut { mounted: false })).said([well()]).cause();
    assert_eq!(cut, Some(("csi-umount-wrong-namespace", Certainty::Firm)));
    // While the driver's namespace has the mount, an unmount by the driver is not proven.
    let cut = Late::of(with(Reach::Cut { mounted: true })).said([well()]).cause();
    assert_eq!(cut, Some(("csi-driver-lost-publish-state", Certainty::Likely)));
    let silent = Late::of(with(Reach::Cut { mounted: false })).torn_down().cause();
    assert_eq!(silent, Some(("csi-umount-wrong-namespace", Certainty::Likely)));
}

#[test]
fn traces_of_other_components_show_since_when() {
    let late = || Late::of(with_driver(as_it_is)).torn_down();
    let (id, certainty, settled, unknown) = late().found().unwrap();
    assert_eq!((id, settled), ("csi-driver-lost-publish-state", true), "{unknown:?}");
    assert_eq!(certainty, Certainty::Possible, "{unknown:?}");
    // kubelet's log begins after the successful attempt, and has no other.
    let heard = Late { heard_since: Some(2000), ..late() }.cause();
    assert_eq!(heard, Some(("csi-driver-lost-publish-state", Certainty::Firm)));
    // Since kubelet was restarted, no attempt was due.
    assert_eq!(Late { kubelet_since: 3100, ..late() }.cause(), None);
    let mut touched = late();
    touched.pod.changed = Some(second(3100));
    assert_eq!(touched.cause(), None);
}

#[test]
fn a_kubelet_that_was_started_after_the_end_may_have_lost_the_volume() {
    let late = |kubelet_since, heard_since| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        Late { kubelet_since, heard_since: Some(heard_since), ..late }
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(2000, 2001).cause(), lost);
    assert_eq!(
        late(2000, 2001).said([reports(Report::TornDown, 2500)]).cause().unwrap().0,
        "csi-driver-lost-publish-state"
    );
    // The kubelet that was started last may not be the pod's.
    let two = Late { kubelets: vec![1, 2], ..late(2000, 2001) }.cause().unwrap();
    assert_eq!(two.0, "csi-driver-lost-publish-state");
    // The log was cut off, or kubelet ran before the pod's end.
    let cut_off = late(2000, 2600).found().unwrap();
    assert_eq!((cut_off.0, cut_off.1), ("csi-driver-lost-publish-state", Certainty::Likely));
    assert_eq!(late(50, 900).cause(), Some(("unmount-not-attempted", Certainty::Possible)));
}

#[test]
fn a_volume_that_kubelet_mounts_again_was_lost_to_it() {
    let mounts = |at| {
        let text = "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found".into();
        Said { text, ..complains(Complaint::MountFails, at) }
    };
    let late = || Late { kubelet_since: 500, ..Late::of(with_driver(as_it_is)).torn_down() };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late().said([mounts(3000), mounts(3122)]).cause(), lost);
    let once = late().said([mounts(3122)]).cause().unwrap();
    assert_ne!(once.0, "kubelet-restart-lost-volume", "it may have succeeded since");
    let running = late().said([mounts(200), mounts(300)]).cause().unwrap();
    assert_ne!(running.0, "kubelet-restart-lost-volume", "while the pod ran");
}

/// kubernetes#85834: the server answers again when kubelet ends the pod, and kubelet tries no mount any more.
#[test]
fn a_volume_that_kubelet_has_not_mounted_since_its_start_is_not_unmounted() {
    let of_log = |said: Said| Said { source: "log of 1".into(), ..said };
    let fails = |at| of_log(complains(Complaint::MountFails, at));
    let late = |heard_since, more: Vec<Said>| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        let late = Late { kubelet_since: 500, heard_since: Some(heard_since), ..late };
        late.said([fails(600), fails(700)]).said(more).cause()
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(501, vec![]), lost);
    assert_ne!(late(550, vec![]), lost, "it may have been mounted before");
    for report in [Report::SetUp, Report::VolumeStep, Report::TornDown] {
        assert_ne!(late(501, vec![of_log(reports(report, 800))]), lost, "{report:?}");
    }
    let remounted = vec![of_log(reports(Report::SetUp, 550))];
    assert_ne!(late(501, remounted), lost, "a volume that is mounted is updated");
}

/// As in kubernetes issue 128739.
#[test]
fn a_mount_that_failed_after_the_deletion_is_not_tried_again() {
    let fails = |at| {
        let text = "MountVolume.SetUp failed: context deadline exceeded".into();
        Said { text, source: "log of 1".into(), ..complains(Complaint::MountFails, at) }
    };
    let to_go = |at| Said { volume: String::new(), ..reports(Report::ToGo, at) };
    let late = |said: Vec<Said>| {
        let mut late = Late::of(with_driver(as_it_is));
        late.pod.started = false;
        Late { heard_since: Some(1500), ..late }.said(said)
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(vec![to_go(1600), fails(1700)]).cause(), lost);
    let others = [
        vec![to_go(1800), fails(1700)],
        vec![fails(1700)],
        vec![to_go(1400), fails(1450)],
        vec![
            to_go(1600),
            fails(1700),
            Said { source: "log of 1".into(), ..reports(Report::VolumeStep, 1701) },
        ],
    ];
    for said in others {
        let found = late(said.clone()).cause();
        assert_ne!(found.map(|it| it.0), Some("kubelet-restart-lost-volume"), "{said:?}");
    }
}

#[test]
fn a_volume_that_kubelet_counts_only_as_attached_was_lost_to_it() {
    let late = |heard_since| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        Late { kubelet_since: 1001, heard_since: Some(heard_since), ..late }
    };
    let attached = |at| Said { source: "log of 1".into(), ..reports(Report::Attached, at) };
    let step = |at| Said { source: "log of 1".into(), ..reports(Report::VolumeStep, at) };
    let late_by = |at, said: Vec<Said>| {
        late(1500)
            .said([attached(at)])
            .said(said)
            .found()
            .map(|(id, certainty, ..)| (id, certainty))
    };
    let lost = |certainty| Some(("kubelet-restart-lost-volume", certainty));
    assert_eq!(late_by(3190, vec![]), lost(Certainty::Likely));
    assert_eq!(late_by(2000, vec![]), lost(Certainty::Firm));
    // kubelet may be about to mount it, has mounted it, was started again, or its log has a gap.
    let added = Said { volume: String::new(), ..reports(Report::Added, 2500) };
    let error = complains(Complaint::DriverHangs, 2500);
    for (at, said) in [
        (3195, vec![]),
        (2000, vec![step(2001)]),
        (2000, vec![added]),
        (2000, vec![error]),
        (1400, vec![]),
    ] {
        let found = late_by(at, said.clone());
        assert_ne!(found.map(|it| it.0), Some("kubelet-restart-lost-volume"), "{at} {said:?}");
    }
    // Another kubelet's log says nothing about it.
    let two = Late { kubelets: vec![1, 2], ..late(1500).said([attached(2000)]) };
    assert_eq!(two.cause().map(|it| it.0), Some("kubelet-restart-lost-volume"));
}

#[test]
fn a_driver_that_tries_to_unmount_nothing_stays_the_cause() {
    let started = Monotonic(1_000_000_000);
    let mut gone = pod(vec![with_driver(|process| process.as_mut().unwrap().started = started)]);
    gone.volumes[0].mounts.clear();
    let text = "rpc error: code = Internal desc = umount \"/v/mount\": Invalid argument";
    let mut played = Played::new();
    for at in [6, 8] {
        let error = Said { text: text.into(), ..complains(Complaint::DriverError, at) };
        played.0.take(Monotonic(8_000_000_000), What::Said(Box::new(error)));
    }
    let found = played.sample(&gone, 10);
    assert!(matches!(&*found, [Verdict::Found(_)]), "{found:?}");
    let mut op = umount(Some(Errno::EINVAL), 11.0, 1);
    op.target_id = gone.volumes[0].target_id;
    let over = played.0.take(op.end, What::Operation(Box::new(op))).verdicts;
    assert!(over.is_empty(), "{over:?}");
    let found = played.sample(&gone, 12);
    assert!(matches!(&*found, [Verdict::Found(_)]), "{found:?}");
}

/// aws-fsx-csi-driver#495: its `umount` is in the kernel, which has taken the mount from the table.
#[test]
fn a_driver_that_works_on_an_earlier_call_hangs_also_where_nothing_is_mounted_any_more() {
    let unmounted = |said: [Said; 2]| {
        let mut late = Late::of(with_driver(as_it_is)).said(said);
        late.pod.volumes[0].mounts.clear();
        late.cause()
    };
    let hangs = |at| complains(Complaint::DriverHangs, at);
    let its = Some(("csi-unpublish-hung-lock", Certainty::Likely));
    assert_eq!(unmounted([hangs(3000), hangs(3122)]), its);
    let times_out = complains(Complaint::DriverTimesOut, 3000);
    assert_eq!(unmounted([times_out, hangs(3122)]), its);
    let down = |at| complains(Complaint::DriverDown, at);
    assert_ne!(unmounted([down(3000), down(3122)]), its, "it is not there");
}

/// With the command that the driver waits for: certain once that command is known to work on this volume.
#[test]
fn a_driver_is_named_with_the_command_that_it_waits_for() {
    let found = |call: Option<&str>| {
        let mut played = Played::new();
        let now = |second: u64| Monotonic(second * 1_000_000_000);
        for said in [3000, 3122].map(|at| complains(Complaint::DriverHangs, at)) {
            played.0.take(now(3122), What::Said(Box::new(said)));
        }
        let waiting = |pid, command: &str, part, on| Waiting {
            pid,
            started: 100,
            command: command.into(),
            state: 'D',
            channel: Some("folio_wait_bit".into()),
            part,
            on,
        };
        let child = On::Child { pid: 78, is_waited_for: true };
        let all = vec![
            waiting(77, "driver", Part::Daemon, vec![child]),
            waiting(78, "umount", Part::Task, Vec::new()),
        ];
        for second in [3190, 3196] {
            played.0.waits.answered(&Ok(all.clone()), now(second));
        }
        let mut pod = pod(vec![with_driver(as_it_is)]);
        pod.volumes[0].mounts.clear();
        if let Some(volume) = call {
            let mut call = testing::stuck(&["folio_wait_bit", "generic_shutdown_super"]);
            call.thread = Thread { pid: 78, tid: 78 };
            call.actor = Arc::new(Actor { started: Some(100), ..Actor::clone(&call.actor) });
            call.path = Some(format!("{ROOT}/volumes/kubernetes.io~csi/{volume}/mount").into());
            played.0.waits.stuck(&call);
        }
        testing::found(played.sample(&pod, 3200)).pop().unwrap()
    };
    let (id, who) =
        ("csi-unpublish-hung-lock", "the CSI driver d.example, which waits for umount (pid 78)");
    let known = found(Some("pv"));
    known.assert_is(id, Certainty::Firm);
    assert_eq!(holder_of(&known.held_by), who);
    let fact = "umount (pid 78) waits for a page of a file to be read or written, in the kernel function folio_wait_bit:";
    assert!(known.evidence.iter().any(|it| it.fact.starts_with(fact)), "{:?}", known.evidence);
    found(Some("another")).assert_is(id, Certainty::Likely);
    found(None).assert_is(id, Certainty::Likely);
    assert_eq!(holder_of(&found(None).held_by), who);
}

/// While that `umount` is seen, and its own cause is not known yet.
#[test]
fn a_call_that_hangs_behind_a_mount_that_is_gone_does_not_hide_its_driver() {
    struct Hangs;
    impl tracker::Tracker for Hangs {
        fn id(&self) -> TrackerId {
            TrackerId::HungCall
        }

        fn take(&mut self, _: &Event, _: &tracker::Context<'_>, _: &mut tracker::Steps) {}

        fn explains(&self, _: &tracker::Subject<'_>, _: tracker::Claim) -> bool {
            true
        }
    }
    let found = |is_mounted: bool| {
        let mut played = Played::new();
        played.0.others.push(Box::new(Hangs));
        let mut pod = pod(vec![with_driver(as_it_is)]);
        if !is_mounted {
            pod.volumes[0].mounts.clear();
        }
        for said in [3000, 3122].map(|at| complains(Complaint::DriverHangs, at)) {
            played.0.take(Monotonic(3_200_000_000_000), What::Said(Box::new(said)));
        }
        let verdicts = played.sample(&pod, 3200);
        testing::found(verdicts).pop().map(|draft| draft.id())
    };
    assert_eq!(found(false), Some("csi-unpublish-hung-lock"));
    assert_eq!(found(true), None, "the call says more");
}

#[test]
fn after_a_boot_a_driver_may_have_nothing_to_unmount() {
    let error = |at| complains(Complaint::DriverError, at);
    let mut late = Late::of(with_driver(as_it_is)).said([error(3000), error(3122)]);
    late.pod.volumes[0].mounts.clear();
    (late.pod.started, late.pod.before_boot) = (false, true);
    assert_eq!(late.cause(), Some(("csi-driver-not-idempotent", Certainty::Firm)));
    // Without a boot, a step of the driver after its unmount may fail.
    let mut late = Late::of(with_driver(as_it_is)).said([error(3000), error(3122)]);
    late.pod.volumes[0].mounts.clear();
    assert_eq!(late.cause(), Some(("csi-driver-error", Certainty::Likely)));
    // As recorded from a driver that calls umount without a check.
    let says = |at| {
        let text =
            "rpc error: code = Internal desc = umount \"/v/mount\": Invalid argument (os error 22)";
        Said { text: text.into(), ..error(at) }
    };
    let mut late = Late::of(with_driver(as_it_is)).said([says(3000), says(3122)]);
    late.pod.volumes[0].mounts.clear();
    assert_eq!(late.cause(), Some(("csi-driver-not-idempotent", Certainty::Firm)));
    // The pod may be about to start again.
    let mut late = Late { seconds: 400, ..Late::of(with_driver(as_it_is)) };
    (late.pod.started, late.pod.before_boot) = (false, true);
    assert_eq!(late.cause(), None);
    let mut late = Late { seconds: 62, ..Late::of(csi(Registration::Unknown)) };
    (late.pod.started, late.pod.before_boot) = (false, true);
    late.pod.volumes[0].csi.as_mut().unwrap().data = VolumeData::Corrupt { size: 0 };
    assert_eq!(late.cause(), Some(("vol-data-missing-or-corrupt", Certainty::Likely)));
}

#[test]
fn a_volume_without_its_server_is_reported_and_its_server_asked_at_intervals() {
    let mut volume = with_driver(as_it_is);
    volume.mounts[0].is_fuse = true;
    let dead = pod(vec![volume]);
    let mut played = Played::new();
    let look = |played: &mut Played, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let (kubelets, pods) = (vec![1], vec![dead.clone()]);
        let sample = NodeSample { at, kubelets, pods, ..NodeSample::default() };
        played.0.take(at, What::Sample(Arc::new(sample)))
    };
    assert!(look(&mut played, 8).queries.is_empty(), "about to be unmounted, as of every pod");
    let query = look(&mut played, 10).queries.pop().unwrap();
    assert!(look(&mut played, 12).queries.is_empty());
    let mount = MountPoint { point: query.path.clone(), ..MountPoint::default() };
    let looked = Answer::FuseMounts(vec![(mount.clone(), Errno::ENOTCONN as i32)]);
    played.0.answer(&query, looked);
    assert!(look(&mut played, 14).verdicts.is_empty(), "it may be unmounted in a moment");
    let verdicts: Vec<_> =
        (16..=76).step_by(2).flat_map(|at| look(&mut played, at).verdicts).collect();
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    draft.assert_is("fuse-daemon-dead", Certainty::Likely);
    // The driver's error names the dead mount.
    for at in [50, 60] {
        let text = "rpc error: code = Internal desc = transport endpoint is not connected".into();
        let said = Said { text, ..complains(Complaint::DriverError, at) };
        played.0.take(Monotonic(77_000_000_000), What::Said(Box::new(said)));
    }
    let verdicts = look(&mut played, 78).verdicts;
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    draft.assert_is("fuse-daemon-dead", Certainty::Firm);
    // The server answers.
    let mut played = Played::new();
    look(&mut played, 8);
    let query = look(&mut played, 10).queries.pop().unwrap();
    played.0.answer(&query, Answer::FuseMounts(vec![(mount, 0)]));
    assert!((12..=76).step_by(2).all(|at| look(&mut played, at).verdicts.is_empty()));
}

#[test]
fn holders_are_asked_for_once_if_nothing_else_shows_attempts() {
    let mut late = Late::of(with_driver(as_it_is)).torn_down();
    let mut played = Played::new();
    let look = |played: &mut Played, pod: &PodState, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let (kubelets, pods) = (vec![1], vec![pod.clone()]);
        let kubelet_since = Some(Monotonic(50_000_000_000));
        let sample = NodeSample { at, kubelets, kubelet_since, pods, ..NodeSample::default() };
        played.0.take(at, What::Sample(Arc::new(sample)))
    };
    late.pod.volumes[0].mounts[0].id = 9;
    let first = look(&mut played, &late.pod, 3200);
    let query = first.queries.into_iter().next().unwrap();
    let mut taken = crate::testing::snapshot(Vec::new());
    taken.subject.as_mut().unwrap().path = JsonPath(query.path.clone());
    played.0.answer(&query, Answer::Holders(Ok(taken)));
    let second = look(&mut played, &late.pod, 3202);
    assert!(second.queries.is_empty());
    let [Verdict::Found(draft)] = second.verdicts.as_slice() else { panic!() };
    // Whether the driver answers with an error is not known.
    assert_eq!((draft.certainty(), draft.is_settled), (Certainty::Likely, true));
    assert!(draft.not_known()[0].contains("csi-driver-error"), "{:?}", draft.not_known());
}

/// As on a node where programs named kubelet start and end, each with its own mount namespace.
#[test]
fn copies_of_a_mount_in_other_namespaces_begin_nothing_again() {
    let mut lost = pod(vec![with_driver(as_it_is)]);
    let (mut played, mut verdicts) = (Played::new(), Vec::new());
    for second in (10..=252).step_by(2) {
        let own = lost.volumes[0].mounts[0].clone();
        let (id, namespace) = (1000 + second as u32, 100 + second as u32);
        lost.volumes[0].mounts = vec![own.clone(), Mounted { id, namespace, ..own }];
        verdicts.extend(played.sample(&lost, second));
    }
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    assert_eq!(draft.id(), "csi-driver-lost-publish-state");
    // If kubelet's directory was read in another namespace, the volume's mounts there count.
    let mut played = Played::new();
    lost.seen_by = Some((1, 2));
    for second in (10..=400).step_by(2) {
        let own = lost.volumes[0].mounts[0].clone();
        let again = Mounted { id: 1000 + second as u32, namespace: 2, ..own.clone() };
        lost.volumes[0].mounts = vec![own, again];
        assert!(played.sample(&lost, second).is_empty(), "mounted again each time");
    }
}

/// As on a busy disk.
#[test]
fn a_driver_that_waits_briefly_at_times_has_still_forgotten() {
    let (mut played, mut verdicts) = (Played::new(), Vec::new());
    let mut look = |second: u64| {
        let waits = Halted::Waits { tid: 79, state: 'D', channel: "folio_wait_bit".into() };
        let is_moment = second.is_multiple_of(6);
        let halted = is_moment.then_some(waits);
        let volume = with_driver(|process| process.as_mut().unwrap().halted = halted);
        verdicts.extend(played.sample(&pod(vec![volume]), second));
    };
    (10..=300).step_by(2).for_each(&mut look);
    let is_found = |verdict: &Verdict| match verdict {
        Verdict::Found(draft) => draft.id() == "csi-driver-lost-publish-state",
        _ => false,
    };
    assert!(!verdicts.is_empty() && verdicts.iter().all(is_found), "{verdicts:?}");
}

#[test]
fn a_fault_that_begins_again_at_once_is_never_cleared() {
    let mut engine = crate::engine::Engine::new(crate::testing::run());
    let mut take = |second: u64, what| {
        let event = Event { at: Monotonic(second * 1_000_000_000), what };
        let states = engine.take(&event).into_iter().filter_map(|output| match output {
            crate::engine::Output::Finding(finding) => Some((finding.id, finding.state)),
            _ => None,
        });
        states.collect::<Vec<_>>()
    };
    for at in [3000, 3122] {
        take(3190, What::Said(Box::new(complains(Complaint::NoDriver, at))));
    }
    let mut reported = Vec::new();
    let mut mounted = pod(vec![csi(Registration::Absent)]);
    for second in (3200..3260).step_by(2) {
        mounted.volumes[0].mounts[0].id = second as u32;
        let registration = [Registration::Absent, Registration::Deaf][second as usize / 2 % 2];
        mounted.volumes[0].csi.as_mut().unwrap().registration = registration;
        let (at, pods) = (Monotonic(second * 1_000_000_000), vec![mounted.clone()]);
        let sample = NodeSample { at, kubelets: vec![1], pods, ..NodeSample::default() };
        reported.extend(take(second, What::Sample(Arc::new(sample))));
    }
    let of: BTreeSet<&str> = reported.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(of, BTreeSet::from(["csi-driver-not-registered"]));
    let is_new = |(_, state): &(_, FindingState)| *state == FindingState::New;
    assert_eq!(reported.iter().filter(|it| is_new(it)).count(), 1, "{reported:?}");
    assert!(reported.iter().all(|(_, state)| *state != FindingState::Cleared), "{reported:?}");
}
