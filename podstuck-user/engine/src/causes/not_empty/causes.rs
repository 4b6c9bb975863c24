//! Causes of directories that do not become empty.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, Proof, TriedWith, absent, like, log, seen, way},
    ids,
    model::diagnosis::Stage,
};

const NOT_EMPTY: Proof = seen(
    "rmdir of the directory fails with ENOTEMPTY in more than one attempt, and no call in the \
    volume fails with another error",
    &[Origin::Calls, Origin::Log],
);

/// Files where a volume should be mounted.
pub(crate) static DATA_UNDER_MOUNT: Cause = Cause {
    id: ids::DATA_UNDER_MOUNTPOINT,
    title: "files lie in the mount point of a volume that is not mounted",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The volume is not mounted any more, and its empty mount point should be all that is left. But files \
        lie in that directory, on the node's own disk: they were written while the volume was not mounted. kubelet \
        does not remove them, since they might be data.",
    confirmed_by: &[
        NOT_EMPTY,
        seen("the directory is not a mount point", &[Origin::Mounts]),
        seen("readdir shows entries in it", &[Origin::Look]),
    ],
    log: log("kubelet", "failed to remove dir ... directory not empty"),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the path is not mounted for the caller"),
        like(ids::ORPHANED_POD_DIR, "it is not kubelet's housekeeping that removes it"),
        like(ids::NFS_SILLY_RENAME, "no entry is named .nfs..."),
    ],
    ways_out: &[
        way("move them away", "low: they may be the only copy, so do not delete them"),
        way(
            "end the processes of the pod that are alive, which may write there again",
            "low for a pod that is to be deleted",
        ),
    ],
    field: &["kubernetes#108622", "kubernetes#97444", "democratic-csi#344", "kubernetes#114652"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &["kubernetes pkg/volume/csi/csi_mounter.go, removeMountDir"],
};

/// kubelet skipped an unmount.
pub(crate) static SUBPATH_SOURCE_DELETED: Cause = Cause {
    id: ids::SUBPATH_SOURCE_DELETED,
    title: "kubelet skipped the unmount of a subPath",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A subPath is still mounted for a container that has ended. kubelet checks the \
        mount before it unmounts it. The check fails because the source of the mount was deleted \
        on its server; kubelet treats the error as a mount that is gone, skips the unmount, and \
        then cannot remove the directory around it.",
    confirmed_by: &[
        NOT_EMPTY,
        seen("mountinfo has a mount below `volume-subpaths/VOLUME/CONTAINER`", &[Origin::Mounts]),
        absent("no process called umount2 on that mount", Feed::Calls),
    ],
    log: log("kubelet", "error cleaning subPath mounts for volume"),
    look_alikes: &[like(ids::SUBPATH_BUSY, "no process calls umount2, so none fails with EBUSY")],
    ways_out: &[way("`umount` it", "low: the container that used it has ended; its files stay")],
    field: &["kubernetes#139535", "kubernetes#97031", "csi-driver-smb#376"],
    tried: &[TriedWith::Lab],
    source: &["kubernetes pkg/volume/util/subpath/subpath_linux.go, doCleanSubPaths"],
};

/// A process makes files faster than they are removed.
pub(crate) static WRITER_ALIVE: Cause = Cause {
    id: ids::WRITER_STILL_ALIVE,
    title: "a process writes into a volume while the volume is removed",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod's containers should have ended, but a process still writes into the \
        volume, so the volume is never empty at the end. The process is left over from a \
        container, belongs to the host, or belongs to another pod that uses the directory by \
        hostPath.",
    confirmed_by: &[
        NOT_EMPTY,
        seen(
            "an entry in it was created after the first attempt, which removed all entries that \
            it found",
            &[Origin::Look],
        ),
        seen("a process has a file below it open for writing", &[Origin::Proc]),
    ],
    log: log("kubelet", "unlinkat ...: directory not empty"),
    look_alikes: &[
        like(ids::FS_PHANTOM_ENTRIES, "readdir shows entries in it"),
        like(ids::NFS_SILLY_RENAME, "no entry is named .nfs..."),
    ],
    ways_out: &[way("stop that process", "what it is writing is lost")],
    field: &["kubernetes#70382", "kubernetes#119792"],
    tried: &[TriedWith::Lab],
    source: &["go src/os/removeall_at.go, removeAllFrom"],
};

/// A directory is reported as not empty, and lists no entries.
pub(crate) static PHANTOM_ENTRIES: Cause = Cause {
    id: ids::FS_PHANTOM_ENTRIES,
    title: "a directory is reported as not empty, but lists no entries",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The file system reports that the directory is not empty, and lists no entries: its \
        directory data are damaged, or one of its layers hides entries of another.",
    confirmed_by: &[
        NOT_EMPTY,
        seen("readdir lists no entries in it at each attempt", &[Origin::Look]),
    ],
    log: log("the kernel", "EXT4-fs error ... or the like of another file system"),
    look_alikes: &[like(
        ids::WRITER_STILL_ALIVE,
        "readdir finds no entries, in more attempts than a writer can explain",
    )],
    ways_out: &[way("check the file system", "while it is not mounted")],
    field: &["podman#23023", "moby#30392"],
    tried: &[],
    source: &[
        "linux fs/ext4/namei.c, ext4_empty_dir",
        "linux fs/overlayfs/dir.c, ovl_check_empty_dir",
    ],
};

/// Entries without a known explanation.
pub(crate) static LEFTOVER_UNEXPLAINED: Cause = Cause {
    id: ids::LEFTOVER_UNEXPLAINED,
    title: "not a cause: a directory stays non-empty for a reason that podstuck could not determine; the finding lists what is unknown",
    stage: Stage::Volumes,
    kind: Kind::Admission,
    meaning: "A directory is not empty at each attempt, and either podstuck could not read it, \
        or its entries are older than the attempts that should have removed them.",
    confirmed_by: &[NOT_EMPTY],
    log: None,
    look_alikes: &[],
    ways_out: &[way("the finding says where to look", "")],
    field: &[],
    tried: &[],
    source: &[],
};
