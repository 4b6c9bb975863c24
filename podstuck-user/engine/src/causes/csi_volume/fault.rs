//! What is wrong with a volume, as far as the state of the node, logs and calls say.

use std::time::Duration;

use crate::{
    causes::{
        csi_volume::{self, kubelets_log::Told, tracker::NotAttempted, verdict::Fault},
        shared::standing::Standing,
    },
    event::Thresholds,
    model::{
        csi::{DriverProcess, Registration, VolumeData},
        node::{NodeSample, PodState, VolumeState},
        said::Complaint,
        time::Monotonic,
    },
    unmounts::Tried,
};

/// What shows by itself (a driver's socket, a file) must last for this part of the threshold, a
/// minute by default: a driver that is restarted comes back before.
const PART: u32 = 4;
/// What shows by itself, and what kubelet meets again and again: five attempts, by its back-off of 0.5 s that doubles.
const MET: Duration = Duration::from_secs(8);
/// What kubelet waited two minutes for, and has met for as long as [`MET`] since, must be seen for as long: two looks.
const SEEN: Duration = Duration::from_secs(1);
/// A log begins at most so long after the start of whoever writes it.
const AT_ITS_START: Duration = Duration::from_secs(10);

/// What is known of a volume besides its state.
pub(super) struct Looked<'a> {
    pub(super) standing: Option<Standing>,
    pub(super) torn_down: Option<&'a Told>,
    pub(super) no_error_since: Option<(Monotonic, &'a str)>,
    pub(super) unregistered: Option<Monotonic>,
    /// kubelet waited two minutes for the driver's answer.
    pub(super) timed_out: bool,
    /// The driver's process is stopped or frozen, or has no descriptor left.
    pub(super) halted: bool,
}

impl Looked<'_> {
    /// What it is that kubelet's log has nothing of the volume since the pod's end, or since kubelet's own
    /// start after that; `None` where it has, or does not reach back so far.
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
        // One error may be a moment's.
        let told = |fault| self.log.complaint(pod, volume, fault, at).filter(|told| told.lines > 1);
        // That a driver was not reached before its process was started says nothing of that one. One that answered with
        // errors is likely to do so again.
        let started = volume.driver().map(|process| process.started);
        let says = |fault| {
            let told = match fault {
                Fault::DriverHangs if looked.timed_out => {
                    self.log.complaint(pod, volume, fault, at)
                }
                _ => told(fault),
            };
            let is_error = matches!(fault, Fault::DriverError | Fault::NotIdempotent);
            told.is_some_and(|told| is_error || started.is_none_or(|started| started <= told.last))
        };
        // kubelet forgets a driver when its registrar's socket is removed, not when nobody listens there any more:
        // one that it calls is in its list.
        let is_called =
            [Fault::DriverDown, Fault::DriverHangs, Fault::DriverError].into_iter().any(says);
        let begun = self.taken_down.contains(&pod.uid)
            || self.to_go.word(&pod.uid).is_some()
            || pod.volume_removed.is_some()
            || looked.torn_down.is_some()
            || !csi_volume::verdict::has_tokens(pod);
        // It was asked, and answered; what it does since does not matter.
        let is_forgotten = looked.torn_down.is_some() && !volume.mounts.is_empty() && !tried.any();
        let mounts_again = told(Fault::KubeletLost)
            .zip(looked.standing.as_ref())
            .is_some_and(|(told, standing)| standing.ended() < told.last);
        let is_cut_off = volume.driver().is_some_and(DriverProcess::is_cut_off);
        let found = match fault(pod, volume, tried, begun) {
            Some(Fault::DriverDeaf) if is_called => Some(Fault::Forgotten),
            found => found,
        };
        let found = match found {
            Some(_) if is_forgotten && is_cut_off => Fault::CutOff,
            Some(_) if is_forgotten => Fault::Forgotten,
            // The kernel takes a mount from the table before it writes back what is left.
            None if volume.mounts.is_empty()
                && says(Fault::DriverHangs)
                && is_at_work(self.log.complaint(pod, volume, Fault::DriverHangs, at)) =>
            {
                Fault::DriverHangs
            }
            None if volume.mounts.is_empty() && says(Fault::NotIdempotent) => {
                // Otherwise many other things may have failed after the unmount.
                let told = told(Fault::NotIdempotent);
                let why =
                    told.is_some_and(|told| csi_volume::driver::says_not_mounted(&told.said.text));
                if pod.before_boot || why { Fault::NotIdempotent } else { Fault::DriverError }
            }
            None => return None,
            // Whatever the driver does, somebody must ask it.
            Some(Fault::Forgotten | Fault::NotAttempted) if sample.kubelets.is_empty() => {
                Fault::NotAttempted
            }
            Some(Fault::Forgotten | Fault::NotAttempted) if mounts_again => Fault::KubeletLost,
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
        // A pod that was there before the node was booted may be about to begin again.
        let is_due = pod.started || found == Fault::NoData || says(found);
        is_due.then_some(found)
    }
}

/// Whether a driver says, or shows by its silence, that it works on an earlier call.
fn is_at_work(told: Option<&Told>) -> bool {
    let words = [Some(Complaint::DriverHangs), Some(Complaint::DriverTimesOut)];
    told.is_some_and(|told| words.contains(&told.said.complaint))
}

/// What is wrong with a driver that has registered, by its socket and its process.
fn driver_fault(volume: &VolumeState) -> Option<Fault> {
    match &volume.csi.as_ref()?.driver.as_ref()?.process {
        None => Some(Fault::DriverDown),
        Some(process) if process.halted.is_some() => Some(Fault::DriverHangs),
        Some(_) => None,
    }
}

/// What may be wrong with a volume of a pod that has ended.
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
        // Somebody tries and fails: that is another detector's.
        return None;
    }
    let begun = seen || !csi_volume::verdict::has_tokens(pod);
    match csi.map(|csi| csi.registration) {
        // Of a pod that is not being taken down, nobody is asked to unmount anything.
        Some(Registration::Absent) if begun => Some(Fault::DriverAbsent),
        Some(Registration::Deaf) if begun => Some(Fault::DriverDeaf),
        Some(Registration::Listening) if begun => Some(Fault::Forgotten),
        _ => Some(Fault::NotAttempted),
    }
}

/// Whether it has been seen and said for long enough that kubelet meets it.
pub(super) fn is_met(
    fault: Fault,
    looked: &Looked<'_>,
    (seen, said): (Duration, Duration),
    thresholds: Thresholds,
) -> bool {
    match fault {
        // That the driver only takes its time is known better by kubelet's wait than by more of ours.
        Fault::DriverHangs if looked.timed_out => said >= MET && seen >= SEEN,
        Fault::DriverHangs if looked.halted => said.min(seen) >= MET,
        Fault::DriverAbsent | Fault::DriverDeaf | Fault::DriverDown | Fault::NoData => {
            said.min(seen) >= MET
        }
        fault => said.min(seen) >= needed(fault, thresholds),
    }
}

/// How long it must have lasted.
pub(super) fn needed(fault: Fault, thresholds: Thresholds) -> Duration {
    match fault {
        Fault::DriverError | Fault::NotIdempotent => Duration::ZERO,
        fault if fault.is_silence() => thresholds.not_attempted,
        _ => thresholds.not_attempted / PART,
    }
}
