//! Lines of kubelet's log about the teardown of volumes, and of the logs of CSI drivers.

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

/// Maximal delay between the start of a process and the first line of its log.
pub(super) const AT_ITS_START: Duration = Duration::from_secs(10);
/// Errors and reports remembered.
const REMEMBERED: usize = 4096;

/// The log lines remembered, by pod and volume.
pub(super) struct KubeletsLog {
    /// By UID, complaint and volume; the volume is empty for [`Complaint::NoData`].
    complaints: Bounded<(String, Complaint, String), Logged>,
    /// By UID and volume: the driver has reported success.
    torn_down: Bounded<(String, String), Logged>,
    /// By UID: when the last container ended, and the log that says so.
    ended: Bounded<String, (Monotonic, String)>,
    /// By UID and volume: the last error of any kind.
    errors: Bounded<(String, String), Monotonic>,
    /// By UID and volume: the last complaint of the driver.
    drivers: Bounded<(String, String), Logged>,
    /// By UID and volume: kubelet's last step with the volume.
    steps: Bounded<(String, String), (Monotonic, Said)>,
    /// By UID and volume: when kubelet last mounted the volume.
    set_up: Bounded<(String, String), Monotonic>,
    /// By UID: when kubelet last received the pod.
    added: Bounded<String, Monotonic>,
    /// By log: since when it was read without a gap.
    heard: BTreeMap<String, Monotonic>,
}

/// A line that a log repeats: the first and the last time.
pub(super) struct Logged {
    pub(super) first: Monotonic,
    pub(super) last: Monotonic,
    /// Number of lines.
    pub(super) lines: u64,
    pub(super) said: Said,
}

/// A mount that kubelet failed to make.
pub(super) struct FailedMount<'a> {
    pub(super) logged: &'a Logged,
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

impl Default for KubeletsLog {
    fn default() -> Self {
        Self {
            complaints: Bounded::new(REMEMBERED),
            torn_down: Bounded::new(REMEMBERED),
            ended: Bounded::new(REMEMBERED),
            errors: Bounded::new(REMEMBERED),
            drivers: Bounded::new(REMEMBERED),
            steps: Bounded::new(REMEMBERED),
            set_up: Bounded::new(REMEMBERED),
            added: Bounded::new(REMEMBERED),
            heard: BTreeMap::new(),
        }
    }
}

