//! A device that is kept busy after its unmount.

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    causes::{
        device::pinned_tracker::{Unmounted, key},
        shared::holders::{TOLD, describe, release},
    },
    command::View,
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        holder::{Holder, How, Snapshot},
        path::safe_path,
        remedy::Remedy,
    },
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// A device that another mount namespace keeps.
pub(crate) static LEAKED_SUPERBLOCK: Cause = Cause {
    id: ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
    title: "the unmount succeeded, and another mount namespace keeps the device busy; who, is named",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "Another mount of the same file system lives on in a mount namespace that does not \
        receive unmounts from the node, or an open file on one that was detached there. The \
        superblock lives as long, so that the device stays open: detaching it, `rbd unmap` or an \
        exclusive mount fails with EBUSY. The pod goes; whoever needs the volume next waits.",
    confirmed_by: &[
        "umount2 of the volume succeeded",
        "its device is mounted neither there nor on the node any more",
        "its device is still mounted or open in another mount namespace",
    ],
    log: log("kubelet", "rbd: unmap failed: (16) Device or resource busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "the unmount itself succeeded"),
        like(ids::SHIM_ROOTFS_BUSY, "the unmount itself succeeded"),
        like(ids::DEVICE_STILL_REFERENCED, "kubelet's unmount was made, and succeeded"),
    ],
    ways_out: &[way(
        "`umount` there, or restart it",
        "low: fails where somebody in there uses it; whoever looks for the volume there does not \
         find it any more",
    )],
    field: &["kubernetes#104785", "rook#7787", "ceph-csi#3873"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/super.c, deactivate_super", "linux fs/namespace.c, detach_mounts"],
};

pub(crate) fn draft(context: &Context<'_>, left: &Unmounted, taken: &Snapshot) -> Draft {
    let Unmounted { op, mount, .. } = left;
    let mut draft = Draft::about(TrackerId::PinnedDevice, &LEAKED_SUPERBLOCK, op);
    draft.target_id = key(mount.device);
    // The pod does not wait for it; whoever needs the device next does.
    draft.blocks_deletion = Some(false);
    draft.last = taken.at;
    draft.fact_since(
        format!("umount2 of {} succeeded", safe_path(&op.path)),
        Source::Probe,
        op.end,
    );
    draft.fact(
        format!(
            "{} is mounted neither in that mount namespace nor in the node's any more",
            mount.describe()
        ),
        Source::mountinfo("/proc/*/mountinfo"),
    );
    for holder in taken.holders.iter().take(TOLD) {
        draft.fact(describe(holder), Source::proc(&holder.source));
    }
    draft.explanation = format!(
        "Other mounts of the same file system live on, and with them its superblock: {} stays open, \
         so that detaching the volume, `rbd unmap`, or mounting it exclusively fails with EBUSY. They \
         are in mount namespaces that do not receive unmounts from the node.",
        mount.source
    );
    for holder in taken.holders.iter().filter(|holder| holder.how == How::Mount).take(4) {
        draft.remedies.extend(unmount_there(context, holder));
    }
    let others: Vec<&Holder> = taken.holders.iter().collect();
    draft.remedies.extend(release(View::OURS, &others, "the device"));
    for other in
        [ids::VOLUME_HELD_BY_HOST_PROCESS, ids::SHIM_ROOTFS_BUSY, ids::DEVICE_STILL_REFERENCED]
    {
        draft.rule_out(other, "the unmount itself succeeded");
    }
    draft
}

/// An unmount in the namespace that still has it.
fn unmount_there(context: &Context<'_>, holder: &Holder) -> Option<Remedy> {
    let view = View::in_namespace(context, holder.mount.namespace?, holder.pid?);
    let step = view
        .on_mount("umount", &holder.mount.point.0, Some(holder.mount.id))
        .so(", which keeps the device");
    Some(step.remedy(
        "low: fails where somebody in there still uses it; whoever looks for the volume in \
               that namespace does not find it any more",
    ))
}
