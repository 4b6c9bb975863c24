//! A volume that is still mounted after its driver reported success: seen by a failed removal, or because no process
//! unmounts it.

use crate::{
    cause::Cause,
    causes::csi_volume::{
        self,
        causes::{LOST_PUBLISH_STATE, STACKED_MOUNTS, WRONG_NAMESPACE},
        verdict::{Suspect, UMOUNT_RISK, umount},
    },
    ids,
    model::{
        csi::{DriverProcess, Reach},
        evidence::Source,
        said::Said,
        time::Monotonic,
    },
    tracker::Context,
    verdict::{Draft, times},
};

pub(super) const UNMOUNT_RISK: &str = "low once all containers of the pod have ended and no \
    process uses the mount; never run `rm -rf` below it: that deletes the data behind the mount";

/// The cause, by the number of mounts on the path and by whether a successful unmount was called in a namespace where
/// the path is still mounted (`None` without a successful unmount).
pub(crate) fn cause(mounts: usize, unmounted_here: Option<bool>) -> &'static Cause {
    match unmounted_here {
        _ if mounts > 1 => &STACKED_MOUNTS,
        Some(true) => &STACKED_MOUNTS,
        Some(false) => &WRONG_NAMESPACE,
        None => &LOST_PUBLISH_STATE,
    }
}

/// The explanation of a removal that fails for this cause.
pub(crate) fn words(cause: &Cause) -> Option<&'static str> {
    let words = [
        (
            &LOST_PUBLISH_STATE,
            "The CSI driver reported success to kubelet without unmounting the volume, most \
             likely because the driver was restarted and forgot what it had published. kubelet \
             then tries to remove a directory that is still a mount point. The driver's answer is \
             not visible from here; its log has it (`not published`, `nothing to do`).",
        ),
        (
            &STACKED_MOUNTS,
            "The volume was mounted more than once on the same path, and one unmount removes only \
             the topmost mount. Repeat the unmount until it fails with EINVAL.",
        ),
        (&WRONG_NAMESPACE, UNMOUNTED_ELSEWHERE),
    ];
    words.iter().find(|(known, _)| **known == *cause).map(|(_, words)| *words)
}

/// Rules out the look-alikes when a removal fails. `since` is when unmounts began to be traced, if the removal was
/// seen; `reach` is how far the driver's unmounts propagate, by its mounts.
pub(crate) fn tell_apart(draft: &mut Draft, since: Option<Monotonic>, reach: Option<Reach>) {
    if *draft.cause == LOST_PUBLISH_STATE {
        if since.is_some() {
            let fact = "there is one mount on the path, and none was unmounted";
            draft.rule_out_since(ids::STACKED_MOUNTS, fact, since);
            let fact = "no process unmounted it in any namespace";
            draft.rule_out_since(ids::CSI_UMOUNT_WRONG_NAMESPACE, fact, since);
        } else {
            // Another mount may have been on top before the watch began; the remedy is the same.
            draft.suffices_beside(ids::STACKED_MOUNTS);
            if reach == Some(Reach::Whole) {
                draft.suffices_beside(ids::CSI_UMOUNT_WRONG_NAMESPACE);
            }
        }
        draft.rule_out(
            ids::CSI_DRIVER_NOT_REGISTERED,
            "kubelet does not touch the path if the driver is not registered",
        );
        draft.rule_out(ids::DATA_UNDER_MOUNTPOINT, "the path is mounted");
        let asked = "kubelet touches the path only after the driver has reported success";
        draft.rule_out(ids::CSI_DRIVER_DOWN, asked);
        draft.rule_out(ids::CSI_DRIVER_ERROR, asked);
        draft.rule_out(ids::CSI_UNPUBLISH_HUNG_LOCK, "kubelet received an answer, and retries");
        draft.rule_out(ids::KUBELET_RESTART_LOST_VOLUME, "kubelet tries to remove this volume");
    }
    if *draft.cause == STACKED_MOUNTS {
        let fact = "the path is still mounted in the mount namespace of the removal";
        draft.rule_out(ids::CSI_UMOUNT_WRONG_NAMESPACE, fact);
        draft.rule_out(
            ids::CSI_DRIVER_LOST_PUBLISH_STATE,
            "the volume is mounted more than once, or is still mounted after an unmount",
        );
    }
    if *draft.cause == WRONG_NAMESPACE {
        draft.rule_out(
            ids::STACKED_MOUNTS,
            "one mount is on the path, and the driver unmounts in another namespace",
        );
        let fact = "the driver did unmount the volume, in its own namespace";
        draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, fact);
    }
}

