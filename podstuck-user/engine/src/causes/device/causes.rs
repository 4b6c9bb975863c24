//! Causes that keep a block device in use after its unmount.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, TriedWith, absent, like, log, seen, way},
    ids,
    model::diagnosis::Stage,
};

/// A raw block volume that stays mapped.
pub(crate) static BLOCK_VOLUME_IN_USE: Cause = Cause {
    id: ids::RAW_BLOCK_VOLUME_IN_USE,
    title: "a raw block volume (`volumeDevices`) is still mapped; the finding names what uses its device",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod has a raw block volume: no file system is mounted for it, but kubelet and the driver \
        bind the device over a file below `plugins`, and the pod has a link to it. kubelet detaches the loop \
        device that keeps it open, removes the link, unmounts its map, and asks the driver to unpublish. Who \
        has the map open, or a device that is made of it, as by LUKS, LVM or multipath, makes that fail. So does a driver \
        that answers with an error of its own.",
    confirmed_by: &[
        seen(
            "the pod's containers have ended, and the link or a map of the device is left",
            &[Origin::Files, Origin::Mounts],
        ),
        seen(
            "kubelet's log: UnmapVolume failed, and the device is busy, or the driver answers with an error",
            &[Origin::Log],
        ),
        seen("a process, a loop device or a device of the device mapper holds it", &[Origin::Proc]),
    ],
    log: log("kubelet", "UnmapVolume.UnmapBlockVolume failed"),
    look_alikes: &[],
    ways_out: &[
        way("stop who holds the device, or close what is made of it", "the finding says who"),
        way("unmount the driver's map by hand, where the driver fails and no process holds it", ""),
        way("look into kubelet's and the driver's log", ""),
    ],
    field: &["vsphere-csi-driver#338"],
    tried: &[TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/util/util.go, UnmapBlockVolume",
        "kubernetes pkg/volume/csi/csi_block.go",
    ],
};

/// A device that another mount namespace keeps.
pub(crate) static LEAKED_SUPERBLOCK: Cause = Cause {
    id: ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
    title: "the unmount succeeded, but another mount namespace keeps the device busy",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "Another mount of the same file system lives on in a mount namespace that does not \
        receive unmounts from the node, or an open file on one that was detached there. The \
        superblock lives as long, so that the device stays open: detaching it, `rbd unmap` or an \
        exclusive mount fails with EBUSY. The pod goes; the next user of the volume waits.",
    confirmed_by: &[
        seen("umount2 of the volume succeeded", &[Origin::Calls, Origin::Log]),
        absent("its device is mounted neither there nor on the node any more", Feed::Node),
        seen(
            "its device is still mounted or open in another mount namespace",
            &[Origin::Mounts, Origin::Proc],
        ),
    ],
    log: log("kubelet", "rbd: unmap failed: (16) Device or resource busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "the unmount itself succeeded"),
        like(ids::SHIM_ROOTFS_BUSY, "the unmount itself succeeded"),
        like(ids::DEVICE_STILL_REFERENCED, "kubelet's unmount was made, and succeeded"),
    ],
    ways_out: &[way(
        "`umount` there, or restart it",
        "low: fails while a process in there uses it; processes in there no longer find the \
         volume",
    )],
    field: &["kubernetes#104785", "rook#7787", "ceph-csi#3873"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/super.c, deactivate_super", "linux fs/namespace.c, detach_mounts"],
};

/// A device that is still referenced.
pub(crate) static STILL_REFERENCED: Cause = Cause {
    id: ids::DEVICE_STILL_REFERENCED,
    title: "kubelet does not unstage the volume, because something else still refers to its \
        device; holds up no pod",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "When no pod of the node uses a volume any more, kubelet unmounts what it has mounted for all of them \
        (`globalmount`) and lets the device go. Before that it looks whether the device is mounted anywhere else in \
        its view, or mapped for another pod, and refuses while it is; and afterwards whether anything has the device \
        open, as multipath, LUKS or a mount in another namespace does. The pod is gone by then, but the volume is \
        not detached, and a pod on another node may wait for it.",
    confirmed_by: &[
        seen(
            "kubelet's log: still mounted by other references, still referenced from other Pods, or in use when \
         it was no longer expected to be in use",
            &[Origin::Log],
        ),
        seen(
            "the device is mounted elsewhere with the same root directory, or still mapped for a pod",
            &[Origin::Mounts, Origin::Files, Origin::Proc],
        ),
    ],
    log: log("kubelet", "is still mounted by other references"),
    look_alikes: &[like(
        ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
        "the device is still mounted where kubelet sees it, so that kubelet does not unmount it",
    )],
    ways_out: &[
        way(
            "`umount` the other mount",
            "low if the process that mounted it has ended: it fails while the mount is in use",
        ),
        way(
            "close what is made of the device (LUKS, LVM, multipath)",
            "when no process uses it any more",
        ),
    ],
    field: &["kubernetes#122342"],
    tried: &[],
    source: &[
        "kubernetes pkg/volume/util/operationexecutor/operation_generator.go, GenerateUnmountDeviceFunc",
        "kubernetes pkg/volume/util/operationexecutor/operation_generator.go, GenerateUnmapDeviceFunc",
        "kubernetes/kubernetes#122342",
    ],
};
