//! Findings about volumes that no component unmounts, including FUSE mounts of a CSI driver whose server is gone:
//! explanation and remedies of each fault.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    causes::{
        csi_volume::{
            self,
            causes::{NOT_ATTEMPTED, VOL_DATA_LOST},
            driver, kubelet_lost, left_mounted, linked_root,
        },
        dead_fuse,
        shared::{claim, pending_deletion::Word, repeated::tell_first, standing::Standing},
    },
    command::{Step, View},
    event::Thresholds,
    ids,
    model::{
        csi::{DriverState, Registration, VolumeData},
        evidence::Source,
        finding::Severity,
        identity::Target,
        node::{PodState, VolumeState},
        node_record::NodeRecord,
        path::{safe, safe_path},
        pod_record::PodRecord,
        said::Said,
        shell::word,
        time::Monotonic,
    },
    tracker::{Context, TrackerId},
    unmounts::Tried,
    verdict::Draft,
};

/// Why a volume stays mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The driver has no registration socket.
    DriverAbsent,
    /// The driver's registration socket exists, and no process listens on it.
    DriverDeaf,
    /// The registrar listens, and no process listens on the driver's own socket.
    DriverDown,
    /// The driver is halted, or does not return from a call.
    DriverHangs,
    /// The driver answers with errors.
    DriverError,
    /// The driver refuses, as it works on another pod's call on the volume each time.
    InTurn,
    /// The volume is a FUSE file system without a server.
    DeadFuse,
    /// The driver answers with errors, and nothing is mounted.
    NotIdempotent,
    /// The driver is there, and no process unmounts the volume.
    Forgotten,
    /// An unmount succeeded, and the path is still mounted in that namespace.
    Stacked,
    /// An unmount succeeded, in another mount namespace.
    WrongNamespace,
    /// The driver's mounts show that its unmounts do not propagate to kubelet.
    CutOff,
    /// kubelet was started after the pod's end, and does not unmount the volume.
    KubeletLost,
    /// kubelet cannot read the `vol_data.json` of a CSI volume.
    NoData,
    /// No component tried anything.
    NotAttempted,
}

