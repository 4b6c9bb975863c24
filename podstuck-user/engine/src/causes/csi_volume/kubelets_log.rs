//! What kubelet's log says of volumes that are to be torn down, and the log of a CSI driver.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff,
    bounded::Bounded,
    causes::csi_volume::verdict::Fault,
    model::{
        csi::{CsiState, VolumeData},
        identity::{Component, Volume},
        node::{PodState, VolumeState},
        said::{Complaint, Heard, Report, Said},
        time::Monotonic,
    },
    tracker::Context,
};

/// Errors and reports remembered.
const REMEMBERED: usize = 4096;

/// All of it.
pub(super) struct KubeletsLog {
    /// By UID, what is said, and the volume, which is unknown where kubelet has lost what it knew of it.
    complaints: Bounded<(String, Complaint, String), Told>,
    /// By UID and volume: the driver has said that it is done.
    torn_down: Bounded<(String, String), Told>,
    /// By UID: a container ended last, and the log that says so.
    ended: Bounded<String, (Monotonic, String)>,
    /// By UID and volume: the last error of any kind.
    errors: Bounded<(String, String), Monotonic>,
    /// By UID and volume: what its driver complained of last.
    drivers: Bounded<(String, String), Told>,
    /// By log: from when on it was read without a gap.
    heard: BTreeMap<String, Monotonic>,
}

/// Said for the first and the last time.
pub(super) struct Told {
    pub(super) first: Monotonic,
    pub(super) last: Monotonic,
    /// By so many lines.
    pub(super) lines: u64,
    pub(super) said: Said,
}

impl Default for KubeletsLog {
    fn default() -> Self {
        Self {
            complaints: Bounded::new(REMEMBERED),
            torn_down: Bounded::new(REMEMBERED),
            ended: Bounded::new(REMEMBERED),
            errors: Bounded::new(REMEMBERED),
            drivers: Bounded::new(REMEMBERED),
            heard: BTreeMap::new(),
        }
    }
}

