//! What it means that nobody unmounts, in words.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    draft::{Draft, Family, PROBE, command_for},
    umounts::Tried,
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
        Fault::DriverAbsent | Fault::DriverDeaf => not_registered(&mut draft, suspect),
        Fault::Forgotten => forgotten(&mut draft, suspect),
        Fault::Stacked => stacked(&mut draft, suspect),
        Fault::WrongNamespace => wrong_namespace(&mut draft, suspect),
        Fault::NoData => no_data(&mut draft, suspect),
        Fault::NotAttempted => not_attempted(&mut draft, suspect),
    }
    draft
}

/// Silence says more the longer it lasts. In steps, so that not every sample is news.
fn confidence(suspect: &Suspect<'_>) -> f64 {
    let lasted = suspect.window.as_secs_f64() / suspect.patience.as_secs_f64().max(0.001);
    match suspect.fault {
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
            if suspect.taken_down { silence } else { silence - 0.1 }
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
        draft.fact("other things of this pod were removed or unmounted meanwhile", PROBE);
    } else if !has_tokens(suspect.pod) {
        draft.fact(
            "the pod's token volume is gone, which nearly every pod has: it is being taken down",
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

fn umount(draft: &mut Draft, suspect: &Suspect<'_>, risk: &str) {
    let mut mounts: Vec<_> = suspect.volume.mounts.iter().collect();
    mounts.sort_by_key(|mount| std::cmp::Reverse(mount.point.components().count()));
    mounts.dedup_by_key(|mount| (mount.namespace, mount.point.clone()));
    for mount in mounts {
        draft.remedy(command_for(mount.namespace, mount.pid, "umount", &mount.point), risk);
    }
}

const UMOUNT_RISK: &str = "low while no process uses the mount; what is mounted stays intact. The \
    driver is not told, so its node-wide mount and the attachment may have to be cleaned up by hand. \
    Never `rm -rf` below it: that deletes the data behind the mount";

fn driver(suspect: &Suspect<'_>) -> (String, String) {
    let csi = suspect.volume.csi.as_ref();
    let name = match csi.map(|csi| &csi.data) {
        Some(VolumeData::Known { driver, .. }) => safe(driver.as_bytes()).into_owned(),
        _ => String::new(),
    };
    (name, csi.map(|csi| safe_path(&csi.socket).into_owned()).unwrap_or_default())
}

fn not_registered(draft: &mut Draft, suspect: &Suspect<'_>) {
    let (name, socket) = driver(suspect);
    if suspect.fault == Fault::DriverAbsent {
        draft.fact(
            format!("{socket} is not there: no driver {name} is registered"),
            "kubelet's directory",
        );
    } else {
        draft.fact(format!("nobody listens on {socket}"), "/proc/*/net/unix");
    }
    draft.explanation = format!(
        "kubelet cannot ask the CSI driver {name} to unpublish the volume, because the driver is not \
         there: its DaemonSet was removed, is failing, or does not tolerate a taint of this node. \
         kubelet gives up before it touches the path, so no system call shows it."
    );
    draft.remedy(
        "kubectl get csinode $(hostname) -o yaml",
        "none; lists the drivers that kubelet knows. Install or restart the driver on this node, and \
         kubelet's next attempt unmounts the volume",
    );
    umount(
        draft,
        suspect,
        "only if the driver cannot come back: data is lost if another node attaches the volume while \
         it is mounted here; detach it by hand afterwards",
    );
    draft.ruled_out.push(
        "csi-driver-lost-publish-state: a driver that forgot its mounts answers, and this one is not \
         there"
            .into(),
    );
}

fn forgotten(draft: &mut Draft, suspect: &Suspect<'_>) {
    umount(draft, suspect, UMOUNT_RISK);
    draft.explanation =
        "The CSI driver is registered, kubelet has taken the rest of the pod down, \
        and nobody unmounts this volume. Most likely the driver was restarted, forgot what it had \
        published, and says that all is well; kubelet from 1.30 on sees that the path is still \
        mounted and waits without a word. Not known from here is what the driver answers: its log \
        says so (`not published`, `nothing to do`, or an error that kubelet's log repeats)."
            .into();
    draft.ruled_out.extend([
        "csi-driver-not-registered: the driver's registration socket is there, and somebody listens \
         on it"
            .to_owned(),
        "volume-held-by-host-process: umount2 would have failed with EBUSY; nobody called it".into(),
        "csi-umount-wrong-namespace: nobody unmounted it in any namespace".into(),
    ]);
}

fn stacked(draft: &mut Draft, suspect: &Suspect<'_>) {
    let left = suspect.volume.mounts.len();
    draft.fact(
        format!("umount2 on it succeeded {} times, and {left} mounts are left", suspect.tried.ok),
        PROBE,
    );
    umount(draft, suspect, UMOUNT_RISK);
    draft.explanation = "The volume was mounted more than once on the same path; an unmount takes \
        only the uppermost away, and nobody unmounts the rest. Unmount until it fails with EINVAL."
        .into();
    draft.ruled_out.push(
        "csi-umount-wrong-namespace: the unmount that succeeded was called in a namespace in which \
         the path is still mounted"
            .into(),
    );
}

fn wrong_namespace(draft: &mut Draft, suspect: &Suspect<'_>) {
    if let (Some((_, caller)), Some(mount)) = (suspect.tried.last_ok, suspect.volume.mounts.first())
    {
        draft.fact(
            format!(
                "umount2 succeeded in mount namespace {caller}, and the path is still mounted in {}",
                mount.namespace
            ),
            PROBE,
        );
    }
    umount(draft, suspect, UMOUNT_RISK);
    draft.explanation = "The driver unmounted the volume where it runs, and that did not reach \
        kubelet: its container lacks `mountPropagation: Bidirectional`, or kubelet's directory is \
        not a shared mount (`findmnt -o TARGET,PROPAGATION`)."
        .into();
    draft.ruled_out.push(
        "csi-driver-lost-publish-state: the driver did unmount, where it sees the volume".into(),
    );
}

fn no_data(draft: &mut Draft, suspect: &Suspect<'_>) {
    let what = match suspect.volume.csi.as_ref().map(|csi| &csi.data) {
        Some(VolumeData::Corrupt { size: 0 }) => "is empty".to_owned(),
        Some(VolumeData::Corrupt { size }) => format!("cannot be understood ({size} bytes)"),
        _ => "is missing".to_owned(),
    };
    draft.fact(format!("{} {what}", safe_path(&draft.path)), "kubelet's directory");
    draft.explanation = "kubelet lost what it wrote about the volume (an unclean shutdown, a \
        clean-up by hand), so it can neither find the driver nor tell it what to unpublish: it \
        fails with `UnmountVolume.NewUnmounter failed` in its log and makes no call."
        .into();
    let directory: &Path = &suspect.volume.path;
    if suspect.volume.mounts.is_empty() {
        draft.remedy(
            command_for(0, 0, "find", directory) + " -depth -type d -empty -delete",
            "low: removes empty directories only",
        );
    } else {
        umount(draft, suspect, UMOUNT_RISK);
    }
    draft.ruled_out.push(
        "orphaned-pod-dir: kubelet does not try to remove the pod's directory, as it does for a pod \
         that the API server no longer knows"
            .into(),
    );
}

fn not_attempted(draft: &mut Draft, suspect: &Suspect<'_>) {
    if !suspect.kubelet_runs {
        draft.fact("no kubelet runs on this node", "/proc");
    }
    draft.explanation = "The pod's containers have ended, its volumes are still mounted, and nobody \
        tries to unmount them. The blocker is no failing system call: kubelet may not know that the \
        pod is to go (is it being deleted at all?), may wait for something else of the pod, or may \
        not run. Look at the pod's record (deletionTimestamp, finalizers) and at kubelet's log for \
        its UID."
        .into();
    let uid = safe(suspect.pod.uid.as_bytes());
    draft.remedy(format!("journalctl -u kubelet --since -10min | grep {uid}"), "none");
}
