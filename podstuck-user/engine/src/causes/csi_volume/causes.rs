//! Causes of CSI volumes that stay mounted.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, TriedWith, absent, hidden, like, log, or_seen, seen, way},
    causes::csi_volume::{left_mounted::UNMOUNT_RISK, verdict::UMOUNT_RISK},
    ids,
    model::diagnosis::Stage,
};

/// The driver is not registered on the node.
pub(crate) static NOT_REGISTERED: Cause = Cause {
    id: ids::CSI_DRIVER_NOT_REGISTERED,
    title: "the CSI driver is not registered on this node, so kubelet cannot ask it to unmount",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver's DaemonSet was removed, is failing, was evicted, or does not tolerate a \
        taint of this node. kubelet fails before it makes any call on the path, so no system call \
        shows the failure.",
    confirmed_by: &[
        seen("vol_data.json names a driver", &[Origin::Files]),
        seen(
            "kubelet's plugin directory has no registration socket of that driver, or no process \
             listens on the socket",
            &[Origin::Files, Origin::Proc],
        ),
        seen("the volume is mounted", &[Origin::Mounts]),
        absent("no process unmounts the volume", Feed::Calls),
    ],
    log: log("kubelet", "not found in the list of registered CSI drivers"),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver is absent; there, it answers kubelet"),
        like(ids::VOL_DATA_MISSING_OR_CORRUPT, "vol_data.json can be read, and names the driver"),
        like(ids::CSI_DRIVER_ERROR, "the driver is absent, so it answers nothing"),
        like(ids::CSI_DRIVER_DOWN, "the driver's registrar is absent, too"),
    ],
    ways_out: &[
        way("install or restart the driver on this node", ""),
        way(
            "`umount` the path by hand",
            "only if the driver cannot come back: data is lost if another node attaches the volume \
             while it is mounted here",
        ),
    ],
    field: &["kubernetes#120268", "ibm-spectrum-scale-csi#246", "secrets-store-csi-driver#1582"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_client.go, newCsiDriverClient",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ],
};

/// The registrar runs, the driver does not.
pub(crate) static DRIVER_DOWN: Cause = Cause {
    id: ids::CSI_DRIVER_DOWN,
    title: "the CSI driver is registered, but no process listens on the socket that kubelet calls",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver's container has ended or keeps failing. Its registrar, another container \
        of the same pod, still runs or has left its socket behind, so kubelet still counts the \
        driver as registered. Each call fails at once with Unavailable, and kubelet makes no call \
        on the path until the driver succeeds.",
    confirmed_by: &[
        seen(
            "the driver's registrar listens, or kubelet's log shows that kubelet calls the driver",
            &[Origin::Proc, Origin::Log, Origin::Files],
        ),
        seen(
            "no process listens on the socket that the registrar names to kubelet, or kubelet's \
             log has Unavailable for the last attempts",
            &[Origin::Proc, Origin::Log],
        ),
        seen("the volume is mounted", &[Origin::Mounts]),
        absent("no process unmounts the volume", Feed::Calls),
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code = Unavailable"),
    look_alikes: &[
        like(
            ids::CSI_DRIVER_NOT_REGISTERED,
            "the driver's registrar listens, or kubelet calls the driver",
        ),
        like(
            ids::CSI_DRIVER_LOST_PUBLISH_STATE,
            "no process listens, so no process can report success",
        ),
        like(ids::CSI_DRIVER_ERROR, "the driver is absent, so it answers nothing"),
        like(ids::CSI_UNPUBLISH_HUNG_LOCK, "the driver has no process that could hang"),
    ],
    ways_out: &[
        way("find out why the driver's container does not run, and restart it", ""),
        way(
            "`umount` the path by hand",
            "only if the driver cannot come back: data is lost if another node attaches the volume \
             while it is mounted here",
        ),
    ],
    field: &[],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_client.go, newGrpcConn",
        "kubernetes-csi/node-driver-registrar README.md, --kubelet-registration-path",
    ],
};