/// States whether the driver's unmounts propagate to kubelet, by its mounts.
pub(crate) fn tell_reach(draft: &mut Draft, driver: &DriverProcess) {
    let fact = match driver.reach {
        Reach::Whole => "unmounts in the driver's mount namespace propagate to kubelet",
        Reach::Cut { mounted: false } => {
            "in the driver's mount namespace the volume is not mounted, and the mount that \
             contains its path is not shared: unmounts there do not propagate to kubelet"
        }
        Reach::Cut { mounted: true } | Reach::Unknown => return,
    };
    draft.fact(fact, Source::mountinfo(format!("/proc/{}/mountinfo", driver.pid)));
}

/// The explanation of `csi-umount-wrong-namespace`.
pub(crate) const UNMOUNTED_ELSEWHERE: &str = "The driver unmounted the volume in its own mount \
    namespace, and the unmount did not propagate to kubelet: the driver's container lacks \
    `mountPropagation: Bidirectional`, or kubelet's directory is not a shared mount (`findmnt -o \
    TARGET,PROPAGATION`).";

pub(crate) fn forgotten(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    csi_volume::driver::listens(draft, suspect);
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.explanation = match suspect.torn_down {
        Some(_) => {
            "kubelet asked the CSI driver to unpublish this volume, the driver reported success, \
             and the volume is still mounted. Most likely the driver was restarted and forgot \
             what it had published, or publishes a volume twice and unpublishes it once, or one \
             of its helpers unmounted the volume in a mount namespace that no other process sees. \
             The driver's log says which (`not published`, `nothing to do`). kubelet since 1.30 \
             sees the mount, and waits without an error in its log."
        }
        None => {
            "The CSI driver is registered, kubelet has taken down the rest of the pod, and no \
             process unmounts this volume. Most likely the driver was restarted, forgot what it \
             had published, and reports success. kubelet since 1.30 sees that the path is still \
             mounted, and waits without an error in its log. The driver's answer is not visible \
             from here; its log has it (`not published`, `nothing to do`, or an error that \
             kubelet's log repeats)."
        }
    }
    .into();
    if suspect.is_registered() {
        draft.rule_out(
            ids::CSI_DRIVER_NOT_REGISTERED,
            "a process listens on the driver's registration socket",
        );
    }
    draft.rule_out(ids::DATA_UNDER_MOUNTPOINT, "the path is mounted");
    if let Some((since, said)) = suspect.torn_down {
        answered(draft, since, said);
    }
    if let [_] = suspect.volume.mounts.as_slice()
        && !suspect.is_watched()
    {
        draft.rule_out(ids::STACKED_MOUNTS, "there is one mount on the path");
    }
    let since = Some(suspect.since);
    // An observation is stronger than an absent attempt, and does not change later.
    if let Some(at) = suspect.unheld {
        let fact = "no process was found that uses it, and nothing is mounted on it";
        draft.rule_out_since(ids::VOLUME_HELD_BY_HOST_PROCESS, fact, Some(at));
    }
    // While an attempt may still come, its outcome is not known.
    if suspect.outlasts_pauses() {
        draft.rule_out_since(
            ids::VOLUME_HELD_BY_HOST_PROCESS,
            "umount2 would have failed with EBUSY; no process called it",
            since,
        );
    }
    let process = suspect.volume.driver();
    if let Some(process) = process {
        draft.rule_out(ids::CSI_DRIVER_DOWN, "a process listens on the socket that kubelet calls");
        draft.rule_out(
            ids::CSI_UNPUBLISH_HUNG_LOCK,
            "no call on the volume hangs, and the driver's process runs",
        );
        tell_reach(draft, process);
        if process.reach == Reach::Whole {
            // A helper of the driver may have had a namespace that is gone; the remedy is the same.
            draft.suffices_beside(ids::CSI_UMOUNT_WRONG_NAMESPACE);
        }
    }
    if let Some((since, log)) = suspect.no_error_since {
        let fact = format!("the {log} has no error about the volume");
        draft.fact_since(fact.clone(), Source::Log(log.to_owned()), since);
        // An error in the driver's own log since then contradicts it.
        if suspect.driver_says.is_none_or(|(at, _)| at < since) {
            draft.rule_out_since(ids::CSI_DRIVER_ERROR, fact, Some(since));
        }
        if suspect.at.since(since) >= suspect.threshold {
            let fact = "kubelet logs each unmount that fails, and its log has none";
            draft.rule_out_since(ids::VOLUME_HELD_BY_HOST_PROCESS, fact, Some(since));
        }
    }
    if suspect.is_watched() {
        draft.rule_out_since(
            ids::CSI_UMOUNT_WRONG_NAMESPACE,
            "no process unmounted it in any namespace",
            since,
        );
        draft.rule_out_since(ids::STACKED_MOUNTS, "no process unmounted it even once", since);
    }
    if suspect.is_taken_down() {
        draft.rule_out(ids::KUBELET_RESTART_LOST_VOLUME, "kubelet takes down the rest of the pod");
    }
}

