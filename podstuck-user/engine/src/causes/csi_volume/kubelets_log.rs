//! Lines of kubelet's log about the teardown of volumes, and of the logs of CSI drivers.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff,
    bounded::Bounded,
    causes::{csi_volume::verdict::Fault, shared::repeated::Repeated},
    model::{
        csi::{CsiState, VolumeData},
        identity::{Component, Volume},
        node::{PodState, VolumeState},
        said::{Complaint, Heard, Report, Said},
        time::Monotonic,
    },
    tracker::Context,
};

/// Maximal delay between the start of a process and the first line of its log.
pub(super) const AT_ITS_START: Duration = Duration::from_secs(10);
/// Errors and reports remembered.
const REMEMBERED: usize = 4096;

/// What the logs say of volumes.
#[derive(Default)]
pub(super) struct KubeletsLog {
    /// By UID
    pods: Bounded<String, OfPod, REMEMBERED>,
    /// By UID and kubelet's unique name of the volume
    volumes: Bounded<(String, String), OfVolume, REMEMBERED>,
    /// By log: since when it was read without a gap.
    heard: BTreeMap<String, Monotonic>,
}

#[derive(Default)]
struct OfPod {
    /// When the last container ended, and the log that says so.
    ended: Option<(Monotonic, String)>,
    /// When kubelet last received the pod.
    added: Option<Monotonic>,
    /// kubelet's complaint that it does not find its data about a volume, which it does not name.
    no_data: Option<Repeated>,
}

#[derive(Default)]
struct OfVolume {
    complaints: BTreeMap<Complaint, Repeated>,
    /// The errors of any kind.
    errors: Option<Repeated>,
    /// Success, as reported by the driver.
    torn_down: Option<Repeated>,
    /// The last complaint of the driver.
    driver: Option<Repeated>,
    /// kubelet's last step with the volume.
    step: Option<(Monotonic, Said)>,
    /// When kubelet last mounted the volume.
    set_up: Option<Monotonic>,
}

impl OfVolume {
    /// When the last error of any kind was logged.
    fn error(&self) -> Option<Monotonic> {
        self.errors.as_ref().map(|errors| errors.last)
    }

    /// The last successful teardown, if there was no error since.
    fn torn_down(&self) -> Option<&Repeated> {
        let logged = self.torn_down.as_ref()?;
        (Some(logged.last) >= self.error()).then_some(logged)
    }
}

/// A mount that kubelet failed to make.
pub(super) struct FailedMount<'a> {
    pub(super) logged: &'a Repeated,
    /// It failed after the pod's deletion, and kubelet has taken no step with the volume since: kubelet does not mount
    /// a volume of a pod that is to go again.
    pub(super) is_final: bool,
    /// kubelet has not mounted the volume since its own start, according to its whole log since then, and has taken no
    /// step with it since this failure: it does not count the volume as mounted.
    pub(super) is_only: bool,
}

impl FailedMount<'_> {
    /// Whether it is more than one failure that the next attempt repairs.
    pub(super) fn stands(&self) -> bool {
        self.is_final || self.logged.lines > 1
    }
}

