//! What it means that nobody unmounts, in words.

use std::{sync::Arc, time::Duration};

use super::{
    draft::{Draft, Family, PROBE},
    umounts::Tried,
    untried_words,
};
use crate::{
    model::{
        finding::Severity,
        identity::Target,
        path::{safe, safe_path},
        time::Monotonic,
    },
    state::{
        pod_dirs::VolumeData,
        sample::{PodState, VolumeState},
    },
};

/// A fault that shows in what does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The driver has no registration socket.
    DriverAbsent,
    /// It has one, and nobody listens.
    DriverDeaf,
    /// The driver is there, and nobody unmounts.
    Forgotten,
    /// An unmount succeeded, and the path is still mounted there.
    Stacked,
    /// An unmount succeeded, in another mount namespace.
    WrongNamespace,
    /// kubelet cannot read what it wrote about a CSI volume.
    NoData,
    /// Nothing at all was done.
    NotAttempted,
}

/// A volume that may be at fault.
pub(super) struct Suspect<'a> {
    pub(super) pod: &'a PodState,
    pub(super) volume: &'a VolumeState,
    pub(super) tried: &'a Tried,
    pub(super) fault: Fault,
    /// Since when it has been so.
    pub(super) since: Monotonic,
    pub(super) window: Duration,
    pub(super) patience: Duration,
    /// Other things of the pod were seen to be removed or unmounted.
    pub(super) taken_down: bool,
    /// The pod had tokens, and has none any more.
    pub(super) lost_tokens: bool,
    pub(super) kubelet_runs: bool,
    pub(super) at: Monotonic,
}

/// Where kubelet keeps what it knows of a volume.
const FILE: &str = "vol_data.json";

/// Whether the pod still has the tokens that nearly every pod is given. kubelet takes all volumes
/// down at the same time, so a pod that has lost them is being taken down.
pub(super) fn has_tokens(pod: &PodState) -> bool {
    pod.volumes.iter().any(|volume| {
        let name = volume.path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"kube-api-access-")
            || name.as_encoded_bytes().windows(7).any(|part| part == b"-token-")
    })
}

/// The finding.
pub(super) fn draft(suspect: &Suspect<'_>, target_id: u64, target: Arc<Target>) -> Draft {
    let Suspect { volume, fault, at, .. } = suspect;
    let id = match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => "csi-driver-not-registered",
        Fault::Forgotten => "csi-driver-lost-publish-state",
        Fault::Stacked => "stacked-mounts",
        Fault::WrongNamespace => "csi-umount-wrong-namespace",
        Fault::NoData => "vol-data-missing-or-corrupt",
        Fault::NotAttempted => "unmount-not-attempted",
    };
    let path = volume.mounts.last().map_or(&volume.path, |mount| &mount.point);
    let path = if *fault == Fault::NoData { volume.path.join(FILE) } else { path.clone() };
    let mut draft = Draft::about_state(Family::Untried, id, target_id, target, path, *at);
    draft.first = suspect.since;
    draft.confidence = confidence(suspect);
    draft.blocks_deletion = (*fault != Fault::NotAttempted).then_some(true);
    if *fault == Fault::NotAttempted {
        draft.severity = Severity::Info;
    }
    state(&mut draft, suspect);
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => {
            untried_words::not_registered(&mut draft, suspect)
        }
        Fault::Forgotten => untried_words::forgotten(&mut draft, suspect),
        Fault::Stacked => untried_words::stacked(&mut draft, suspect),
        Fault::WrongNamespace => untried_words::wrong_namespace(&mut draft, suspect),
        Fault::NoData => untried_words::no_data(&mut draft, suspect),
        Fault::NotAttempted => untried_words::not_attempted(&mut draft, suspect),
    }
    draft
}

/// Silence says more the longer it lasts. In steps, so that not every sample is news.
fn confidence(suspect: &Suspect<'_>) -> f64 {
    let lasted = suspect.window.as_secs_f64() / suspect.patience.as_secs_f64().max(0.001);
    let begun = suspect.taken_down || suspect.lost_tokens;
    match suspect.fault {
        // A pod that never had tokens may not be going at all.
        Fault::DriverAbsent | Fault::DriverDeaf if !begun => 0.75,
        Fault::DriverAbsent | Fault::NoData if lasted >= 1.0 => 0.95,
        Fault::DriverAbsent | Fault::NoData => 0.9,
        Fault::DriverDeaf => 0.85,
        Fault::Stacked | Fault::WrongNamespace => 0.85,
        Fault::Forgotten => {
            let silence = if lasted >= 2.0 {
                0.85
            } else if lasted >= 1.5 {
                0.8
            } else {
                0.7
            };
            if begun { silence } else { silence - 0.1 }
        }
        Fault::NotAttempted => 0.35,
    }
}

/// What was seen, whatever it means.
fn state(draft: &mut Draft, suspect: &Suspect<'_>) {
    for mount in suspect.volume.mounts.iter().take(4) {
        let point = safe_path(&mount.point);
        draft.fact(format!("{point} is still mounted: {}", mount.what), &mount.source);
    }
    draft.fact(
        "containers of the pod were started, and no process is left in its control groups",
        "control groups",
    );
    let window = suspect.window.as_secs();
    if !suspect.tried.any() && !suspect.volume.mounts.is_empty() {
        draft.fact(format!("nobody called umount2 on it in {window} s of watching"), PROBE);
    }
    if suspect.taken_down {
        draft.fact("other volumes of this pod were removed or unmounted meanwhile", PROBE);
    } else if suspect.lost_tokens {
        draft.fact("the pod's token volume is gone: it is being taken down", "kubelet's directory");
    } else if !has_tokens(suspect.pod) {
        draft.fact(
            "the pod has no token volume, as nearly every pod has that is not being taken down \
             (unless it is made with `automountServiceAccountToken: false`)",
            "kubelet's directory",
        );
    }
    if let Some(csi) = &suspect.volume.csi
        && let VolumeData::Known { driver, handle, lifecycle } = &csi.data
    {
        let (driver, handle) = (safe(driver.as_bytes()), safe(handle.as_bytes()));
        let lifecycle = safe(lifecycle.as_bytes());
        draft.fact(format!("driver {driver}, volume handle {handle} ({lifecycle})"), FILE);
    }
}
