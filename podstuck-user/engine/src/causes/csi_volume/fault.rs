//! Derives a volume's fault from the state of the node, the logs and the calls.

use std::time::Duration;

use crate::{
    causes::{
        csi_volume::{
            self,
            kubelets_log::{AT_ITS_START, FailedMount},
            tracker::NotAttempted,
            verdict::Fault,
        },
        shared::{repeated::Repeated, standing::Standing},
    },
    event::Thresholds,
    model::{
        csi::{DriverProcess, Registration, VolumeData},
        node::{NodeSample, PodState, VolumeState},
        said::{self, Complaint, Said},
        time::Monotonic,
    },
    unmounts::Tried,
};

/// A visible fault (a driver's socket, a file) must last for the threshold divided by this, a minute by default: a
/// restarted driver is back sooner.
const PART: u32 = 4;
/// How long a visible fault that kubelet also meets must last: five attempts, with a back-off of 0.5 s that doubles.
const MET: Duration = Duration::from_secs(8);
/// How long a fault must be seen if kubelet waited two minutes for it and met it for [`MET`] since: two samples.
const SEEN: Duration = Duration::from_secs(1);

/// How long after its attachment kubelet has begun to mount a volume that the pod is to have: it does so in its next loop,
/// a tenth of a second later.
const MOUNTED_BY: Duration = Duration::from_secs(8);

/// Data about a volume besides its state.
pub(super) struct Looked<'a> {
    pub(super) standing: Option<Standing>,
    pub(super) torn_down: Option<&'a Repeated>,
    pub(super) no_error_since: Option<(Monotonic, &'a str)>,
    /// kubelet counts the volume as attached and not as mounted, and does nothing with it.
    pub(super) attached: Option<(Monotonic, &'a Said)>,
    pub(super) unregistered: Option<Monotonic>,
    pub(super) failed_mount: Option<FailedMount<'a>>,
    /// kubelet waited two minutes for the driver's answer.
    pub(super) timed_out: bool,
    /// The last teardown of the volume by another pod, if it shows that the driver's calls on the volume return.
    pub(super) of_another: Option<&'a Said>,
    /// The driver's process is stopped or frozen, or has no descriptor left.
    pub(super) halted: bool,
}

impl Looked<'_> {
    /// The fault if kubelet's log has nothing of the volume since the pod's end, or since kubelet's own start after
    /// that; `None` if it has, or does not reach back to that time.
    fn unasked(&self, sample: &NodeSample) -> Option<Fault> {
        let (standing, kubelet) = self.standing.as_ref().zip(sample.kubelet_since)?;
        let (heard, _) = self.no_error_since.filter(|_| self.torn_down.is_none())?;
        if standing.ended() < kubelet && heard.since(kubelet) <= AT_ITS_START {
            return Some(Fault::KubeletLost);
        }
        (heard <= standing.ended()).then_some(Fault::NotAttempted)
    }
}

impl NotAttempted {
    pub(super) fn fault(
        &self,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
        tried: &Tried,
        looked: &Looked<'_>,
    ) -> Option<Fault> {
        let at = sample.at;
        // A single error may be transient.
        let repeated =
            |fault| self.log.complaint(pod, volume, fault, at).filter(|logged| logged.lines > 1);
        // A failure to reach the driver says nothing of a process that was started later. A driver that answered with
        // errors is likely to do so again.
        let started = volume.driver().map(|process| process.started);
        let says = |fault| {
            let logged = match fault {
                Fault::DriverHangs if looked.timed_out => {
                    self.log.complaint(pod, volume, fault, at)
                }
                _ => repeated(fault),
            };
            let is_error = matches!(fault, Fault::DriverError | Fault::NotIdempotent);
            logged.is_some_and(|logged| {
                is_error || started.is_none_or(|started| started <= logged.last)
            })
        };
        // kubelet forgets a driver when its registrar's socket is removed, not when no process listens on it any more: a
        // driver that kubelet calls is in its list.
        let is_called =
            [Fault::DriverDown, Fault::DriverHangs, Fault::DriverError].into_iter().any(says);
        let begun = self.taken_down.contains(&pod.uid)
            || self.to_go.word(&pod.uid).is_some()
            || pod.volume_removed.is_some()
            || looked.torn_down.is_some()
            || !csi_volume::verdict::has_tokens(pod);
        // The driver answered; its later state does not matter. Of other volumes, kubelet's own plugin reports success.
        let is_forgotten = looked.torn_down.is_some()
            && volume.csi.is_some()
            && !volume.mounts.is_empty()
            && !tried.any();
        let failed_mount = looked.failed_mount.as_ref();
        let mounts_again = failed_mount.is_some_and(|it| match &looked.standing {
            // No container of it has ever run.
            _ if !pod.started && it.is_final => true,
            // kubelet unmounts a moment after the pod's end.
            Some(standing) if it.is_only && begun => at.since(standing.ended()) >= MET,
            Some(standing) => it.stands() && standing.ended() < it.logged.last,
            None => false,
        });
        // kubelet unmounts only what it counts as mounted.
        let is_lost = looked.attached.is_some_and(|(attached, _)| at.since(attached) >= MOUNTED_BY);
        let is_cut_off = volume.driver().is_some_and(DriverProcess::is_cut_off);
        let answered = repeated(Fault::DriverError).map(|logged| logged.last);
        let found = match fault(pod, volume, tried, begun) {
            Some(Fault::DriverDeaf) if is_called => Some(Fault::Forgotten),
            // A driver may register itself with a socket of any name.
            Some(Fault::DriverAbsent) if answered > looked.unregistered => Some(Fault::Forgotten),
            // Any plugin's socket may have come or gone since: kubelet's next attempt shows whether this one's has.
            Some(Fault::DriverAbsent) if answered.is_some() => return None,
            found => found,
        };
        let found = match found {
            Some(_) if is_forgotten && is_cut_off => Fault::CutOff,
            Some(_) if is_forgotten => Fault::Forgotten,
            // The kernel removes a mount from the table before it writes back dirty data.
            None if volume.mounts.is_empty()
                && says(Fault::DriverHangs)
                && is_at_work(self.log.complaint(pod, volume, Fault::DriverHangs, at)) =>
            {
                Fault::DriverHangs
            }
            None if volume.mounts.is_empty() && says(Fault::NotIdempotent) => {
                // Without these, any other step after the unmount may have failed.
                let logged = repeated(Fault::NotIdempotent);
                let why = logged.is_some_and(|logged| {
                    let text = &logged.said.text;
                    said::is_not_found(text)
                        || csi_volume::driver::says_not_mounted(text)
                        || csi_volume::driver::says_still_there(text, &volume.path)
                });
                if pod.before_boot || why { Fault::NotIdempotent } else { Fault::DriverError }
            }
            None => return None,
            // Without a kubelet, no process calls the driver.
            Some(Fault::Forgotten | Fault::NotAttempted) if sample.kubelets.is_empty() => {
                Fault::NotAttempted
            }
            Some(Fault::Forgotten | Fault::NotAttempted) if mounts_again || is_lost && begun => {
                Fault::KubeletLost
            }
            Some(Fault::Forgotten) => match driver_fault(volume) {
                Some(fault) => fault,
                None if says(Fault::DriverDown) => Fault::DriverDown,
                None if self.questions.has_no_server(volume) => Fault::DeadFuse,
                None if says(Fault::DriverHangs) => Fault::DriverHangs,
                None if says(Fault::DriverError) => Fault::DriverError,
                None => match looked.unasked(sample) {
                    Some(fault) => fault,
                    None if is_cut_off => Fault::CutOff,
                    None => Fault::Forgotten,
                },
            },
            Some(Fault::NotAttempted) if begun => {
                looked.unasked(sample).unwrap_or(Fault::NotAttempted)
            }
            Some(fault) => fault,
        };
        let found = match found {
            Fault::DriverHangs
                if looked.of_another.is_some()
                    && driver_fault(volume).is_none()
                    && !volume.mounts.is_empty() =>
            {
                Fault::InTurn
            }
            found => found,
        };
        // A pod from before the node's boot may be about to start again.
        let is_due = pod.started
            || found == Fault::NoData
            || says(found)
            || found == Fault::KubeletLost && failed_mount.is_some_and(FailedMount::stands);
        is_due.then_some(found)
    }
}

