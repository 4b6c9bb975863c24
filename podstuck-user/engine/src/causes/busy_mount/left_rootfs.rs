//! A root file system that stays mounted after its container has ended, given who holds it.

use super::causes::SHIM_ROOTFS_BUSY;
use crate::{
    causes::{
        busy_mount::left_rootfs_tracker::Left,
        shared::holders::{free, tell},
    },
    command::View,
    ids,
    model::{
        evidence::Source,
        finding::Severity,
        holder::{Holder, How, Snapshot},
        identity::Component,
        path::{safe, safe_path},
    },
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// `None` where nobody makes an unmount fail: then the shim is late, and nothing is wrong with the mount.
pub(crate) fn draft(context: &Context<'_>, left: &Left, taken: &Snapshot) -> Option<Draft> {
    let culprits = taken.culprits().filter(|holder| holder.component != Some(Component::Kubelet));
    let found: Vec<&Holder> = culprits.collect();
    if found.is_empty() {
        return None;
    }
    let rootfs = &left.rootfs;
    let point = &rootfs.mount.point;
    let mut draft = Draft::about_state(
        TrackerId::LeftRootfs,
        &SHIM_ROOTFS_BUSY,
        rootfs.target_id,
        rootfs.target.clone(),
        point.clone(),
        taken.at,
    );
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    draft.first = left.since;
    let container = safe(rootfs.container.as_bytes());
    draft.fact_since(
        format!("container {container} has ended: its first process is gone"),
        Source::proc("init.pid of its bundle, /proc"),
        left.since,
    );
    draft.fact(
        format!("its root file system is still mounted at {}", safe_path(point)),
        Source::mountinfo(&rootfs.mount.source),
    );
    if let Some(said) = &left.said {
        let who = said.component.name();
        let text = format!("{who} says, last at {:.0}: {}", said.at, said.text);
        draft.fact_since(text, Source::Log(said.source.clone()), context.when(said.at));
    }
    tell(&mut draft, &found);
    draft.explanation = "Somebody uses the root file system of a container that has ended. The kernel \
        refuses every unmount of it until they let go: its shim tries 50 times, gives up, and is asked \
        again when kubelet asks the runtime to remove the container."
        .into();
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let view = View::in_namespace(context, rootfs.mount.namespace, rootfs.mount.pid);
    free(&mut draft, view, &nested, &users);
    draft.rule_out(
        ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
        "the mount itself is still there, and is in use",
    );
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "what keeps the mount is known");
    if !found.iter().any(|holder| holder.exact) {
        draft.doubt("which mount it is: only the text of a path speaks for it");
    }
    Some(draft)
}