/// The driver does not return from a call.
pub(crate) static DRIVER_HANGS: Cause = Cause {
    id: ids::CSI_UNPUBLISH_HUNG_LOCK,
    title: "the CSI driver does not respond: its process is stopped or blocked, or an earlier call has not returned",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver does not return from kubelet's call to unpublish the volume: its process \
        is stopped or frozen, waits in the kernel for a server or a disk, or waits for itself. \
        kubelet gives up after two minutes (DeadlineExceeded), or sooner if the driver does not \
        accept the connection (Unavailable, `error reading server preface`), and retries. Many \
        drivers hold a lock for each volume, and refuse later calls (Aborted) while the first one \
        hangs.",
    confirmed_by: &[
        seen(
            "the driver's process is stopped or frozen, or one of its threads waits in the kernel \
             for more than a moment; or kubelet's log has DeadlineExceeded, Aborted or `error \
             reading server preface` for the last attempts",
            &[Origin::Proc, Origin::Log],
        ),
        seen("the volume is mounted", &[Origin::Mounts]),
        or_seen(
            "or the volume is no longer mounted, and the driver reports that it still works on an \
             earlier call",
            &[Origin::Scans],
        ),
        absent("no process unmounts the volume", Feed::Calls),
    ],
    log: log(
        "kubelet",
        "UnmountVolume.TearDown failed ... code = DeadlineExceeded, then code = Aborted",
    ),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver does not answer"),
        like(ids::CSI_DRIVER_DOWN, "a process listens on the driver's socket"),
        like(
            ids::CSI_DRIVER_ERROR,
            "the driver does not answer, or answers only that it still works on an earlier call",
        ),
    ],
    ways_out: &[
        way("continue or thaw the driver's process, or restore its server or disk", ""),
        way(
            "restart the driver",
            "clears the driver's lock, but does not end a thread that waits in the kernel; \
             volumes that a FUSE driver serves from this pod stop working",
        ),
    ],
    field: &["aws-fsx-csi-driver#495", "csi-digitalocean#242"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "container-storage-interface spec.md, Error Scheme: ABORTED, operation pending for volume",
    ],
};

/// The driver answers with an error.
pub(crate) static DRIVER_ERROR: Cause = Cause {
    id: ids::CSI_DRIVER_ERROR,
    title: "the CSI driver answers each attempt to unpublish the volume with an error",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver answers kubelet's NodeUnpublishVolume with an error: it does not know \
        the volume, cannot unmount it, or cannot reach its storage. Or it serves one call on a \
        volume at a time, and refuses that of a pod (Aborted) while it works for another one. \
        kubelet retries with pauses of up to two minutes, and makes no call on the path until the \
        driver succeeds.",
    confirmed_by: &[
        seen(
            "kubelet's log has the error of the last attempts, and the error is not Unavailable",
            &[Origin::Log],
        ),
        seen("the driver is registered, and a process listens on its socket", &[Origin::Proc]),
        seen("the volume is still mounted", &[Origin::Mounts]),
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code ="),
    look_alikes: &[
        like(ids::CSI_DRIVER_NOT_REGISTERED, "the driver runs and answers"),
        like(ids::CSI_DRIVER_DOWN, "the driver runs and answers"),
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver does not report success"),
        like(
            ids::CSI_UNPUBLISH_HUNG_LOCK,
            "the driver answers, but not that it still works on an earlier call",
        ),
        like(ids::CSI_DRIVER_NOT_IDEMPOTENT, "the volume is still mounted"),
    ],
    ways_out: &[
        way("fix the error that the driver's own log reports, or restart the driver", ""),
        way("`umount` the path by hand if the driver no longer knows the volume", ""),
    ],
    field: &["ceph-csi#2123"],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "container-storage-interface spec.md, NodeUnpublishVolume Errors",
    ],
};