/// A volume that may be at fault.
pub(crate) struct Suspect<'a> {
    pub(crate) pod: &'a PodState,
    pub(crate) volume: &'a VolumeState,
    pub(crate) tried: &'a Tried,
    pub(crate) fault: Fault,
    /// Since when the fault was observed.
    pub(crate) since: Monotonic,
    pub(crate) window: Duration,
    pub(crate) threshold: Duration,
    /// Since when the fault lasts, by the traces that other components left.
    pub(crate) standing: Option<&'a Standing>,
    /// When a driver last registered or went, if that is known and the driver is absent.
    pub(crate) unregistered: Option<Monotonic>,
    /// Other volumes of the pod were seen to be removed or unmounted.
    pub(crate) taken_down: bool,
    /// The pod had tokens, and no longer has.
    pub(crate) lost_tokens: bool,
    /// What says that the pod is to be deleted.
    pub(crate) to_go: Option<&'a Word>,
    /// The pod's record at the API server.
    pub(crate) record: Option<&'a PodRecord>,
    /// kubelet waited two minutes for the driver's answer.
    pub(crate) timed_out: bool,
    /// kubelet's log has errors about this volume for another pod, too.
    pub(crate) is_shared: bool,
    /// The last teardown of the volume by another pod, if it shows that the driver's calls on the volume return.
    pub(crate) of_another: Option<&'a Said>,
    /// The complaint in kubelet's log, and its first time.
    pub(crate) said: Option<(Monotonic, &'a Said)>,
    /// kubelet's first error of the volume's teardown, if the last one is another.
    pub(crate) first_error: Option<&'a Said>,
    /// The last teardown of the volume in kubelet's log, if it succeeded.
    pub(crate) torn_down: Option<(Monotonic, &'a Said)>,
    /// The last complaint in the log of the volume's driver.
    pub(crate) driver_says: Option<(Monotonic, &'a Said)>,
    /// Since when kubelet's log has no error of the volume, and the log's name.
    pub(crate) no_error_since: Option<(Monotonic, &'a str)>,
    /// When no process was found that would make an unmount fail.
    pub(crate) unheld: Option<Monotonic>,
    /// The node's record at the API server.
    pub(crate) node: Option<&'a NodeRecord>,
    /// When kubelet said that the volume is attached and not mounted, and did nothing with it since.
    pub(crate) attached: Option<(Monotonic, &'a Said)>,
    pub(crate) kubelet_since: Option<Monotonic>,
    pub(crate) kubelet_runs: bool,
    pub(crate) at: Monotonic,
}

/// kubelet's file about a CSI volume.
const FILE: &str = "vol_data.json";

/// Whether the pod has the token volume that nearly every pod gets. kubelet tears all volumes down at the same time, so
/// a pod that has lost it is being torn down.
pub(crate) fn has_tokens(pod: &PodState) -> bool {
    pod.volumes.iter().any(|volume| {
        let name = volume.path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"kube-api-access-")
            || name.as_encoded_bytes().windows(7).any(|part| part == b"-token-")
    })
}

/// The finding about the suspect.
pub(crate) fn draft(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    target_id: u64,
    target: Arc<Target>,
) -> Draft {
    let Suspect { volume, fault, at, .. } = suspect;
    let link = context.sample.and_then(|sample| sample.link_to(&suspect.pod.directory));
    let cause = match fault {
        Fault::DriverAbsent | Fault::DriverDeaf | Fault::DriverDown | Fault::DriverHangs => {
            csi_volume::driver::cause(*fault)
        }
        Fault::DriverError | Fault::InTurn | Fault::NotIdempotent => {
            csi_volume::driver::cause(*fault)
        }
        Fault::DeadFuse => dead_fuse::cause(),
        Fault::KubeletLost => kubelet_lost::cause(),
        Fault::Forgotten => left_mounted::cause(1, None),
        Fault::Stacked => linked_root::in_place_of(left_mounted::cause(1, Some(true)), link),
        Fault::WrongNamespace | Fault::CutOff => left_mounted::cause(1, Some(false)),
        Fault::NoData => &VOL_DATA_LOST,
        Fault::NotAttempted => &NOT_ATTEMPTED,
    };
    let path = volume.mounts.last().map_or(&volume.path, |mount| &mount.point);
    let path = if *fault == Fault::NoData { volume.path.join(FILE) } else { path.clone() };
    let mut draft =
        Draft::about_state(TrackerId::NotAttempted, cause, target_id, target, path, *at);
    let known = [suspect.said, suspect.torn_down].into_iter().flatten().map(|(since, _)| since);
    let standing = suspect.standing.map(|standing| standing.since).filter(|_| fault.is_silence());
    draft.first = known.chain(standing).chain(suspect.unregistered).fold(suspect.since, Ord::min);
    draft.is_settled = suspect.at.since(draft.first) >= suspect.threshold;
    draft.blocks_deletion = (*fault != Fault::NotAttempted).then_some(true);
    if *fault == Fault::NotAttempted {
        draft.severity = Severity::Info;
    }
    state(&mut draft, suspect);
    tell_first(&mut draft, suspect.first_error);
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => {
            csi_volume::driver::not_registered(&mut draft, suspect)
        }
        Fault::DriverDown => csi_volume::driver::down(&mut draft, suspect),
        Fault::DriverHangs => csi_volume::driver::hangs(context, &mut draft, suspect),
        Fault::DriverError => csi_volume::driver::error(context, &mut draft, suspect),
        Fault::InTurn => csi_volume::driver::in_turn(context, &mut draft, suspect),
        Fault::DeadFuse => below_driver(context, &mut draft, suspect),
        Fault::NotIdempotent => csi_volume::driver::not_idempotent(context, &mut draft, suspect),
        Fault::CutOff => left_mounted::cut_off(context, &mut draft, suspect),
        Fault::KubeletLost => kubelet_lost::words(context, &mut draft, suspect),
        Fault::Forgotten => left_mounted::forgotten(context, &mut draft, suspect),
        Fault::Stacked => {
            left_mounted::stacked(context, &mut draft, suspect);
            // The mounts that are left, and the one that was unmounted.
            linked_root::tell_apart(&mut draft, &volume.target, volume.mounts.len() + 1, link);
        }
        Fault::WrongNamespace => left_mounted::wrong_namespace(context, &mut draft, suspect),
        Fault::NoData => csi_volume::verdict::no_data(context, &mut draft, suspect),
        Fault::NotAttempted => csi_volume::verdict::not_attempted(context, &mut draft, suspect),
    }
    if *fault != Fault::Stacked
        && let Some(link) = link
    {
        linked_root::tell(&mut draft, link);
    }
    draft
}

impl Fault {
    /// Whether the only symptom is that nothing happens.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::Forgotten | Self::NotAttempted | Self::CutOff | Self::KubeletLost)
    }
}

impl<'a> Suspect<'a> {
    /// Whether the pod is known to be deleted or taken down.
    pub(crate) fn is_going(&self) -> bool {
        self.is_taken_down() || self.to_go.is_some() || self.pod.volume_removed.is_some()
    }

    /// Whether the running kubelet is known to take the pod down.
    pub(crate) fn is_taken_down(&self) -> bool {
        let removed = self.pod.volume_removed.is_some()
            && self.standing.is_some_and(|standing| {
                self.kubelet_since.is_some_and(|since| standing.volume_removed > Some(since))
            });
        let said = self.said.is_some() || self.torn_down.is_some();
        self.taken_down || self.lost_tokens || said || removed
    }

    /// The state of the volume's driver, if it is known.
    pub(crate) fn driver(&self) -> Option<&'a DriverState> {
        self.volume.csi.as_ref()?.driver.as_ref()
    }

    /// Whether the driver has registered.
    pub(crate) fn is_registered(&self) -> bool {
        let csi = self.volume.csi.as_ref();
        csi.is_some_and(|csi| csi.registration == Registration::Listening)
    }

    /// Whether podstuck itself has watched for at least the threshold.
    pub(crate) fn is_watched(&self) -> bool {
        self.window >= self.threshold
    }

    /// Whether the silence is long enough to contain one of kubelet's attempts even if all its pauses have the maximal
    /// length.
    pub(crate) fn outlasts_pauses(&self) -> bool {
        self.window >= self.threshold + self.threshold / 2
    }
}

