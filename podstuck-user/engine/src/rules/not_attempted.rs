//! What it means that nobody unmounts, in words.

use std::{sync::Arc, time::Duration};

use crate::{
    cause::{Cause, CauseId, Kind, TriedWith, like, log, way},
    model::{
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::Target,
        node::{PodState, VolumeData, VolumeState},
        path::{safe, safe_path},
        said::Said,
        time::Monotonic,
    },
    rules::{left_mounted, not_attempted_words},
    tracker::{Context, TrackerId},
    trackers::unmounts::Tried,
    verdict::Draft,
};

/// The driver is not on the node.
pub(crate) static NOT_REGISTERED: Cause = Cause {
    id: CauseId::new("csi-driver-not-registered"),
    title: "the CSI driver is not on this node, so kubelet cannot ask it to unmount",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver's DaemonSet was removed, is failing, was evicted, or does not tolerate a \
        taint of this node. kubelet gives up before it touches the path, so no system call shows it.",
    confirmed_by: &[
        "vol_data.json names a driver",
        "kubelet's directory of plugins has no registration socket of that driver, or nobody listens \
         on it",
        "the volume is mounted, and nobody unmounts it",
    ],
    log: log("kubelet", "not found in the list of registered CSI drivers"),
    look_alikes: &[
        like("csi-driver-lost-publish-state", "the driver is not there; that one answers"),
        like("vol-data-missing-or-corrupt", "vol_data.json can be read, and names the driver"),
        like("csi-driver-error", "the driver is not there, and answers nothing"),
    ],
    ways_out: &[
        way("bring the driver back", ""),
        way(
            "`umount` the path by hand",
            "only if the driver cannot come back: data is lost if another node attaches the volume \
             while it is mounted here",
        ),
    ],
    tried: &[TriedWith::Lab],
    source: &[
        "kubernetes pkg/volume/csi/csi_client.go, newCsiDriverClient",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ],
};

/// The driver says no.
pub(crate) static DRIVER_ERROR: Cause = Cause {
    id: CauseId::new("csi-driver-error"),
    title: "the CSI driver answers each attempt to unpublish the volume with an error",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver is there and answers kubelet's NodeUnpublishVolume with an error: it does not \
        know the volume, cannot unmount it, or cannot reach its storage. kubelet asks again, at last \
        every two minutes, and makes no call on the path before the driver has succeeded.",
    confirmed_by: &[
        "kubelet's log has the error of the last attempts, and it is not Unavailable",
        "the driver is registered, and somebody listens on its socket",
        "the volume is still mounted",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code ="),
    look_alikes: &[like("csi-driver-not-registered", "the driver is there, and answers")],
    ways_out: &[
        way("the driver's own log says why: repair that, or restart the driver", ""),
        way("`umount` the path by hand, where the driver does not know the volume any more", ""),
    ],
    tried: &[],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "container-storage-interface spec.md, NodeUnpublishVolume Errors",
    ],
};

/// kubelet's own note about the volume is lost.
pub(crate) static VOL_DATA_LOST: Cause = Cause {
    id: CauseId::new("vol-data-missing-or-corrupt"),
    title: "kubelet lost what it wrote about a CSI volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "vol_data.json is missing, empty or damaged, after an unclean shutdown or a clean-up by \
        hand. kubelet can neither find the driver nor tell it what to unpublish, and makes no call.",
    confirmed_by: &["vol_data.json of the volume is missing, or cannot be understood"],
    log: log("kubelet", "UnmountVolume.NewUnmounter failed"),
    look_alikes: &[
        like("orphaned-pod-dir", "kubelet does not try to remove the pod's directory"),
        like("csi-driver-not-registered", "vol_data.json does not tell which driver it was"),
    ],
    ways_out: &[way(
        "`umount`, or remove the empty directories",
        "the driver is not told, so its node-wide mount and the attachment may have to be cleaned up \
         by hand",
    )],
    tried: &[TriedWith::Lab],
    source: &["kubernetes pkg/volume/csi/csi_plugin.go, NewUnmounter"],
};

/// Nobody does anything at all.
pub(crate) static NOT_ATTEMPTED: Cause = Cause {
    id: CauseId::new("unmount-not-attempted"),
    title: "containers gone, volumes mounted, and nobody does anything",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod's containers have ended, its volumes are still mounted, and nobody tries to \
        unmount them. kubelet may not know that the pod is to go, may wait for something else of the \
        pod, or may not run.",
    confirmed_by: &[
        "no process is left in the pod's control groups",
        "its volumes are mounted, and nobody called umount2 for longer than kubelet's pauses last",
        "the pod's record has a deletionTimestamp",
    ],
    log: log("kubelet", "nothing with the pod's UID"),
    look_alikes: &[like("pod-not-deleted", "the pod's record has a deletionTimestamp")],
    ways_out: &[way("the finding says where to look", "")],
    tried: &[],
    source: &["kubernetes pkg/kubelet/kubelet.go, SyncTerminatedPod"],
};

/// A fault that shows in what does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The driver has no registration socket.
    DriverAbsent,
    /// It has one, and nobody listens.
    DriverDeaf,
    /// It answers with errors.
    DriverError,
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
pub(crate) struct Suspect<'a> {
    pub(crate) pod: &'a PodState,
    pub(crate) volume: &'a VolumeState,
    pub(crate) tried: &'a Tried,
    pub(crate) fault: Fault,
    /// Since when it has been so.
    pub(crate) since: Monotonic,
    pub(crate) window: Duration,
    pub(crate) threshold: Duration,
    /// Other things of the pod were seen to be removed or unmounted.
    pub(crate) taken_down: bool,
    /// The pod had tokens, and has none any more.
    pub(crate) lost_tokens: bool,
    /// What kubelet's log complains of, since when and in which words.
    pub(crate) said: Option<(Monotonic, &'a Said)>,
    pub(crate) kubelet_runs: bool,
    pub(crate) at: Monotonic,
}

