//! What can be wrong with a CSI driver.

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    ids,
    model::diagnosis::Stage,
};

/// The driver is not on the node.
pub(crate) static NOT_REGISTERED: Cause = Cause {
    id: ids::CSI_DRIVER_NOT_REGISTERED,
    title: "the CSI driver is not on this node, so kubelet cannot ask it to unmount",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver's DaemonSet was removed, is failing, was evicted, or does not tolerate a \
        taint of this node. kubelet gives up before it touches the path, so no system call shows it.",
    confirmed_by: &[
        "vol_data.json names a driver",
        "kubelet's directory of plugins has no registration socket of that driver, or nobody listens \
         on it",
        "the volume is mounted, and nobody unmounts it",
    ],
    log: log("kubelet", "not found in the list of registered CSI drivers"),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver is not there; that one answers"),
        like(ids::VOL_DATA_MISSING_OR_CORRUPT, "vol_data.json can be read, and names the driver"),
        like(ids::CSI_DRIVER_ERROR, "the driver is not there, and answers nothing"),
        like(ids::CSI_DRIVER_DOWN, "the driver's registrar is not there either"),
    ],
    ways_out: &[
        way("bring the driver back", ""),
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

/// Its registrar is there, it is not.
pub(crate) static DRIVER_DOWN: Cause = Cause {
    id: ids::CSI_DRIVER_DOWN,
    title: "the CSI driver is registered, and nobody listens on the socket on which kubelet calls it",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver's container has ended or fails again and again, and its registrar, another \
        container of the same pod, lives: so kubelet goes on to believe that the driver is there. Each call \
        fails at once with Unavailable, and kubelet makes no call on the path before the driver has \
        succeeded.",
    confirmed_by: &[
        "the driver's registrar listens",
        "nobody listens on the socket that the registrar hands to kubelet, or kubelet's log has \
         Unavailable of the last attempts",
        "the volume is mounted, and nobody unmounts it",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code = Unavailable"),
    look_alikes: &[
        like(ids::CSI_DRIVER_NOT_REGISTERED, "the driver's registrar is there"),
        like(
            ids::CSI_DRIVER_LOST_PUBLISH_STATE,
            "nobody listens, so that nobody can say that all is well",
        ),
        like(ids::CSI_DRIVER_ERROR, "the driver is not there, and answers nothing"),
        like(ids::CSI_UNPUBLISH_HUNG_LOCK, "the driver is not there, and nothing of it can hang"),
    ],
    ways_out: &[
        way("look why the driver's container does not run, and bring it back", ""),
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

/// It does not come back from a call.
pub(crate) static DRIVER_HANGS: Cause = Cause {
    id: ids::CSI_UNPUBLISH_HUNG_LOCK,
    title: "the CSI driver does not answer: it is halted, or waits, or an earlier call of it does",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver was asked to unpublish the volume and does not come back from it: its process is \
        stopped or frozen, waits in the kernel for a server or a disk, or waits for itself. kubelet gives \
        up after two minutes (DeadlineExceeded) and asks again. Many drivers keep a lock for each volume: \
        then later calls are refused (Aborted) as long as the first one hangs.",
    confirmed_by: &[
        "the driver's process is stopped or frozen, or one of its threads waits in the kernel for more than \
         a moment; or kubelet's log has DeadlineExceeded or Aborted of the last attempts",
        "the volume is mounted, and nobody unmounts it",
    ],
    log: log(
        "kubelet",
        "UnmountVolume.TearDown failed ... code = DeadlineExceeded, then code = Aborted",
    ),
    look_alikes: &[
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver does not answer"),
        like(ids::CSI_DRIVER_DOWN, "somebody listens on the driver's socket"),
        like(
            ids::CSI_DRIVER_ERROR,
            "it does not answer, or only that it still works on an earlier call",
        ),
    ],
    ways_out: &[
        way("let it go on: continue or thaw the process, bring its server or disk back", ""),
        way(
            "restart the driver",
            "clears its lock, and no thread that waits in the kernel; mounts that a FUSE driver serves from \
             this pod die with it",
        ),
    ],
    field: &["aws-fsx-csi-driver#495", "csi-digitalocean#242"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "container-storage-interface spec.md, Error Scheme: ABORTED, operation pending for volume",
    ],
};

/// The driver says no.
pub(crate) static DRIVER_ERROR: Cause = Cause {
    id: ids::CSI_DRIVER_ERROR,
    title: "the CSI driver answers each attempt to unpublish the volume with an error",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The driver is there and answers kubelet's NodeUnpublishVolume with an error: it does not \
        know the volume, cannot unmount it, or cannot reach its storage. kubelet asks again, at last \
        every two minutes, and makes no call on the path before the driver has succeeded.",
    confirmed_by: &[
        "kubelet's log has the error of the last attempts, and it is not Unavailable",
        "the driver is registered, and somebody listens on its socket",
        "the volume is still mounted",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code ="),
    look_alikes: &[
        like(ids::CSI_DRIVER_NOT_REGISTERED, "the driver is there, and answers"),
        like(ids::CSI_DRIVER_DOWN, "the driver is there, and answers"),
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "it does not say that all is well"),
        like(
            ids::CSI_UNPUBLISH_HUNG_LOCK,
            "it answers, and not that it still works on an earlier call",
        ),
        like(ids::CSI_NOT_IDEMPOTENT_AFTER_REBOOT, "the volume is still mounted"),
    ],
    ways_out: &[
        way("the driver's own log says why: repair that, or restart the driver", ""),
        way("`umount` the path by hand, where the driver does not know the volume any more", ""),
    ],
    field: &[],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
        "container-storage-interface spec.md, NodeUnpublishVolume Errors",
    ],
};

/// It wants to unmount what a boot has unmounted.
pub(crate) static NOT_IDEMPOTENT: Cause = Cause {
    id: ids::CSI_NOT_IDEMPOTENT_AFTER_REBOOT,
    title: "the CSI driver answers with an error because the volume is not mounted any more",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A boot has unmounted everything, or somebody has by hand, and kubelet asks the driver once more \
        to unpublish the volume. The specification wants success where there is nothing to be done; this driver fails, because \
        nothing is mounted or because it does not know the volume any more. kubelet asks for ever.",
    confirmed_by: &[
        "kubelet's log has an error of the driver for the last attempts",
        "nothing is mounted for the volume",
        "the node was booted after the pod's containers were started, or the error says that nothing is mounted",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... rpc error: code ="),
    look_alikes: &[like(
        ids::CSI_DRIVER_ERROR,
        "nothing is mounted, so there is nothing to be unpublished",
    )],
    ways_out: &[
        way("upgrade the driver to a version that succeeds where nothing is mounted", ""),
        way("mount something on the path, for the driver to unmount", "low: an empty directory"),
    ],
    field: &["spiffe-csi#158", "trident#572", "k8s-csi-s3#149"],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "container-storage-interface spec.md, NodeUnpublishVolume: this operation MUST be idempotent",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ],
};
