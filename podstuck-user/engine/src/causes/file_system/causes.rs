//! Causes of a file system that fails as a whole.

use crate::cause::Origin;
use crate::{
    cause::{Cause, Kind, TriedWith, like, log, seen, way},
    ids,
    model::diagnosis::Stage,
};

/// EROFS.
pub(crate) static READ_ONLY: Cause = Cause {
    id: ids::NODE_FS_READONLY,
    title: "the file system below the pod has become read-only",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "Nothing on the file system can be removed, so no pod on it can be deleted. The file \
        system was mounted read-only, or the kernel made it read-only after a disk error \
        (`errors=remount-ro`). The kernel checks this before anything else, so there may be \
        further reasons.",
    confirmed_by: &[
        seen("removals fail with EROFS", &[Origin::Calls, Origin::Log]),
        seen(
            "mountinfo shows `ro` for the mount or the file system that the object lies on",
            &[Origin::Mounts],
        ),
    ],
    log: log("the kernel", "Remounting filesystem read-only"),
    look_alikes: &[
        like(
            ids::NESTED_MOUNT_UNDER_VOLUME,
            "the read-only mount is not inside the pod's directory",
        ),
        like(ids::MOUNT_OVER_VOLUME, "the read-only mount is not inside the pod's directory"),
        like(ids::DEVICE_IO_ERROR, "the call fails with EROFS, not with an error of the device"),
        like(ids::NFS_STALE_HANDLE, "the call fails with EROFS, not with ESTALE"),
        like(ids::DISK_FULL_RUNTIME, "the call fails with EROFS, not with ENOSPC"),
        like(
            ids::SUBVOLUME_READONLY,
            "mountinfo shows `ro`, which it does not for the property of a subvolume",
        ),
    ],
    ways_out: &[way(
        "repair the disk",
        "`mount -o remount,rw` only if no disk error made it read-only: writing to a damaged file \
         system damages it further",
    )],
    field: &["runc#4518"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/namespace.c, mnt_want_write", "linux fs/ext4/super.c, ext4_handle_error"],
};

/// EROFS, on a file system that can be written.
pub(crate) static READ_ONLY_SUBVOLUME: Cause = Cause {
    id: ids::SUBVOLUME_READONLY,
    title: "a read-only btrfs subvolume lies in the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A program in the pod made a subvolume of btrfs or a snapshot in its volume, and its \
        property `ro` is set, as for `btrfs send`. Nothing in it can be removed, and every attempt \
        fails at the same place. The file system itself can be written, and mountinfo does not \
        show the property.",
    confirmed_by: &[
        seen("removals fail with EROFS", &[Origin::Calls, Origin::Log]),
        seen(
            "the mount and the file system of the object can be written, and they are btrfs",
            &[Origin::Mounts],
        ),
        seen(
            "access(2) for writing fails with EROFS in the object's directory, and the root \
             directory of its subvolume is known",
            &[Origin::Look],
        ),
    ],
    log: log("kubelet", "unlinkat ...: read-only file system"),
    look_alikes: &[like(
        ids::NODE_FS_READONLY,
        "neither the mount nor the file system is read-only",
    )],
    ways_out: &[
        way("`btrfs property set -ts SUBVOLUME ro false`", WRITABLE_RISK),
        way("`btrfs subvolume delete SUBVOLUME`", DELETE_RISK),
    ],
    field: &["lxd#7025", "lxd#5818", "moby#7773"],
    tried: &[TriedWith::Test],
    source: &["linux fs/btrfs/inode.c, btrfs_permission"],
};

/// The risk of making a subvolume writable.
pub(super) const WRITABLE_RISK: &str = "low: kubelet deletes the contents of the volume anyhow. A snapshot that is the \
    parent of an incremental `btrfs send` can no longer serve as such";
/// The risk of deleting a subvolume.
pub(super) const DELETE_RISK: &str = "its contents are deleted at once, as kubelet would delete them. A subvolume that \
    `btrfs receive` made takes this, or `-f` for the command above";

/// EIO, EUCLEAN, ENODEV, ENXIO or ESHUTDOWN.
pub(crate) static DEVICE_ERROR: Cause = Cause {
    id: ids::DEVICE_IO_ERROR,
    title: "the device below the volume fails or is gone",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The device below the file system fails or is gone, or the file system has shut itself \
        down because of that. What cannot be read cannot be removed. The unmount usually still \
        works.",
    confirmed_by: &[
        seen(
            "calls fail with EIO, EUCLEAN, ENODEV, ENXIO or ESHUTDOWN",
            &[Origin::Calls, Origin::Log],
        ),
        seen(
            "the device does not exist any more, the kernel has counted errors of the file \
             system, or has logged an error of the device in the last ten minutes, the file \
             system is shut down, or the API server records the storage as detached",
            &[Origin::Files, Origin::Api, Origin::Mounts, Origin::Look, Origin::Log],
        ),
    ],
    log: log("the kernel", "I/O error, dev ..., sector ..."),
    look_alikes: &[
        like(ids::NODE_FS_READONLY, "the file system is mounted read-write"),
        like(ids::NFS_STALE_HANDLE, "the error is a device error, not ESTALE"),
        like(ids::CEPHFS_EVICTED, "the file system is not of type ceph"),
    ],
    ways_out: &[
        way("`umount`, then repair the disk", "what was not yet written is lost"),
        way("drain the node and check the file system offline", ""),
    ],
    field: &["kubernetes#77969", "kubernetes#67072", "longhorn#3778"],
    tried: &[TriedWith::Test],
    source: &[
        "linux fs/xfs/xfs_fsops.c, xfs_do_force_shutdown",
        "linux fs/ext4/super.c, ext4_handle_error",
    ],
};

/// ESTALE.
pub(crate) static STALE_HANDLE: Cause = Cause {
    id: ids::NFS_STALE_HANDLE,
    title: "the NFS server no longer knows the mounted directory (ESTALE)",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The exported directory was removed or replaced, or the server lost its state. Every \
        call fails with ESTALE, and the mount does not recover by itself.",
    confirmed_by: &[
        seen("calls fail with ESTALE", &[Origin::Calls, Origin::Log]),
        seen("the object lies on a file system of type nfs", &[Origin::Mounts]),
    ],
    log: log("kubelet", "stale NFS file handle"),
    look_alikes: &[
        like(ids::NODE_FS_READONLY, "the call fails with ESTALE, not with EROFS"),
        like(ids::DEVICE_IO_ERROR, "the file system is served by NFS, and the error is ESTALE"),
        like(ids::CEPHFS_EVICTED, "the file system is of type nfs"),
    ],
    ways_out: &[way("repair the server, or `umount -f`", "what was not yet written is lost")],
    field: &["kubernetes#71584", "kubernetes#68316", "ibm-spectrum-scale-csi#823"],
    tried: &[TriedWith::Test],
    source: &[
        "linux fs/nfs/dir.c, nfs_lookup_revalidate",
        "k8s.io/mount-utils mount_helper_unix.go, IsCorruptedMnt",
    ],
};

/// Another error.
pub(crate) static REMOVAL_FAILED_UNEXPLAINED: Cause = Cause {
    id: ids::REMOVAL_FAILED_UNEXPLAINED,
    title: "not a cause: a removal fails repeatedly for a reason that podstuck could not determine; the finding lists what is unknown",
    stage: Stage::Volumes,
    kind: Kind::Admission,
    meaning: "A removal or an unmount fails with an error of the file system whose reason cannot \
        be read from the mount table: a security module, a server that gives root no special \
        rights, a quota of the volume, a path that is too long.",
    confirmed_by: &[seen(
        "the call fails with the same error in more than one attempt",
        &[Origin::Calls, Origin::Log],
    )],
    log: None,
    look_alikes: &[
        like(ids::NODE_FS_READONLY, "the file system is mounted read-write"),
        like(ids::DEVICE_IO_ERROR, "the device exists, and the kernel has counted no error on it"),
        like(
            ids::NESTED_MOUNT_UNDER_VOLUME,
            "the read-only mount is not inside the pod's directory",
        ),
    ],
    ways_out: &[way("the finding says where to look", "")],
    field: &[],
    tried: &[],
    source: &["linux fs/namei.c, may_delete"],
};
