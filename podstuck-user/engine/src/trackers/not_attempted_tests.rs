use std::sync::Arc;

use nix::errno::Errno;

use super::*;
use crate::model::evidence::Certainty;
use crate::{
    model::{
        call::Call,
        identity::{Component, Pod, Target},
        mounts::Device,
        node::{CsiState, Mounted},
    },
    testing::{Alone, failed},
    trackers::busy::Busy,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const ROOT: &str = "/k/pods/0f0e0d0c-1111-2222-3333-444455556666";

/// A volume that was attributed: by its path alone.
fn volume(path: &str, csi: Option<CsiState>, mounts: Vec<Mounted>) -> VolumeState {
    let target = Target {
        kind: TargetKind::PodVolume,
        root: path.into(),
        pod: Some(Pod { uid: UID.into(), namespace: None, name: None }),
        ..Target::unknown()
    };
    let target_id = podstuck_common::component::path_hash(path.as_bytes());
    VolumeState { target_id, target: Arc::new(target), path: path.into(), csi, mounts }
}

fn csi(registration: Registration) -> VolumeState {
    let path = format!("{ROOT}/volumes/kubernetes.io~csi/pv");
    let data = VolumeData::Known {
        driver: "d.example".into(),
        handle: "h".into(),
        lifecycle: "Persistent".into(),
    };
    let mounted = Mounted {
        point: format!("{path}/mount").into(),
        id: 7,
        what: "a disk".into(),
        device: Device::default(),
        root: "/".into(),
        shared: false,
        namespace: 1,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
    };
    let socket = "/k/plugins_registry/d.example-reg.sock".into();
    volume(&path, Some(CsiState { data, socket, registration }), vec![mounted])
}

fn tokens() -> VolumeState {
    let path = format!("{ROOT}/volumes/kubernetes.io~projected/kube-api-access-x");
    volume(&path, None, Vec::new())
}

fn pod(volumes: Vec<VolumeState>) -> PodState {
    PodState {
        uid: UID.into(),
        directory: ROOT.into(),
        started: true,
        populated: Some(false),
        volumes,
    }
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

    /// What is told at the end, with its certainty, if the state lasts from 10 s on.
    fn told(&mut self, pod: &PodState, until: u64) -> Option<(&'static str, Certainty)> {
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
    let lost = pod(vec![csi(Registration::Listening)]);
    assert_eq!(Played::new().told(&lost, 248), None);
    let (id, early) = Played::new().told(&lost, 252).unwrap();
    assert_eq!(id, "csi-driver-lost-publish-state");
    let (_, late) = Played::new().told(&lost, 600).unwrap();
    assert!(late > early, "{late:?} {early:?}");
}

#[test]
fn a_driver_without_a_socket_is_told_sooner() {
    for registration in [Registration::Absent, Registration::Deaf] {
        let gone = pod(vec![csi(registration)]);
        assert_eq!(Played::new().told(&gone, 68), None);
        assert_eq!(Played::new().told(&gone, 72).unwrap().0, "csi-driver-not-registered");
    }
}

#[test]
fn a_pod_that_runs_or_has_not_begun_is_none_of_our_business() {
    for registration in [Registration::Absent, Registration::Listening] {
        let mut running = pod(vec![csi(registration)]);
        running.populated = Some(true);
        assert_eq!(Played::new().told(&running, 2000), None);
        running.populated = None;
        assert_eq!(Played::new().told(&running, 2000), None);
        let mut waiting = pod(vec![csi(registration)]);
        waiting.started = false;
        assert_eq!(Played::new().told(&waiting, 2000), None);
    }
}

#[test]
fn a_pod_of_which_nothing_is_taken_down_may_not_be_deleted_at_all() {
    for registration in [Registration::Listening, Registration::Absent, Registration::Deaf] {
        let whole = pod(vec![csi(registration), tokens()]);
        assert_eq!(Played::new().told(&whole, 248), None);
        let (id, certainty) = Played::new().told(&whole, 600).unwrap();
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
    assert_eq!(begun.told(&whole, 600).unwrap().0, "csi-driver-lost-publish-state");
}

#[test]
fn an_unmount_that_did_not_help_says_which_mounts_are_left() {
    let mounted = pod(vec![csi(Registration::Listening)]);
    for (namespace, id) in [(1, "stacked-mounts"), (2, "csi-umount-wrong-namespace")] {
        let mut played = Played::new();
        played.0.unmounts.note(&umount(None, 30.0, namespace));
        assert_eq!(played.told(&mounted, 88), None, "not yet a minute since");
        assert_eq!(played.told(&mounted, 92).unwrap().0, id);
    }
}

#[test]
fn an_unmount_from_before_the_mount_was_made_says_nothing_about_it() {
    let mut mounted = pod(vec![csi(Registration::Listening)]);
    let mut played = Played::new();
    played.sample(&mounted, 10);
    // As when the first attempt to publish fails, is undone, and the second succeeds.
    played.0.unmounts.note(&umount(None, 11.0, 1));
    mounted.volumes[0].mounts[0].id = 8;
    played.sample(&mounted, 12);
    assert_eq!(played.told(&mounted, 200), None);
}

#[test]
fn tokens_that_are_renewed_are_no_sign_of_an_end() {
    let whole = pod(vec![csi(Registration::Listening), tokens()]);
    let mut op = failed(Call::Unlinkat, Errno::EBUSY, "..2026_11_21/token", 9.0);
    op.outcome = Outcome::OK;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
    assert_eq!(played.told(&whole, 600).unwrap().0, "unmount-not-attempted");
    // But that they are gone is.
    let bare = pod(vec![csi(Registration::Absent)]);
    assert!(Played::new().told(&bare, 600).unwrap().1 < Certainty::Firm);
    let mut played = Played::new();
    played.sample(&whole, 4);
    assert!(played.told(&bare, 600).unwrap().1 == Certainty::Firm);
}

#[test]
fn who_tries_and_fails_is_another_trackers() {
    let mounted = pod(vec![csi(Registration::Absent)]);
    let mut played = Played::new();
    played.0.unmounts.note(&umount(Some(Errno::EBUSY), 30.0, 1));
    assert_eq!(played.told(&mounted, 2000), None);
    // As when its directory could not be removed, because it is busy.
    let mut busy = Alone::<Busy>::new();
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "x", 9.0);
    op.target_id = mounted.volumes[0].target_id;
    busy.ask(&op);
    let mut played = Played::new();
    played.0.others.push(Box::new(busy.tracker));
    assert_eq!(played.told(&mounted, 2000), None);
}

#[test]
fn a_mount_that_is_made_anew_is_another_mount() {
    let mut played = Played::new();
    let mut mounted = pod(vec![csi(Registration::Absent)]);
    for second in (10..2000).step_by(2) {
        // As when a static pod is deleted and made again and again.
        mounted.volumes[0].mounts[0].id = 1000 + u32::try_from(second).unwrap() / 20;
        assert!(played.sample(&mounted, second).is_empty());
    }
}

#[test]
fn what_kubelet_wrote_must_be_there() {
    for data in [VolumeData::Missing, VolumeData::Corrupt { size: 0 }] {
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = data;
        let id =
            |volume: VolumeState| Played::new().told(&pod(vec![volume]), 72).map(|told| told.0);
        assert_eq!(id(volume.clone()), Some("vol-data-missing-or-corrupt"));
        volume.mounts.clear();
        assert_eq!(id(volume), Some("vol-data-missing-or-corrupt"));
    }
    let mut unread = csi(Registration::Unknown);
    unread.csi.as_mut().unwrap().data = VolumeData::Unknown;
    unread.mounts.clear();
    assert_eq!(Played::new().told(&pod(vec![unread]), 2000), None);
}

#[test]
fn it_is_over_when_it_is_unmounted() {
    let mut played = Played::new();
    let mut lost = pod(vec![csi(Registration::Absent)]);
    played.told(&lost, 100);
    lost.volumes[0].mounts.clear();
    let verdicts = played.sample(&lost, 102);
    assert!(matches!(
        verdicts.as_slice(),
        [Verdict::Over { tracker: TrackerId::NotAttempted, .. }]
    ));
}

#[test]
fn a_container_that_tidies_up_takes_nothing_down() {
    let mut op = umount(None, 9.0, 1);
    Arc::make_mut(&mut op.actor).component = Component::Workload;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
}

/// The first look at a pod, where kubelet has complained at these seconds.
fn first_look(
    registration: Registration,
    complaint: Complaint,
    complaints: &[i64],
    at: u64,
) -> Option<(&'static str, Certainty)> {
    let mut played = Played::new();
    for second in complaints {
        let said = Said {
            uid: UID.into(),
            volume: "kubernetes.io/csi/d.example^h".into(),
            at: jiff::Timestamp::from_second(*second).unwrap(),
            retry: None,
            complaint: Some(complaint),
            text: "an error".into(),
            source: "log".into(),
            times: 1,
        };
        let at = Monotonic(at * 1_000_000_000);
        played.0.take(at, What::Said(Box::new(said)));
    }
    let told = played.sample(&pod(vec![csi(registration)]), at);
    told.into_iter().find_map(|verdict| match verdict {
        Verdict::Found(draft) => Some((draft.id(), draft.certainty())),
        _ => None,
    })
}

#[test]
fn what_kubelet_complained_of_is_told_at_the_first_look() {
    let first_look = |complaints: &[i64], at| {
        first_look(Registration::Absent, Complaint::NoDriver, complaints, at)
    };
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(first_look(&[3000, 3122], 3200), expected);
    assert_eq!(first_look(&[3180], 3200), None, "it may be a restart");
    assert_eq!(first_look(&[1000, 1122], 3200), None, "an attempt since met something else");
    assert_eq!(first_look(&[], 3200), None);
}

#[test]
fn a_driver_that_answers_with_errors_has_not_forgotten() {
    let first_look = |complaints: &[i64]| {
        first_look(Registration::Listening, Complaint::DriverError, complaints, 3200)
    };
    assert_eq!(first_look(&[3000, 3122]), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(first_look(&[3122]), None, "one may be a moment's");
    assert_eq!(first_look(&[1000, 1122]), None, "an attempt since met something else");
}