impl KubeletsLog {
    /// Records a log line.
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let at = context.when(said.at);
        let new = || Logged { first: at, last: at, lines: 0, said: said.clone() };
        let (uid, volume) = (said.uid.clone(), said.volume.clone());
        let logged = match (said.report, said.complaint) {
            _ if said.component == Component::CsiDriver => {
                self.drivers.or_insert_with((uid, volume), new)
            }
            (Some(Report::ContainerEnded), _) if said.component == Component::Kubelet => {
                let ended = self.ended.or_insert_with(uid, || (at, said.source.clone()));
                ended.0 = ended.0.max(at);
                return;
            }
            (Some(Report::Added), _) if said.component == Component::Kubelet => {
                let added = self.added.or_insert_with(uid, || at);
                *added = at.max(*added);
                return;
            }
            (Some(Report::Attached | Report::SetUp | Report::VolumeStep), _) => {
                if said.report == Some(Report::SetUp) {
                    let last = self.set_up.or_insert_with((uid.clone(), volume.clone()), || at);
                    *last = at.max(*last);
                }
                let last = self.steps.or_insert_with((uid, volume), || (at, said.clone()));
                if at >= last.0 {
                    *last = (at, said.clone());
                }
                return;
            }
            _ if !said.is_kubelets_of_a_volume() => return,
            (Some(Report::TornDown | Report::Unmapped), _)
            | (None, Some(Complaint::StillMounted)) => {
                self.torn_down.or_insert_with((uid, volume), new)
            }
            (_, Some(Complaint::MountFails)) => {
                self.complaints.or_insert_with((uid, Complaint::MountFails, volume), new)
            }
            (_, complaint) => {
                let last = self.errors.or_insert_with((uid.clone(), volume.clone()), || at);
                *last = at.max(*last);
                let Some(complaint) = complaint else { return };
                let volume = if complaint == Complaint::NoData { String::new() } else { volume };
                self.complaints.or_insert_with((uid, complaint, volume), new)
            }
        };
        logged.first = logged.first.min(at);
        logged.lines += said.times;
        if at >= logged.last {
            (logged.last, logged.said) = (at, said.clone());
        }
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
    ) -> Option<&Logged> {
        let torn_down = self.torn_down(pod, volume).map(|logged| logged.last);
        let error = self.errors.get(&(pod.uid.clone(), unique_name(pod, volume)));
        let logged = complaints_of(fault).iter().filter_map(|complaint| {
            let name = unique_name(pod, volume);
            let volume = if *complaint == Complaint::NoData { "" } else { name.as_str() };
            self.complaints.get(&(pod.uid.clone(), *complaint, volume.to_owned()))
        });
        let logged = logged.max_by_key(|logged| logged.last)?;
        let lasts = now.since(logged.last) <= backoff::CAP * 2;
        let is_last = Some(logged.last) >= torn_down && Some(&logged.last) >= error;
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
        let (uid, name) = (pod.uid.clone(), unique_name(pod, volume));
        let logged = self.complaints.get(&(uid.clone(), Complaint::MountFails, name.clone()))?;
        let key = (uid, name);
        let later = [
            self.steps.get(&key).map(|(at, _)| *at),
            self.errors.get(&key).copied(),
            self.torn_down.get(&key).map(|logged| logged.last),
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
                let was_set_up = self.set_up.get(&key).is_some_and(|at| *at >= started);
                started <= logged.first && is_whole_since(started) && !was_set_up
            });
        (lasts || is_last).then_some(FailedMount { logged, is_final, is_only })
    }

    /// Whether the driver let a call on the volume time out after two minutes, and has not succeeded since.
    pub(super) fn has_timed_out(&self, pod: &PodState, volume: &VolumeState) -> bool {
        let key = (pod.uid.clone(), Complaint::DriverTimesOut, unique_name(pod, volume));
        let torn_down = self.torn_down(pod, volume).map(|logged| logged.last);
        self.complaints.get(&key).is_some_and(|logged| Some(logged.last) >= torn_down)
    }

    /// Whether it has errors about this volume for another pod.
    pub(super) fn is_shared(&self, pod: &PodState, volume: &VolumeState) -> bool {
        let name = unique_name(pod, volume);
        let mut errors = self.errors.iter().filter(|_| !name.is_empty());
        errors.any(|((uid, volume), _)| *uid != pod.uid && *volume == name)
    }

    /// The last teardown of the volume by another pod since the driver first refused this pod's because of a pending call
    /// on the volume: that call has returned. A driver that locks each pod's mount says so, and another pod's success
    /// then shows nothing.
    pub(super) fn of_another(&self, pod: &PodState, volume: &VolumeState) -> Option<&Said> {
        let VolumeData::Known { handle, .. } = &volume.csi.as_ref()?.data else { return None };
        let name = unique_name(pod, volume);
        let key = (pod.uid.clone(), Complaint::DriverHangs, name.clone());
        let refused = self.complaints.get(&key)?;
        let (_, answer) = refused.said.text.split_once("code = Aborted desc = ")?;
        let is_of_volume = answer.contains(handle.as_str()) && !answer.contains(&pod.uid);
        let others = self.torn_down.iter().filter(|((uid, volume), logged)| {
            *uid != pod.uid && *volume == name && logged.last > refused.first
        });
        let last = others.max_by_key(|(_, logged)| logged.last)?;
        is_of_volume.then_some(&last.1.said)
    }

    /// The last successful teardown of the volume, if there was no error since.
    pub(super) fn torn_down(&self, pod: &PodState, volume: &VolumeState) -> Option<&Logged> {
        let key = (pod.uid.clone(), unique_name(pod, volume));
        let logged = self.torn_down.get(&key)?;
        (Some(&logged.last) >= self.errors.get(&key)).then_some(logged)
    }

    /// The last complaint of the volume's driver.
    pub(super) fn of_driver(&self, pod: &PodState, volume: &VolumeState) -> Option<&Logged> {
        self.drivers.get(&(pod.uid.clone(), unique_name(pod, volume)))
    }

    /// When kubelet, since it last received the pod, said that the volume is attached, which it says of a volume that it
    /// does not count as mounted, and its whole log since has no other step with the volume.
    pub(super) fn attached(
        &self,
        pod: &PodState,
        volume: &VolumeState,
    ) -> Option<(Monotonic, &Said)> {
        let key = (pod.uid.clone(), unique_name(pod, volume));
        let (at, said) = self.steps.get(&key)?;
        let later = [self.errors.get(&key), self.added.get(&pod.uid)];
        let is_whole = self.heard.get(&said.source).is_some_and(|since| since <= at);
        let is_last = later.into_iter().flatten().all(|later| later <= at)
            && self.torn_down.get(&key).is_none_or(|logged| logged.last <= *at);
        let is_attached = said.report == Some(Report::Attached);
        (is_attached && is_last && is_whole).then_some((*at, said))
    }

    /// When the pod's last container ended, and the log that says so.
    pub(super) fn ended(&self, pod: &PodState) -> Option<(Monotonic, &str)> {
        self.ended.get(&pod.uid).map(|(at, log)| (*at, log.as_str()))
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
        let error = self.errors.get(&(pod.uid.clone(), unique_name(pod, volume)));
        (kubelets <= 1 && error.is_none()).then_some((*since, log.as_str()))
    }

    pub(super) fn dropped(&self) -> u64 {
        let of_volumes = self.torn_down.dropped() + self.errors.dropped() + self.drivers.dropped();
        let of_steps = self.steps.dropped() + self.set_up.dropped() + self.added.dropped();
        of_volumes + of_steps + self.complaints.dropped() + self.ended.dropped()
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
pub(super) fn lasts(logged: Option<&Logged>, now: Monotonic) -> Duration {
    logged.map_or(Duration::ZERO, |logged| now.since(logged.first))
}