/// The driver fails because the volume is already unmounted.
pub(crate) static NOT_IDEMPOTENT: Cause = Cause {
    id: ids::CSI_DRIVER_NOT_IDEMPOTENT,
    title: "the CSI driver returns an error because the volume is no longer mounted",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A reboot or an administrator has unmounted the volume, and kubelet calls the driver \
        again to unpublish it. The CSI specification requires success if nothing is left to do; \
        this driver fails, because nothing is mounted or because it no longer knows the volume. \
        kubelet retries without end.",
    confirmed_by: &[
        seen("kubelet's log has an error of the driver for the last attempts", &[Origin::Log]),
        absent("the volume is not mounted", Feed::Node),
        seen(
            "the node was booted after the pod's containers were started, or the error says that nothing is mounted",
            &[Origin::Files, Origin::Log, Origin::Scans],
        ),
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code ="),
    look_alikes: &[like(
        ids::CSI_DRIVER_ERROR,
        "nothing is mounted, so nothing is left to unpublish",
    )],
    ways_out: &[
        way("upgrade the driver to a version that succeeds if nothing is mounted", ""),
        way("mount something on the path for the driver to unmount", "low: an empty directory"),
    ],
    field: &["spiffe-csi#158", "trident#572", "k8s-csi-s3#149"],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "container-storage-interface spec.md, NodeUnpublishVolume: this operation MUST be idempotent",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ],
};

/// kubelet lost the volume, which it knew in memory only, in a restart.
pub(crate) static KUBELET_LOST: Cause = Cause {
    id: ids::KUBELET_RESTART_LOST_VOLUME,
    title: "kubelet does not count the mounted volume as mounted, as after its restart",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet keeps the list of mounted volumes in memory, and rebuilds it from their \
        directories when it starts. kubelet never unmounts a volume that it does not find then: \
        one whose secret or claim is gone, or whose plugin could not be called at that moment. \
        The same holds for a mount that timed out while the driver went on, if the pod was \
        deleted meanwhile. The pod waits for that volume.",
    confirmed_by: &[
        seen(
            "kubelet was started after the pod's containers had ended; or its log says after that \
             time that it fails to mount the volume, or since its start that the volume is \
             attached, which it says only of a volume that it does not count as mounted",
            &[Origin::Proc, Origin::Log],
        ),
        absent("kubelet's log has no attempt to unmount the volume since then", Feed::Logs),
        seen("the volume is mounted", &[Origin::Mounts]),
        absent("no process unmounts the volume", Feed::Calls),
    ],
    log: log("kubelet", "nothing with the pod's UID and UnmountVolume since its start"),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "kubelet does not call the driver"),
        like(
            ids::UNMOUNT_NOT_ATTEMPTED,
            "kubelet was started after the pod's end, or counts the volume as not mounted",
        ),
    ],
    ways_out: &[
        way("restart kubelet again once the plugin and the volume's secrets are available", ""),
        way("`umount` the path by hand", UMOUNT_RISK),
    ],
    field: &["kubernetes#72604", "kubernetes#70044", "kubernetes#116954", "kubernetes#128739"],
    tried: &[TriedWith::RealKubelet],
    source: &["kubernetes pkg/kubelet/volumemanager/reconciler/reconstruct.go"],
};

/// The driver forgot that it published the volume.
pub(crate) static LOST_PUBLISH_STATE: Cause = Cause {
    id: ids::CSI_DRIVER_LOST_PUBLISH_STATE,
    title: "the CSI driver reported success but did not unmount the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver was restarted and forgot which volumes it had published. It answers \
        NodeUnpublishVolume with success and unmounts nothing. kubelet up to 1.29 then fails to \
        remove the directory (EBUSY); kubelet since 1.30 sees that the path is still mounted, and \
        waits without a failing call or an error in its log.",
    confirmed_by: &[
        seen("the volume's path is a mount point in kubelet's mount namespace", &[Origin::Mounts]),
        absent(
            "no process called umount2 on it while kubelet made attempts, or for as long as \
             kubelet's longest pauses last",
            Feed::Calls,
        ),
        seen(
            "kubelet tries to remove the mount point, which it does after the driver has reported \
             success; or the driver is registered, a process listens on its socket, and kubelet's \
             log says that the call succeeded",
            &[Origin::Calls, Origin::Log],
        ),
    ],
    log: log("kubelet", "UnmountVolume.TearDown succeeded for volume"),
    look_alikes: &[
        like(
            ids::VOLUME_HELD_BY_HOST_PROCESS,
            "no process calls umount2, so none fails with EBUSY",
        ),
        like(ids::STACKED_MOUNTS, "one mount is on the path, and none was unmounted"),
        like(ids::CSI_DRIVER_NOT_REGISTERED, "the driver is registered, and kubelet calls it"),
        like(ids::CSI_DRIVER_DOWN, "a process listens on the socket that kubelet calls"),
        like(ids::CSI_DRIVER_ERROR, "kubelet's log says that the call succeeded, or has no error"),
        like(ids::CSI_UMOUNT_WRONG_NAMESPACE, "no unmount succeeded in any namespace"),
        like(ids::DATA_UNDER_MOUNTPOINT, "the path is mounted"),
        like(
            ids::CSI_UNPUBLISH_HUNG_LOCK,
            "no call on the volume hangs, and the driver's process runs",
        ),
        like(ids::KUBELET_RESTART_LOST_VOLUME, "kubelet takes down the rest of the pod"),
    ],
    ways_out: &[
        way("`umount` the path", UNMOUNT_RISK),
        way("upgrade the driver to a version that keeps its state", ""),
    ],
    field: &["csi-driver-host-path#457", "kubeblocks#8233", "pmem-csi#25"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "kubernetes-csi/csi-driver-host-path pkg/hostpath/nodeserver.go, NodeUnpublishVolume",
        "k8s.io/mount-utils mount_linux.go, IsLikelyNotMountPoint",
    ],
};