/// The facts that every fault has in common.
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
    if let Some((at, said)) = suspect.torn_down {
        let text = format!("kubelet says: {}", said.text);
        draft.fact_since(text, Source::Log(said.source.clone()), at);
    }
    if let Some(standing) = suspect.standing.filter(|_| suspect.fault.is_silence()) {
        standing.tell(draft, suspect.at);
    }
    if let Some((first, said)) = suspect.said {
        let next = said.retry.map(|retry| format!("; not tried again before {retry:.0}"));
        let text = format!("kubelet says: {}{}", said.text, next.unwrap_or_default());
        draft.fact_since(text, Source::Log(said.source.clone()), first);
    }
    if let Some((at, said)) = suspect.driver_says {
        let text = format!("the CSI driver said at {:.0}: {}", said.at, said.text);
        draft.fact_since(text, Source::Log(said.source.clone()), at);
    }
    let window = suspect.window.as_secs();
    let is_traced = suspect.threshold < Thresholds::UNTRACED;
    if is_traced && window > 0 && !suspect.tried.any() && !suspect.volume.mounts.is_empty() {
        draft.fact_since(
            format!("no process called umount2 on it in {window} s of observation"),
            Source::Probe,
            suspect.since,
        );
    }
    if let Some(word) = suspect.to_go {
        word.tell(draft);
    }
    if suspect.taken_down {
        draft.fact("other volumes of this pod were removed or unmounted meanwhile", Source::Probe);
    } else if suspect.lost_tokens {
        draft.fact("the pod's token volume is gone", Source::file("kubelet's directory"));
        draft.fact(
            "so the pod is being taken down: kubelet removes all its volumes at the same time",
            Source::Inference,
        );
    } else if suspect.pod.volume_removed.is_some() {
        let at = suspect.standing.and_then(|standing| standing.volume_removed);
        let (fact, source) =
            ("another volume of this pod was removed", Source::file("kubelet's directory"));
        match at {
            Some(at) => draft.fact_since(fact, source, at),
            None => draft.fact(fact, source),
        }
    } else if !has_tokens(suspect.pod) {
        draft.fact(
            "the pod has no token volume; nearly every pod has one until it is taken down (unless \
             it sets `automountServiceAccountToken: false`)",
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

pub(crate) fn umount(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>, risk: &str) {
    let mut mounts: Vec<_> = suspect.volume.mounts.iter().collect();
    // A copy that another kubelet on this machine sees does not hold the pod.
    let is_other = |namespace: u32| namespace != context.own_mnt_ns;
    mounts.sort_by_key(|mount| {
        (std::cmp::Reverse(mount.point.components().count()), is_other(mount.namespace))
    });
    mounts.dedup_by_key(|mount| (mount.namespace, mount.point.clone()));
    for mount in mounts {
        let view = View::in_namespace(context, mount.namespace, mount.pid);
        let umount = view.on_mount("umount", &mount.point, Some(mount.id));
        draft.remedy(umount.so(", which is still mounted"), risk);
    }
}

pub(crate) const UMOUNT_RISK: &str = "low while no process uses the mount; the data on it stays \
    intact. The driver does not notice the unmount, so its node-wide mount and the attachment may \
    have to be cleaned up by hand. Never run `rm -rf` below it: that deletes the data behind the \
    mount";

pub(crate) fn no_data(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let what = match suspect.volume.csi.as_ref().map(|csi| &csi.data) {
        Some(VolumeData::Corrupt { size: 0 }) => "is empty".to_owned(),
        Some(VolumeData::Corrupt { size }) => format!("cannot be parsed ({size} bytes)"),
        _ => "is missing".to_owned(),
    };
    draft.fact(format!("{} {what}", safe_path(&draft.path)), Source::file("kubelet's directory"));
    if suspect.pod.before_boot {
        draft.fact(
            "the pod's containers were started before the node's last boot, and none since",
            Source::file("kubelet's directory"),
        );
        if !suspect.is_going() {
            draft.doubt("whether the pod is to be deleted, or cannot start again");
        }
    }
    draft.explanation = "kubelet's file about the volume is missing or damaged (by an unclean \
        shutdown or a clean-up by hand), so kubelet can neither find the driver nor name the \
        volume to unpublish: it logs `UnmountVolume.NewUnmounter failed` and makes no call."
        .into();
    let directory: &Path = &suspect.volume.path;
    let here = suspect.pod.seen_by;
    let here = here.map_or(View::OURS, |(pid, at)| View::in_namespace(context, at, pid));
    let of_volume = suspect.volume.file;
    const CLEAR: &str = "remove vol_data.json and empty directories in";
    // A damaged file is of no use, and would keep the directory from being removed.
    let clear = here.on_file(CLEAR, directory, of_volume, |it| {
        format!("rm -f {it}/vol_data.json && find {it} -depth -type d -empty -delete")
    });
    let restored = written_again(suspect);
    if let Some(text) = &restored {
        let text = word(text);
        // An existing file may be a link. kubelet reads the file with or without a line break.
        let write =
            |it: &str| format!("rm -f {it}/vol_data.json && printf %s {text} > {it}/vol_data.json");
        let is_there =
            here.on_file("", directory, None, |it| format!("test -e {it}/vol_data.json"));
        let restore =
            here.on_file("write kubelet's vol_data.json again in", directory, of_volume, write);
        draft.remedy(
            match is_there.line() {
                Ok(line) => restore.verified_by(format!("sleep 10; ! {}", line.text)),
                Err(_) => restore,
            },
            "low: the file is rebuilt from the PersistentVolume, as kubelet wrote it; kubelet \
             reads it at its next attempt, and has the driver unpublish the volume",
        );
    }
    match suspect.volume.mounts.as_slice() {
        [] => {
            draft.remedy(clear, "low: removes only the useless file and empty directories");
        }
        [mount] => {
            let view = View::in_namespace(context, mount.namespace, mount.pid);
            let umount = view.on_mount("umount", &mount.point, Some(mount.id));
            let does = view.says("remove vol_data.json after unmounting", &mount.point);
            draft.remedy(umount.then(&clear).does(does), UMOUNT_RISK);
        }
        _ => umount(context, draft, suspect, UMOUNT_RISK),
    }
    if restored.is_some() {
        draft.advice(
            "restart kubelet if the rewritten file stays: a kubelet that was started after the \
             loss searches for volumes only at its start",
            "low: containers keep running",
        );
    } else if !suspect.volume.mounts.is_empty() {
        draft.advice(
            "then restart kubelet: a kubelet that has seen the volume mounted requires the file \
             until it is restarted",
            "low: containers keep running",
        );
    }
    draft.rule_out(
        ids::ORPHANED_POD_DIR,
        "kubelet does not try to remove the pod's directory, as it does for a pod that the API \
         server no longer knows",
    );
    draft.rule_out(ids::CSI_DRIVER_NOT_REGISTERED, "kubelet fails before it looks up the driver");
}

/// The content of kubelet's file, derived from the PersistentVolume (pkg/volume/csi, `NewMounter`); `None` if the API
/// server did not name the PersistentVolume.
fn written_again(suspect: &Suspect<'_>) -> Option<String> {
    let (record, volume) = suspect.record.zip(suspect.volume.target.volume.as_ref())?;
    let bound = claim::of_volume(record, volume)?.bound.as_ref()?;
    let (csi, node) = bound.csi.as_ref().zip(record.node.as_ref())?;
    let data = serde_json::json!({
        "attachmentID": csi.attachment,
        "driverName": csi.driver,
        "nodeName": node,
        "specVolID": bound.name,
        "volumeHandle": csi.handle,
        "volumeLifecycleMode": "Persistent",
    });
    Some(data.to_string())
}

pub(crate) fn not_attempted(_context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.lacks("whether the pod is to be deleted");
    let registration = suspect.volume.csi.as_ref().map(|csi| csi.registration);
    if matches!(registration, Some(Registration::Absent | Registration::Deaf)) {
        csi_volume::driver::does_not_listen(draft, suspect);
    }
    if !suspect.kubelet_runs {
        draft.fact("no kubelet runs on this node", Source::proc("/proc"));
    }
    draft.explanation = "The pod's containers have ended, its volumes are still mounted, and no \
        component tries to unmount them. No system call fails: kubelet may not know that the pod \
        is to be deleted (is it being deleted at all?), may wait for something else of the pod, \
        or may not run. Check the pod's record (deletionTimestamp, finalizers), and kubelet's log \
        for the pod's UID."
        .into();
    let uid = word(&suspect.pod.uid);
    let grep = format!("journalctl -u kubelet --since -10min | grep {uid}");
    draft.remedy(Step::new("show what kubelet's log says about the pod", grep), "none");
}

/// The server of a CSI driver's volume is gone, and the driver has not unmounted it.
pub(super) fn below_driver(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    driver::listens(draft, suspect);
    draft.fact("statx(2) of it fails with ENOTCONN", Source::Look("statx"));
    draft.explanation = "The process that served this FUSE volume has ended, and the mount is \
        still there. stat(2) of it fails with ENOTCONN; many drivers call stat(2) before they \
        unmount, and fail there. Unmounting can lose nothing more."
        .into();
    umount(
        context,
        draft,
        suspect,
        "low: nothing behind the mount can be reached. The driver does not notice the unmount, so \
         its node-wide mount may have to be unmounted, too",
    );
    dead_fuse::tell_apart(draft);
    let names_it = |text: &str| text.contains("transport endpoint is not connected");
    if !suspect.said.is_some_and(|(_, said)| names_it(&said.text)) {
        draft.doubt("whether the driver fails because of that: its answer is not known");
    }
}