/// Rules out the causes that a successful answer of the driver contradicts.
fn answered(draft: &mut Draft, since: Monotonic, said: &Said) {
    let well = "the driver has reported success";
    for other in [
        ids::VOLUME_HELD_BY_HOST_PROCESS,
        ids::CSI_DRIVER_NOT_REGISTERED,
        ids::CSI_DRIVER_DOWN,
        ids::CSI_DRIVER_ERROR,
        ids::CSI_UNPUBLISH_HUNG_LOCK,
    ] {
        draft.rule_out_since(other, well, Some(since));
    }
    let fact = format!("kubelet has asked the driver to unpublish it, by the {}", said.source);
    draft.rule_out_since(ids::KUBELET_RESTART_LOST_VOLUME, fact, Some(since));
}

/// The driver's unmounts do not propagate, by its mounts.
pub(crate) fn cut_off(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    csi_volume::driver::listens(draft, suspect);
    let process = suspect.volume.driver();
    if let Some(process) = process {
        tell_reach(draft, process);
    }
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.explanation = UNMOUNTED_ELSEWHERE.into();
    draft.rule_out(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "the driver's unmounts do not propagate to kubelet, whatever it remembers",
    );
    draft.rule_out(
        ids::STACKED_MOUNTS,
        "the driver unmounts in another namespace than the one that has the mount",
    );
    if suspect.torn_down.is_none() {
        draft.doubt(
            "whether kubelet called the driver, and the driver unmounted the volume in its own \
             namespace",
        );
    }
}

pub(crate) fn stacked(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let left = suspect.volume.mounts.len();
    draft.fact(format!("umount2 on it succeeded {}", times(suspect.tried.ok)), Source::Probe);
    draft.fact(format!("mounts left on the path: {left}"), Source::mountinfo("mountinfo"));
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.explanation = "The volume was mounted more than once on the same path. An unmount \
        removes only the topmost mount, and no process unmounts the rest. Repeat the unmount \
        until it fails with EINVAL."
        .into();
    draft.rule_out(
        ids::CSI_UMOUNT_WRONG_NAMESPACE,
        "the unmount succeeded in a namespace in which the path is still mounted",
    );
    draft.rule_out(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "the volume was unmounted, but fewer times than it was mounted",
    );
}

pub(crate) fn wrong_namespace(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    if let (Some((_, caller)), Some(mount)) = (suspect.tried.last_ok, suspect.volume.mounts.first())
    {
        draft.fact(format!("umount2 succeeded in mount namespace {caller}"), Source::Probe);
        draft.fact(
            format!("the path is still mounted in mount namespace {}", mount.namespace),
            Source::mountinfo(&mount.source),
        );
    }
    if suspect.volume.mounts.iter().all(|mount| !mount.shared) {
        draft.fact(
            "the mount is not shared: unmounts in other namespaces do not propagate to it",
            Source::mountinfo("mountinfo"),
        );
    }
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.explanation = UNMOUNTED_ELSEWHERE.into();
    draft.rule_out(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "the driver did unmount the volume, in its own namespace",
    );
    draft.rule_out(
        ids::STACKED_MOUNTS,
        "the unmount succeeded in another namespace than the one that has the mount",
    );
}