/// Mounted twice, unmounted once.
pub(crate) static STACKED_MOUNTS: Cause = Cause {
    id: ids::STACKED_MOUNTS,
    title: "the volume was mounted more often than it was unmounted",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The volume was mounted more than once on the same path, by a driver that was called \
        twice. An unmount removes only the topmost mount, and no process unmounts the rest.",
    confirmed_by: &[seen(
        "the caller's mountinfo has more than one line with this mount point, or an unmount \
         succeeded there and the path is still mounted",
        &[Origin::Mounts],
    )],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like(
            ids::CSI_UMOUNT_WRONG_NAMESPACE,
            "the path is still mounted in the namespace in which the unmount succeeded",
        ),
        like(
            ids::CSI_DRIVER_LOST_PUBLISH_STATE,
            "the volume was unmounted, but fewer times than it was mounted",
        ),
        like(ids::KUBELET_ROOT_SYMLINK, "no symbolic link leads to kubelet's root"),
    ],
    ways_out: &[way("`umount` until it fails", UNMOUNT_RISK)],
    field: &["osc-bsu-csi-driver#130", "kubernetes#122342"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/namespace.c, do_umount"],
};

/// The driver unmounts in its own mount namespace, and that does not propagate to kubelet.
pub(crate) static WRONG_NAMESPACE: Cause = Cause {
    id: ids::CSI_UMOUNT_WRONG_NAMESPACE,
    title: "the driver unmounted the volume only in its own mount namespace",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver unmounted the volume in its own mount namespace, and the unmount did not \
        propagate to kubelet's: the driver's container lacks `mountPropagation: Bidirectional`, \
        or kubelet's directory is not a shared mount.",
    confirmed_by: &[
        seen(
            "umount2 on the path succeeded in one mount namespace, or kubelet's log says that the \
             driver succeeded and the driver's own namespace does not have the mount",
            &[Origin::Calls, Origin::Log],
        ),
        seen("the path is still mounted in another mount namespace, kubelet's", &[Origin::Mounts]),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::STACKED_MOUNTS,
            "the unmount succeeded in another namespace than the one that has the mount",
        ),
        like(
            ids::CSI_DRIVER_LOST_PUBLISH_STATE,
            "the driver did unmount the volume, in its own namespace",
        ),
    ],
    ways_out: &[way("`umount` on the host, and fix the mount propagation", UNMOUNT_RISK)],
    field: &["kubernetes#51835", "rke#264", "containerd#5538"],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "linux Documentation/filesystems/sharedsubtree.rst",
        "linux fs/pnode.c, propagate_umount",
    ],
};