impl KubeletsLog {
    /// Records a log line.
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let at = context.when(said.at);
        let is_kubelets = said.component == Component::Kubelet;
        match said.report {
            Some(Report::ContainerEnded) if is_kubelets => {
                let ended = &mut self.pod(said).ended;
                if ended.as_ref().is_none_or(|(last, _)| at > *last) {
                    *ended = Some((at, said.source.clone()));
                }
                return;
            }
            Some(Report::Added) if is_kubelets => {
                let added = &mut self.pod(said).added;
                *added = (*added).max(Some(at));
                return;
            }
            _ => {}
        }
        let is_step =
            matches!(said.report, Some(Report::Attached | Report::SetUp | Report::VolumeStep));
        let is_drivers = said.component == Component::CsiDriver;
        if !is_drivers && !is_step && !said.is_kubelets_of_a_volume() {
            return;
        }
        let key = (said.uid.clone(), said.volume.clone());
        let of_volume = self.volumes.or_insert_with(key, OfVolume::default);
        let logged = match (said.report, said.complaint) {
            _ if is_drivers => of_volume.driver.get_or_insert_with(|| Repeated::begin(said, at)),
            _ if is_step => {
                if said.report == Some(Report::SetUp) {
                    of_volume.set_up = of_volume.set_up.max(Some(at));
                }
                if of_volume.step.as_ref().is_none_or(|(last, _)| at >= *last) {
                    of_volume.step = Some((at, said.clone()));
                }
                return;
            }
            (Some(Report::TornDown | Report::Unmapped), _)
            | (None, Some(Complaint::StillMounted)) => {
                of_volume.torn_down.get_or_insert_with(|| Repeated::begin(said, at))
            }
            (_, complaint) => {
                if complaint != Some(Complaint::MountFails) {
                    let begin = || Repeated::begin(said, at);
                    of_volume.errors.get_or_insert_with(begin).note(context, said);
                }
                match complaint {
                    Some(Complaint::NoData) => {
                        self.pod(said).no_data.get_or_insert_with(|| Repeated::begin(said, at))
                    }
                    Some(complaint) => of_volume
                        .complaints
                        .entry(complaint)
                        .or_insert_with(|| Repeated::begin(said, at)),
                    None => return,
                }
            }
        };
        logged.note(context, said);
    }

    fn pod(&mut self, said: &Said) -> &mut OfPod {
        self.pods.or_insert_with(said.uid.clone(), OfPod::default)
    }

    fn volume(&self, pod: &PodState, volume: &VolumeState) -> Option<&OfVolume> {
        self.volumes.get(&(pod.uid.clone(), unique_name(pod, volume)))
    }

    /// Records since when a log was read without a gap.
    pub(super) fn heard(&mut self, context: &Context<'_>, heard: &Heard) {
        self.heard.insert(heard.source.clone(), context.when(heard.since));
    }

    /// The error of kubelet's last attempts, if the next attempt is expected to fail alike. `None` after a silence
    /// longer than two back-off caps, and after a later success or another error: an attempt then had another outcome.
    pub(super) fn complaint(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        fault: Fault,
        now: Monotonic,
    ) -> Option<&Repeated> {
        let of_volume = self.volume(pod, volume);
        let logged = complaints_of(fault).iter().filter_map(|complaint| match complaint {
            Complaint::NoData => self.pods.get(&pod.uid)?.no_data.as_ref(),
            complaint => of_volume?.complaints.get(complaint),
        });
        let logged = logged.max_by_key(|logged| logged.last)?;
        let torn_down = of_volume.and_then(OfVolume::torn_down).map(|logged| logged.last);
        let error = of_volume.and_then(OfVolume::error);
        let lasts = now.since(logged.last) <= backoff::CAP * 2;
        let is_last = Some(logged.last) >= torn_down && Some(logged.last) >= error;
        (lasts && is_last).then_some(logged)
    }

    /// kubelet's last mount of the volume, if it failed: within two back-off caps, or as the last step with the volume
    /// in a log that was read without a gap. `to_go`: since when the pod is known to be deleted; `started`: when kubelet
    /// was started.
    pub(super) fn failed_mount(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        to_go: Option<Monotonic>,
        started: Option<Monotonic>,
        now: Monotonic,
    ) -> Option<FailedMount<'_>> {
        let of_volume = self.volume(pod, volume)?;
        let logged = of_volume.complaints.get(&Complaint::MountFails)?;
        let later = [
            of_volume.step.as_ref().map(|(at, _)| *at),
            of_volume.error(),
            of_volume.torn_down.as_ref().map(|logged| logged.last),
        ];
        let heard = self.heard.get(&logged.said.source);
        let is_whole = heard.is_some_and(|since| *since <= logged.last);
        let is_whole_since =
            |started| heard.is_some_and(|since| since.since(started) <= AT_ITS_START);
        let is_last = is_whole && later.into_iter().flatten().all(|later| later <= logged.last);
        let lasts = now.since(logged.last) <= backoff::CAP * 2;
        let is_final = is_last && to_go.is_some_and(|since| since < logged.last);
        let is_only = is_last
            && started.is_some_and(|started| {
                let was_set_up = of_volume.set_up >= Some(started);
                started <= logged.first && is_whole_since(started) && !was_set_up
            });
        (lasts || is_last).then_some(FailedMount { logged, is_final, is_only })
    }

    /// Whether the driver let a call on the volume time out after two minutes, and has not succeeded since.
    pub(super) fn has_timed_out(&self, pod: &PodState, volume: &VolumeState) -> bool {
        let of_volume = self.volume(pod, volume);
        of_volume.is_some_and(|it| {
            let timed_out = it.complaints.get(&Complaint::DriverTimesOut).map(|logged| logged.last);
            timed_out.is_some() && timed_out >= it.torn_down().map(|logged| logged.last)
        })
    }

    /// Whether it has errors about this volume for another pod.
    pub(super) fn is_shared(&self, pod: &PodState, volume: &VolumeState) -> bool {
        let name = unique_name(pod, volume);
        let mut volumes = self.volumes.iter().filter(|_| !name.is_empty());
        volumes.any(|((uid, volume), it)| *uid != pod.uid && *volume == name && it.errors.is_some())
    }

    /// The last teardown of the volume by another pod since the driver first refused this pod's because of a pending call
    /// on the volume: that call has returned. A driver that locks each pod's mount says so, and another pod's success
    /// then shows nothing.
    pub(super) fn of_another(&self, pod: &PodState, volume: &VolumeState) -> Option<&Said> {
        let VolumeData::Known { handle, .. } = &volume.csi.as_ref()?.data else { return None };
        let name = unique_name(pod, volume);
        let key = (pod.uid.clone(), name);
        let refused = self.volumes.get(&key)?.complaints.get(&Complaint::DriverHangs)?;
        let (_, answer) = refused.said.text.split_once("code = Aborted desc = ")?;
        let is_of_volume = answer.contains(handle.as_str()) && !answer.contains(&pod.uid);
        let others =
            self.volumes.iter().filter(|((uid, volume), _)| *uid != pod.uid && *volume == key.1);
        let torn_down = others.filter_map(|(_, it)| it.torn_down.as_ref());
        let last = torn_down.max_by_key(|logged| logged.last)?;
        (is_of_volume && last.last > refused.first).then_some(&last.said)
    }

    /// The first error of the volume's teardown, if the last one is another.
    pub(super) fn first_error(&self, pod: &PodState, volume: &VolumeState) -> Option<&Said> {
        self.volume(pod, volume)?.errors.as_ref()?.first_error()
    }

    /// The last successful teardown of the volume, if there was no error since.
    pub(super) fn torn_down(&self, pod: &PodState, volume: &VolumeState) -> Option<&Repeated> {
        self.volume(pod, volume)?.torn_down()
    }

    /// The last complaint of the volume's driver.
    pub(super) fn of_driver(&self, pod: &PodState, volume: &VolumeState) -> Option<&Repeated> {
        self.volume(pod, volume)?.driver.as_ref()
    }

    /// When kubelet, since it last received the pod, said that the volume is attached, which it says of a volume that it
    /// does not count as mounted, and its whole log since has no other step with the volume.
    pub(super) fn attached(
        &self,
        pod: &PodState,
        volume: &VolumeState,
    ) -> Option<(Monotonic, &Said)> {
        let of_volume = self.volume(pod, volume)?;
        let (at, said) = of_volume.step.as_ref()?;
        let later = [
            of_volume.error(),
            of_volume.torn_down.as_ref().map(|logged| logged.last),
            self.pods.get(&pod.uid).and_then(|it| it.added),
        ];
        let is_whole = self.heard.get(&said.source).is_some_and(|since| since <= at);
        let is_last = later.into_iter().flatten().all(|later| later <= *at);
        let is_attached = said.report == Some(Report::Attached);
        (is_attached && is_last && is_whole).then_some((*at, said))
    }

    /// When the pod's last container ended, and the log that says so.
    pub(super) fn ended(&self, pod: &PodState) -> Option<(Monotonic, &str)> {
        let (at, log) = self.pods.get(&pod.uid)?.ended.as_ref()?;
        Some((*at, log))
    }

    /// Since when the log has no error of a volume, and the log's name. `None` if kubelet's log was not read, has an
    /// error of the volume, or if several kubelets run: which one has the pod, and whether its log was read, is not
    /// known.
    pub(super) fn no_error_since(
        &self,
        pod: &PodState,
        volume: &VolumeState,
        kubelets: usize,
    ) -> Option<(Monotonic, &str)> {
        let (log, since) = self.heard.iter().max_by_key(|(_, since)| **since)?;
        let has_error = self.volume(pod, volume).is_some_and(|it| it.errors.is_some());
        (kubelets <= 1 && !has_error).then_some((*since, log.as_str()))
    }

    pub(super) fn dropped(&self) -> u64 {
        self.pods.dropped() + self.volumes.dropped()
    }
}

