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
    meaning: "The pod has a raw block volume: no file system is mounted for it, but kubelet and \
        the driver bind-mount the device over a file below `plugins` (the map), and the pod has a \
        link to it. kubelet detaches the loop device that keeps it open, removes the link, \
        unmounts its map, and asks the driver to unpublish. That fails if a process has the map \
        open, if another device is built on it (LUKS, LVM, multipath), or if the driver answers \
        with an error of its own.",
    confirmed_by: &[
        seen(
            "the pod's containers have ended, and the link or a map of the device is left",
            &[Origin::Files, Origin::Mounts],
        ),
        seen(
            "kubelet's log has a failed UnmapVolume, and the device is busy or the driver answers \
             with an error",
            &[Origin::Log],
        ),
        seen("a process, a loop device or a device-mapper device uses it", &[Origin::Proc]),
    ],
    log: log("kubelet", "UnmapVolume.UnmapBlockVolume failed"),
    look_alikes: &[],
    ways_out: &[
        way(
            "stop the process that uses the device, or close the device that is built on it",
            "the finding names it",
        ),
        way("unmount the driver's map by hand if the driver fails and no process uses it", ""),
        way("read the logs of kubelet and the driver", ""),
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
    meaning: "Another mount of the same file system remains in a mount namespace to which the \
        node's unmounts do not propagate, or a file is still open on a mount that was detached \
        there. This keeps the superblock, and with it the device stays open: detaching it, `rbd \
        unmap` or an exclusive mount fails with EBUSY. The pod is deleted; the next user of the \
        volume waits.",
    confirmed_by: &[
        seen("umount2 of the volume succeeded", &[Origin::Calls, Origin::Log]),
        absent(
            "its device is no longer mounted in that mount namespace or on the node",
            Feed::Node,
        ),
        seen(
            "its device is still mounted or open in another mount namespace",
            &[Origin::Mounts, Origin::Proc],
        ),
    ],
    log: log("kubelet", "rbd: unmap failed: (16) Device or resource busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "the unmount itself succeeded"),
        like(ids::SHIM_ROOTFS_BUSY, "the unmount itself succeeded"),
        like(ids::DEVICE_STILL_REFERENCED, "kubelet did unmount, and the unmount succeeded"),
    ],
    ways_out: &[way(
        "`umount` in that namespace, or restart its processes",
        "low: fails while a process in that namespace uses it; processes there no longer find the \
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
        device; blocks no pod",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "When no pod of the node uses a volume any more, kubelet unmounts its mount for all \
        of them (`globalmount`) and releases the device. kubelet refuses to unmount while the \
        device is mounted elsewhere in its mount namespace, or mapped for another pod. After the \
        unmount, it refuses to release the device while multipath, LUKS or a mount in another \
        namespace has it open. The pod is gone by then, but the volume is not detached, and a pod \
        on another node may wait for it.",
    confirmed_by: &[
        seen(
            "kubelet's log says: still mounted by other references, still referenced from other \
             Pods, or in use when it was no longer expected to be in use",
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
        "the device is still mounted in kubelet's mount namespace, so kubelet does not unmount it",
    )],
    ways_out: &[
        way(
            "`umount` the other mount",
            "low if the process that mounted it has ended; the unmount fails while the mount is \
             in use",
        ),
        way(
            "close the device that is built on it (LUKS, LVM, multipath)",
            "only when no process uses it any more",
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