/// Whether the driver reports, or a timeout shows, that it works on an earlier call.
fn is_at_work(logged: Option<&Repeated>) -> bool {
    let words = [Some(Complaint::DriverHangs), Some(Complaint::DriverTimesOut)];
    logged.is_some_and(|logged| words.contains(&logged.said.complaint))
}

/// The fault of a registered driver, by its socket and its process.
fn driver_fault(volume: &VolumeState) -> Option<Fault> {
    match &volume.csi.as_ref()?.driver.as_ref()?.process {
        None => Some(Fault::DriverDown),
        Some(process) if process.halted.is_some() => Some(Fault::DriverHangs),
        Some(_) => None,
    }
}

/// The possible fault of a volume of a pod that has ended.
fn fault(pod: &PodState, volume: &VolumeState, tried: &Tried, seen: bool) -> Option<Fault> {
    let csi = volume.csi.as_ref();
    if csi.is_some_and(|csi| matches!(csi.data, VolumeData::Missing | VolumeData::Corrupt { .. })) {
        return Some(Fault::NoData);
    }
    if volume.mounts.is_empty() {
        return None;
    }
    if let Some((_, caller)) = tried.last_ok {
        let here = volume.mounts.iter().any(|mount| mount.namespace == caller);
        return Some(if here { Fault::Stacked } else { Fault::WrongNamespace });
    }
    if tried.any() {
        // Failed attempts belong to another detector.
        return None;
    }
    let begun = seen || !csi_volume::verdict::has_tokens(pod);
    match csi.map(|csi| csi.registration) {
        // kubelet asks no driver to unmount volumes of a pod that is not being taken down.
        Some(Registration::Absent) if begun => Some(Fault::DriverAbsent),
        Some(Registration::Deaf) if begun => Some(Fault::DriverDeaf),
        Some(Registration::Listening) if begun => Some(Fault::Forgotten),
        _ => Some(Fault::NotAttempted),
    }
}

/// Whether the fault has been seen and logged for long enough.
pub(super) fn is_met(
    fault: Fault,
    looked: &Looked<'_>,
    (seen, said): (Duration, Duration),
    thresholds: Thresholds,
) -> bool {
    match fault {
        // kubelet's own wait of two minutes shows better than a longer watch that the driver is not merely slow.
        Fault::DriverHangs if looked.timed_out => said >= MET && seen >= SEEN,
        Fault::DriverHangs if looked.halted => said.min(seen) >= MET,
        Fault::DriverAbsent | Fault::DriverDeaf | Fault::DriverDown | Fault::NoData => {
            said.min(seen) >= MET
        }
        fault => said.min(seen) >= needed(fault, thresholds),
    }
}

/// How long the fault must have lasted.
pub(super) fn needed(fault: Fault, thresholds: Thresholds) -> Duration {
    match fault {
        Fault::DriverError | Fault::InTurn | Fault::NotIdempotent => Duration::ZERO,
        fault if fault.is_silence() => thresholds.not_attempted,
        _ => thresholds.not_attempted / PART,
    }
}
