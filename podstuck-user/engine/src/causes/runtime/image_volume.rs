//! An image that is mounted as a volume, and that its runtime cannot unmount.

use crate::{
    cause::{Cause, Kind, log, way},
    causes::{
        runtime::says_tracker::Suspect,
        shared::holders::{self, culprits},
    },
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        holder::{Holder, How},
        path::safe_path,
    },
    verdict::Draft,
};

/// The kernel does not unmount what is in use.
pub(crate) static IMAGE_VOLUME_BUSY: Cause = Cause {
    id: ids::IMAGE_VOLUME_BUSY,
    title: "the runtime cannot unmount an image volume: somebody uses it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "containerd 2.1 and later mounts the image of an image volume in a directory of its own, by the pod's \
        sandbox, and unmounts it when the sandbox is stopped. A process outside the pod uses that mount, or something \
        is mounted on it: the unmount fails with EBUSY, the sandbox is not stopped, and kubelet asks again and again. \
        In kubelet's own directory nothing of the volume is left.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says at each attempt that the image volume is busy",
        "a process uses that mount in the runtime's mount namespace, or in one that gets the unmount, too",
    ],
    log: log("containerd", "failed to unmount image volume component ...: device or resource busy"),
    look_alikes: &[],
    ways_out: &[way("end the process that uses it; the runtime's next attempt unmounts it", "")],
    field: &["containerd#14032"],
    tried: &[],
    source: &["containerd internal/cri/server/container_image_mount.go, cleanupImageMounts"],
};

/// What is said of it.
pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.explanation = "The runtime stops the pod's sandbox only when it has unmounted the image that is a volume \
        of the pod, and that is in use. kubelet asks again and again, and does not let the pod go before."
        .into();
    let Some(held) = suspect.held else {
        draft.lacks("who uses the image volume");
        return;
    };
    let point = safe_path(&held.path).into_owned();
    draft.path.clone_from(&held.path);
    match &held.taken.subject {
        Ok(subject) => {
            let fact = format!("{point} is mounted for the runtime: {}", subject.what);
            draft.fact_since(fact, Source::proc("mountinfo"), held.at);
        }
        Err(why) => {
            let fact = format!("{point} is no mount point for the runtime now: {why}");
            draft.fact_since(fact, Source::proc("mountinfo"), held.at);
        }
    }
    let found: Vec<&Holder> = culprits(&held.taken).collect();
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    holders::tell(draft, &found);
    holders::free(draft, held.view, &nested, &users);
    holders::tell_unseen(draft, &held.taken);
    if found.is_empty() {
        draft.fact_since(
            format!("nobody was found who uses {point}"),
            Source::proc("/proc"),
            held.at,
        );
        draft.lacks("who uses the image volume: nobody was found at the last look");
    }
}
