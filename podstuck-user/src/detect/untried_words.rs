//! Each fault that shows in what does not happen: what it means and what to do.

use std::path::Path;

use super::{
    command::View,
    draft::{Draft, PROBE},
    untried_verdict::{Fault, Suspect},
};
use crate::{
    model::path::{safe, safe_path},
    state::{pod_dirs::VolumeData, sample::Registration},
};

fn umount(draft: &mut Draft, suspect: &Suspect<'_>, risk: &str) {
    let mut mounts: Vec<_> = suspect.volume.mounts.iter().collect();
    mounts.sort_by_key(|mount| std::cmp::Reverse(mount.point.components().count()));
    mounts.dedup_by_key(|mount| (mount.namespace, mount.point.clone()));
    for mount in mounts {
        let view = View { namespace: mount.namespace, pid: mount.pid };
        draft.remedy(view.on_mount("umount", &mount.point), risk);
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

pub(super) fn not_registered(draft: &mut Draft, suspect: &Suspect<'_>) {
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

pub(super) fn forgotten(draft: &mut Draft, suspect: &Suspect<'_>) {
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

pub(super) fn stacked(draft: &mut Draft, suspect: &Suspect<'_>) {
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

/// What `csi-umount-wrong-namespace` means, whichever way it shows.
pub(super) const WRONG_NAMESPACE: &str = "The driver unmounted the volume where it runs, and that \
    did not reach kubelet: its container lacks `mountPropagation: Bidirectional`, or kubelet's \
    directory is not a shared mount (`findmnt -o TARGET,PROPAGATION`).";

pub(super) fn wrong_namespace(draft: &mut Draft, suspect: &Suspect<'_>) {
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
    if suspect.volume.mounts.iter().all(|mount| !mount.shared) {
        draft.fact("the mount is not shared: what others do does not reach it", "mountinfo");
    }
    umount(draft, suspect, UMOUNT_RISK);
    draft.explanation = WRONG_NAMESPACE.into();
    draft.ruled_out.push(
        "csi-driver-lost-publish-state: the driver did unmount, where it sees the volume".into(),
    );
}

pub(super) fn no_data(draft: &mut Draft, suspect: &Suspect<'_>) {
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
            View::OURS.on_object("find", directory) + " -depth -type d -empty -delete",
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

pub(super) fn not_attempted(draft: &mut Draft, suspect: &Suspect<'_>) {
    let registration = suspect.volume.csi.as_ref().map(|csi| csi.registration);
    if matches!(registration, Some(Registration::Absent | Registration::Deaf)) {
        let (name, socket) = driver(suspect);
        draft
            .fact(format!("the CSI driver {name} does not listen on {socket}"), "/proc/*/net/unix");
    }
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