/// kubelet's unique name of a volume; empty for a CSI volume whose data is not known.
fn unique_name(pod: &PodState, volume: &VolumeState) -> String {
    let of_csi = |csi: &CsiState| {
        let name = volume.path.file_name().unwrap_or_default().to_string_lossy();
        csi.data.unique_name(&pod.uid, &name)
    };
    match (&volume.csi, &volume.target.volume) {
        (Some(csi), _) => of_csi(csi).unwrap_or_default(),
        (None, Some(Volume { name, plugin, .. })) => format!("{plugin}/{}-{name}", pod.uid),
        _ => String::new(),
    }
}

/// The complaints that this fault leads to.
fn complaints_of(fault: Fault) -> &'static [Complaint] {
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => &[Complaint::NoDriver, Complaint::DriverDown],
        Fault::DriverDown => &[Complaint::DriverDown],
        // gRPC drops a connection on which a stopped driver sends nothing.
        Fault::InTurn => &[Complaint::DriverHangs],
        Fault::DriverHangs => {
            &[Complaint::DriverTimesOut, Complaint::DriverHangs, Complaint::DriverDown]
        }
        Fault::DriverError | Fault::NotIdempotent | Fault::DeadFuse => &[Complaint::DriverError],
        Fault::NoData => &[Complaint::NoData],
        _ => &[],
    }
}

/// How long ago the line was first logged; zero without one.
pub(super) fn lasts(logged: Option<&Repeated>, now: Monotonic) -> Duration {
    logged.map_or(Duration::ZERO, |logged| now.since(logged.first))
}