/// A program that looks for the mount by the path with the link does not find it.
pub(crate) static ROOT_SYMLINK: Cause = Cause {
    id: ids::KUBELET_ROOT_SYMLINK,
    title: "kubelet's root directory is a symbolic link, and a mount below it is not found by the \
        link's path",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A symbolic link leads to kubelet's root directory. The kernel lists mounts by the \
        path that the link resolves to. A program that searches the list for the path through the \
        link does not find the mount: it mounts the volume again, or skips the unmount, and the \
        volume's directory cannot be removed (EBUSY). kubelet up to 1.11 does so with subPaths \
        and other volumes, and CSI drivers of any version may.",
    confirmed_by: &[
        seen("a component of the path of kubelet's root is a symbolic link", &[Origin::Look]),
        seen(
            "a volume of the pod is mounted more than once, or no process unmounts the volume, \
             and its removal fails with EBUSY",
            &[Origin::Mounts, Origin::Calls, Origin::Log],
        ),
        hidden("the program that must unmount it searches for mounts by the path through the link"),
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like(ids::STACKED_MOUNTS, "a symbolic link leads to kubelet's root"),
        like(ids::SUBPATH_BUSY, "a symbolic link leads to kubelet's root"),
    ],
    ways_out: &[
        way("`umount` the path", "low once all containers of the pod have ended"),
        way(
            "configure kubelet and the drivers with the path without the link (`--root-dir`), or \
             replace the link by a bind mount",
            "requires a drained node and a restart of kubelet",
        ),
    ],
    field: &["kubernetes#65879", "kubernetes#68740", "k3s#840"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes issues 65879, 68740, 24717, pull request 68741",
        "linux fs/proc_namespace.c, show_mountinfo: seq_path_root",
    ],
};

/// kubelet's `vol_data.json` is lost.
pub(crate) static VOL_DATA_LOST: Cause = Cause {
    id: ids::VOL_DATA_MISSING_OR_CORRUPT,
    title: "the file in which kubelet describes a CSI volume (vol_data.json) is missing or damaged",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "vol_data.json is missing, empty or damaged, after an unclean shutdown or a clean-up \
        by hand. kubelet can neither find the driver nor name the volume to unpublish, and makes \
        no call.",
    confirmed_by: &[seen(
        "vol_data.json of the volume is missing, or cannot be parsed",
        &[Origin::Files],
    )],
    log: log("kubelet", "UnmountVolume.NewUnmounter failed"),
    look_alikes: &[
        like(ids::ORPHANED_POD_DIR, "kubelet does not try to remove the pod's directory"),
        like(ids::CSI_DRIVER_NOT_REGISTERED, "vol_data.json does not name the driver"),
    ],
    ways_out: &[
        way(
            "write vol_data.json again if the API server has the PersistentVolume",
            "low: kubelet then calls the driver to unpublish the volume, as usual",
        ),
        way(
            "`umount`, or remove the empty directories",
            "the driver does not notice, so its node-wide mount and the attachment may have to be \
             cleaned up by hand",
        ),
    ],
    field: &["kubernetes#101911", "kubernetes#108217", "kubernetes#116847"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &[
        "kubernetes pkg/volume/csi/csi_plugin.go, NewMounter and NewUnmounter",
        "kubernetes pkg/volume/csi/csi_util.go, saveVolumeData",
    ],
};

/// No component tries to unmount the volume.
pub(crate) static NOT_ATTEMPTED: Cause = Cause {
    id: ids::UNMOUNT_NOT_ATTEMPTED,
    title: "the containers are gone, the volumes are mounted, and no component tries to unmount them",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod's containers have ended, its volumes are still mounted, and no component tries to unmount them. \
        kubelet may not know that the pod is to be deleted, may wait for something else of the pod, or may not run.",
    confirmed_by: &[
        seen("no process is left in the pod's control groups", &[Origin::Proc]),
        seen("its volumes are mounted", &[Origin::Mounts]),
        absent("no process called umount2 for longer than kubelet's longest pause", Feed::Calls),
        seen("the pod's record has a deletionTimestamp", &[Origin::Api, Origin::Log]),
        hidden("kubelet knows that the pod is to be deleted"),
        hidden("kubelet waits for nothing else of the pod"),
    ],
    log: log("kubelet", "nothing with the pod's UID"),
    look_alikes: &[
        like(ids::POD_NOT_DELETED, "the pod's record has a deletionTimestamp"),
        like(ids::KUBELET_RESTART_LOST_VOLUME, "kubelet was started before the pod's end"),
    ],
    ways_out: &[way("the finding says where to look", "")],
    field: &[],
    tried: &[TriedWith::Test],
    source: &["kubernetes pkg/kubelet/kubelet.go, SyncTerminatedPod"],
};
