//! Tests of the verdicts about CSI volumes.

mod following;
mod late;

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    causes::{busy_mount::tracker::Busy, csi_volume::tracker::NotAttempted},
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        claim::{Claim, CsiSource, PersistentVolume},
        csi::{CsiState, DriverProcess, DriverState, Reach, Registration, VolumeData},
        errno::Errno,
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