/// Where kubelet keeps what it knows of a volume.
const FILE: &str = "vol_data.json";

/// Whether the pod still has the tokens that nearly every pod is given. kubelet takes all volumes
/// down at the same time, so a pod that has lost them is being taken down.
pub(crate) fn has_tokens(pod: &PodState) -> bool {
    pod.volumes.iter().any(|volume| {
        let name = volume.path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"kube-api-access-")
            || name.as_encoded_bytes().windows(7).any(|part| part == b"-token-")
    })
}

/// The finding.
pub(crate) fn draft(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    target_id: u64,
    target: Arc<Target>,
) -> Draft {
    let Suspect { volume, fault, at, .. } = suspect;
    let cause = match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => &NOT_REGISTERED,
        Fault::DriverError => &DRIVER_ERROR,
        Fault::Forgotten => left_mounted::cause(1, None),
        Fault::Stacked => left_mounted::cause(1, Some(true)),
        Fault::WrongNamespace => left_mounted::cause(1, Some(false)),
        Fault::NoData => &VOL_DATA_LOST,
        Fault::NotAttempted => &NOT_ATTEMPTED,
    };
    let path = volume.mounts.last().map_or(&volume.path, |mount| &mount.point);
    let path = if *fault == Fault::NoData { volume.path.join(FILE) } else { path.clone() };
    let mut draft =
        Draft::about_state(TrackerId::NotAttempted, cause, target_id, target, path, *at);
    draft.first = suspect.said.map_or(suspect.since, |(first, _)| first.min(suspect.since));
    draft.blocks_deletion = (*fault != Fault::NotAttempted).then_some(true);
    if *fault == Fault::NotAttempted {
        draft.severity = Severity::Info;
    }
    state(&mut draft, suspect);
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => {
            not_attempted_words::not_registered(context, &mut draft, suspect)
        }
        Fault::DriverError => not_attempted_words::driver_error(context, &mut draft, suspect),
        Fault::Forgotten => left_mounted::forgotten(context, &mut draft, suspect),
        Fault::Stacked => left_mounted::stacked(context, &mut draft, suspect),
        Fault::WrongNamespace => left_mounted::wrong_namespace(context, &mut draft, suspect),
        Fault::NoData => not_attempted_words::no_data(context, &mut draft, suspect),
        Fault::NotAttempted => not_attempted_words::not_attempted(context, &mut draft, suspect),
    }
    draft
}

impl Suspect<'_> {
    /// Whether it is known that the pod is being taken down, and not only that it looks so.
    pub(crate) fn is_going(&self) -> bool {
        self.taken_down || self.lost_tokens || self.said.is_some()
    }

    /// Whether it has been silent for so long that one of kubelet's attempts must lie within, also
    /// when all its pauses are as long as they get.
    pub(crate) fn outlasts_pauses(&self) -> bool {
        self.window >= self.threshold + self.threshold / 2
    }
}

/// What was seen, whatever it means.
fn state(draft: &mut Draft, suspect: &Suspect<'_>) {
    for mount in suspect.volume.mounts.iter().take(4) {
        let point = safe_path(&mount.point);
        draft.fact(
            format!("{point} is still mounted: {}", mount.what),
            Source::mountinfo(&mount.source),
        );
    }
    draft.fact(
        "containers of the pod were started, and no process is left in its control groups",
        Source::proc("control groups"),
    );
    if let Some((first, said)) = suspect.said {
        let next = said.retry.map(|retry| format!("; not tried again before {retry:.0}"));
        let text = format!("kubelet says: {}{}", said.text, next.unwrap_or_default());
        draft.fact_since(text, Source::Log(said.source.clone()), first);
    }
    let window = suspect.window.as_secs();
    if window > 0 && !suspect.tried.any() && !suspect.volume.mounts.is_empty() {
        draft.fact_since(
            format!("nobody called umount2 on it in {window} s of watching"),
            Source::Probe,
            suspect.since,
        );
    }
    if suspect.taken_down {
        draft.fact("other volumes of this pod were removed or unmounted meanwhile", Source::Probe);
    } else if suspect.lost_tokens {
        draft.fact("the pod's token volume is gone", Source::file("kubelet's directory"));
        draft.fact(
            "so the pod is being taken down: kubelet takes all volumes down at the same time",
            Source::Inference,
        );
    } else if !has_tokens(suspect.pod) {
        draft.fact(
            "the pod has no token volume, as nearly every pod has that is not being taken down \
             (unless it is made with `automountServiceAccountToken: false`)",
            Source::file("kubelet's directory"),
        );
    }
    if let Some(csi) = &suspect.volume.csi
        && let VolumeData::Known { driver, handle, lifecycle } = &csi.data
    {
        let (driver, handle) = (safe(driver.as_bytes()), safe(handle.as_bytes()));
        let lifecycle = safe(lifecycle.as_bytes());
        draft.fact(
            format!("driver {driver}, volume handle {handle} ({lifecycle})"),
            Source::file(FILE),
        );
    }
}
