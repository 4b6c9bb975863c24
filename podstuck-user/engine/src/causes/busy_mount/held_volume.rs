//! A volume that somebody uses, before anybody was seen to fail because of that.

use super::in_use::{cause, explanation};
use crate::{
    causes::{
        busy_mount::held_volume_tracker::Looked,
        shared::holders::{free, tell},
    },
    command::View,
    model::{
        evidence::Source,
        finding::Severity,
        holder::{Holder, How, Snapshot},
        path::safe_path,
        time::Monotonic,
    },
    tracker::{Context, TrackerId},
    verdict::Draft,
};

pub(crate) fn draft(
    context: &Context<'_>,
    looked: &Looked,
    since: Monotonic,
    taken: &Snapshot,
    found: &[&Holder],
) -> Draft {
    let (pod, volume) = (&looked.pod, &looked.volume);
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let cause = cause(false, &nested, &users);
    let (target_id, target) = (volume.target_id, volume.target.clone());
    let mount = looked.mount();
    let point = mount.map_or(&volume.path, |mount| &mount.point);
    let mut draft = Draft::about_state(
        TrackerId::HeldVolume,
        cause,
        target_id,
        target,
        point.clone(),
        taken.at,
    );
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    draft.first = since;
    let held = taken.at.since(since).as_secs();
    draft.fact_since(
        format!("{} has been in use at each look for {held} s", safe_path(point)),
        Source::proc("/proc"),
        since,
    );
    tell(&mut draft, found);
    draft.explanation = explanation(cause, &users);
    if pod.populated == Some(false) {
        draft.explanation += " kubelet unmounts the pod's volumes now.";
    } else {
        // They hold the pod first, and whoever is freed of them comes to this.
        draft.is_later = true;
        draft.explanation +=
            " kubelet has not come to the volume yet: it waits for the pod's containers before.";
    }
    let view =
        mount.map_or(View::OURS, |mount| View::in_namespace(context, mount.namespace, mount.pid));
    free(&mut draft, view, &nested, &users);
    // In use is in use, whatever else there is.
    for other in cause.look_alikes {
        draft.suffices_beside(other.cause);
    }
    if !found.iter().any(|holder| holder.exact) {
        draft.doubt("which mount it is: only the text of a path speaks for it");
    }
    draft
}