impl KubeletsLog {
    /// Takes note of what is said.
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let at = context.when(said.at);
        let told = || Told { first: at, last: at, lines: 0, said: said.clone() };
        let (uid, volume) = (said.uid.clone(), said.volume.clone());
        let told = match (said.report, said.complaint) {
            _ if said.component == Component::CsiDriver => {
                self.drivers.or_insert_with((uid, volume), told)
            }
            (Some(Report::ContainerEnded), _) if said.component == Component::Kubelet => {
                let ended = self.ended.or_insert_with(uid, || (at, said.source.clone()));
                ended.0 = ended.0.max(at);
                return;
            }
            _ if !said.is_kubelets_of_a_volume() => return,
            (Some(Report::TornDown | Report::Unmapped), _)
            | (None, Some(Complaint::StillMounted)) => {
                self.torn_down.or_insert_with((uid, volume), told)
            }
            (_, Some(Complaint::MountFails)) => {
                self.complaints.or_insert_with((uid, Complaint::MountFails, volume), told)
            }
            (_, complaint) => {
                let last = self.errors.or_insert_with((uid.clone(), volume.clone()), || at);
                *last = at.max(*last);
                let Some(complaint) = complaint else { return };
                let volume = if complaint == Complaint::NoData { String::new() } else { volume };
                self.complaints.or_insert_with((uid, complaint, volume), told)
            }
        };
        told.first = told.first.min(at);
        told.lines += said.times;
        if at >= told.last {
            (told.last, told.said) = (at, said.clone());
        }
    }

    /// Takes note of how much was read.
    pub(super) fn heard(&mut self, context: &Context<'_>, heard: &Heard) {
        self.heard.insert(heard.source.clone(), context.when(heard.since));
    }

    /// What kubelet's last attempts met, if it would meet it again. After a longer silence there was an
    /// attempt that met something else, and so there was where it succeeded or met another error since.
    pub(super) fn complaint(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        fault: Fault,
        now: Monotonic,
    ) -> Option<&Told> {
        let torn_down = self.torn_down(pod, volume).map(|told| told.last);
        let error = self.errors.get(&(pod.uid.clone(), unique_name(pod, volume)));
        let told = complaints_of(fault).iter().filter_map(|complaint| {
            let name = unique_name(pod, volume);
            let volume = if *complaint == Complaint::NoData { "" } else { name.as_str() };
            self.complaints.get(&(pod.uid.clone(), *complaint, volume.to_owned()))
        });
        let told = told.max_by_key(|told| told.last)?;
        let lasts = now.since(told.last) <= backoff::CAP * 2;
        let is_last = Some(told.last) >= torn_down && Some(&told.last) >= error;
        // Mounting fails beside it, and is none of these errors.
        (lasts && (is_last || fault == Fault::KubeletLost)).then_some(told)
    }

    /// Whether the driver has let a call on the volume wait for two minutes, and has not succeeded since.
    pub(super) fn has_timed_out(&self, pod: &PodState, volume: &VolumeState) -> bool {
        let key = (pod.uid.clone(), Complaint::DriverTimesOut, unique_name(pod, volume));
        let torn_down = self.torn_down(pod, volume).map(|told| told.last);
        self.complaints.get(&key).is_some_and(|told| Some(told.last) >= torn_down)
    }

    /// Its last success, if there was no error since.
    pub(super) fn torn_down(&self, pod: &PodState, volume: &VolumeState) -> Option<&Told> {
        let key = (pod.uid.clone(), unique_name(pod, volume));
        let told = self.torn_down.get(&key)?;
        (Some(&told.last) >= self.errors.get(&key)).then_some(told)
    }

    /// What the volume's driver complained of last.
    pub(super) fn of_driver(&self, pod: &PodState, volume: &VolumeState) -> Option<&Told> {
        self.drivers.get(&(pod.uid.clone(), unique_name(pod, volume)))
    }

    /// When the pod's last container ended, by which log.
    pub(super) fn ended(&self, pod: &PodState) -> Option<(Monotonic, &str)> {
        self.ended.get(&pod.uid).map(|(at, log)| (*at, log.as_str()))
    }

    /// From when on the log has no error of a volume, and which log; `None` where kubelet's log was not read. Of several
    /// kubelets, which one has the pod is not known, nor whether its log is among those that were read.
    pub(super) fn no_error_since(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        kubelets: usize,
    ) -> Option<(Monotonic, &str)> {
        let (log, since) = self.heard.iter().max_by_key(|(_, since)| **since)?;
        let error = self.errors.get(&(pod.uid.clone(), unique_name(pod, volume)));
        (kubelets <= 1 && error.is_none()).then_some((*since, log.as_str()))
    }

    pub(super) fn dropped(&self) -> u64 {
        let of_volumes = self.torn_down.dropped() + self.errors.dropped() + self.drivers.dropped();
        of_volumes + self.complaints.dropped() + self.ended.dropped()
    }
}

/// As kubelet calls a volume (pkg/volume/util, `GetUniqueVolumeName` and `GetUniqueVolumeNameFromSpecWithPod`);
/// empty for that of a CSI driver whose handle is not known.
fn unique_name(pod: &PodState, volume: &VolumeState) -> String {
    match (&volume.csi, &volume.target.volume) {
        (Some(CsiState { data: VolumeData::Known { driver, handle, .. }, .. }), _) => {
            format!("kubernetes.io/csi/{driver}^{handle}")
        }
        (None, Some(Volume { name, plugin, .. })) => format!("{plugin}/{}-{name}", pod.uid),
        _ => String::new(),
    }
}

/// What would be complained of, if this is at fault.
fn complaints_of(fault: Fault) -> &'static [Complaint] {
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => &[Complaint::NoDriver, Complaint::DriverDown],
        Fault::DriverDown => &[Complaint::DriverDown],
        // gRPC gives up a connection on which a driver that is stopped sends nothing.
        Fault::DriverHangs => {
            &[Complaint::DriverTimesOut, Complaint::DriverHangs, Complaint::DriverDown]
        }
        Fault::DriverError | Fault::NotIdempotent | Fault::DeadFuse => &[Complaint::DriverError],
        Fault::NoData => &[Complaint::NoData],
        Fault::KubeletLost => &[Complaint::MountFails],
        _ => &[],
    }
}

/// For how long it has been said.
pub(super) fn lasts(told: Option<&Told>, now: Monotonic) -> Duration {
    told.map_or(Duration::ZERO, |told| now.since(told.first))
}
