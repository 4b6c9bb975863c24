//! Each fault that shows in what does not happen: what it means and what to do.

use std::path::Path;

use crate::{
    causes::csi_volume::{self, verdict::Suspect},
    causes::shared::claim,
    command::{Step, View},
    ids,
    model::{
        csi::{Registration, VolumeData},
        evidence::Source,
        path::safe_path,
        shell::word,
    },
    tracker::Context,
    verdict::Draft,
};

pub(crate) fn umount(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>, risk: &str) {
    let mut mounts: Vec<_> = suspect.volume.mounts.iter().collect();
    // Another kubelet on this machine may see a copy, which is not what holds the pod.
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

pub(crate) const UMOUNT_RISK: &str = "low while no process uses the mount; what is mounted stays intact. The \
    driver is not told, so its node-wide mount and the attachment may have to be cleaned up by hand. \
    Never `rm -rf` below it: that deletes the data behind the mount";

pub(crate) fn no_data(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let what = match suspect.volume.csi.as_ref().map(|csi| &csi.data) {
        Some(VolumeData::Corrupt { size: 0 }) => "is empty".to_owned(),
        Some(VolumeData::Corrupt { size }) => format!("cannot be understood ({size} bytes)"),
        _ => "is missing".to_owned(),
    };
    draft.fact(format!("{} {what}", safe_path(&draft.path)), Source::file("kubelet's directory"));
    if suspect.pod.before_boot {
        draft.fact(
            "the pod's containers were started before the node was booted, and none since",
            Source::file("kubelet's directory"),
        );
        if !suspect.is_going() {
            draft.doubt("whether the pod is to go, or cannot begin again");
        }
    }
    draft.explanation = "kubelet lost what it wrote about the volume (an unclean shutdown, a \
        clean-up by hand), so it can neither find the driver nor tell it what to unpublish: it \
        fails with `UnmountVolume.NewUnmounter failed` in its log and makes no call."
        .into();
    let directory: &Path = &suspect.volume.path;
    let here = suspect.pod.seen_by;
    let here = here.map_or(View::OURS, |(pid, at)| View::in_namespace(context, at, pid));
    let of_volume = suspect.volume.file;
    const CLEAR: &str = "remove vol_data.json and empty directories in";
    // What is left of the file says nothing, and would keep the directory.
    let clear = here.on_file(CLEAR, directory, of_volume, |it| {
        format!("rm -f {it}/vol_data.json && find {it} -depth -type d -empty -delete")
    });
    let restored = written_again(suspect);
    if let Some(text) = &restored {
        let text = word(text);
        // One that is there may be a link. kubelet reads it with or without a line break.
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
            "low: the file is as kubelet wrote it, by the PersistentVolume; kubelet finds it at its next \
             attempt, and has the driver unpublish the volume",
        );
    }
    match suspect.volume.mounts.as_slice() {
        [] => {
            draft.remedy(
                clear,
                "low: removes the file that says nothing, and empty directories only",
            );
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
            "restart kubelet if the file that was written again stays: one that was started after the loss \
             looks for volumes when it is started, and not again",
            "low: containers go on",
        );
    } else if !suspect.volume.mounts.is_empty() {
        draft.advice(
            "then restart kubelet: one that has seen the volume mounted asks for its file until it is \
             started anew",
            "low: containers go on",
        );
    }
    draft.rule_out(
        ids::ORPHANED_POD_DIR,
        "kubelet does not try to remove the pod's directory, as it does for a pod that the API \
         server no longer knows",
    );
    draft.rule_out(
        ids::CSI_DRIVER_NOT_REGISTERED,
        "kubelet fails before it asks which driver it was",
    );
}

/// What stood in kubelet's file, by the PersistentVolume (pkg/volume/csi, `NewMounter`); `None` where the API
/// server did not say which one it is.
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
    draft.explanation = "The pod's containers have ended, its volumes are still mounted, and nobody \
        tries to unmount them. The blocker is no failing system call: kubelet may not know that the \
        pod is to go (is it being deleted at all?), may wait for something else of the pod, or may \
        not run. Look at the pod's record (deletionTimestamp, finalizers) and at kubelet's log for \
        its UID."
        .into();
    let uid = word(&suspect.pod.uid);
    let grep = format!("journalctl -u kubelet --since -10min | grep {uid}");
    draft.remedy(Step::new("show what kubelet's log says of the pod", grep), "none");
}
