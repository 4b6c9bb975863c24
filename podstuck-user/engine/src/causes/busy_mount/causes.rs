//! Causes of an unmount or removal that is refused because the mount is in use.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, TriedWith, absent, like, log, seen, way},
    causes::busy_mount::nested::{LEFT_RISK, SOURCE},
    ids,
    model::diagnosis::Stage,
};

/// A process outside the pod uses the mount itself.
pub(crate) static HELD_BY_PROCESS: Cause = Cause {
    id: ids::VOLUME_HELD_BY_HOST_PROCESS,
    title: "a process outside the pod uses the volume, and its unmount fails with EBUSY",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A process has a file open, its working directory, its root or a mapping on the \
        mount, or a loop device has its backing file there. The kernel does not unmount what is \
        in use: every attempt fails with EBUSY while that process uses it.",
    confirmed_by: &[
        seen(
            "umount2 on the mount fails with EBUSY, or the pod is to be deleted and the same \
             process uses the mount in two scans",
            &[Origin::Calls, Origin::Log, Origin::Api, Origin::Scans],
        ),
        seen("a process uses an object on the mount, by the mount's own ID", &[Origin::Proc]),
    ],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "nothing is mounted on it"),
        like(ids::SWAPFILE_ACTIVE, "no active swap file lies on it"),
        like(
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            "the process uses the mount itself, not a copy of it",
        ),
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the unmount is tried, and fails"),
        like(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE, "the unmount fails; there it succeeds"),
    ],
    ways_out: &[way(
        "stop the process, or its service",
        "interrupts whatever depends on the process",
    )],
    field: &["kubernetes#113426", "rancher#16477", "csi-driver-smb#603"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["linux fs/namespace.c, do_umount", "linux fs/pnode.c, propagate_mount_busy"],
};

/// A process uses a propagated copy that the unmount would include.
pub(crate) static HELD_BY_AGENT: Cause = Cause {
    id: ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
    title: "the mount is unused, but a propagated copy of it in another pod is in use",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "An agent mounts the node's directories by hostPath with mountPropagation \
        HostToContainer, so it has a copy of the volume's mount to which the unmount propagates. \
        That copy is in use, so the whole unmount fails with EBUSY, although no process of the \
        node uses the mount itself.",
    confirmed_by: &[
        seen(
            "umount2 on the mount fails with EBUSY, or the pod is to be deleted and the same \
             process uses the mount in two scans",
            &[Origin::Calls, Origin::Log, Origin::Api, Origin::Scans],
        ),
        seen(
            "a process uses an object on a copy of the mount that is its slave or peer",
            &[Origin::Proc],
        ),
        absent("no process uses the mount itself", Feed::Holders),
    ],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "no process uses the mount itself"),
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "nothing is mounted on it"),
        like(ids::SWAPFILE_ACTIVE, "no active swap file lies on it"),
    ],
    ways_out: &[
        way("restart the agent", "its controller starts it again; its work on this node pauses"),
        way("leave kubelet's directory out of the agent's hostPath volumes", ""),
    ],
    field: &["prometheus-operator#2578", "kubernetes/utils#163"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/pnode.c, propagate_mount_busy"],
};

/// The shim cannot unmount the container's root file system.
pub(crate) static SHIM_ROOTFS_BUSY: Cause = Cause {
    id: ids::SHIM_ROOTFS_BUSY,
    title: "a process or mount on the host uses the container's root file system",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has ended, but its shim cannot unmount the root file system: a \
        process on the host uses it (a scanner, a debugger, a shell), or something is mounted in \
        it. The shim tries 50 times at intervals of 50 ms, gives up, and is called again.",
    confirmed_by: &[
        seen(
            "the shim's umount2 on the bundle's rootfs fails with EBUSY many times in a row; or \
             the container has ended, and the rootfs is still mounted",
            &[Origin::Calls, Origin::Log, Origin::Mounts],
        ),
        seen(
            "a process uses an object on that mount, or something is mounted on it",
            &[Origin::Proc, Origin::Mounts],
        ),
    ],
    log: log("containerd", "failed to cleanup rootfs mount"),
    look_alikes: &[
        like(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE, "the unmount fails; there it succeeds"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim runs, and tries to unmount"),
    ],
    ways_out: &[way("stop the process that uses it", "interrupts whatever depends on the process")],
    field: &["containerd#4020", "gvisor#9834"],
    tried: &[TriedWith::RealRuntime, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["containerd core/mount/mount_linux.go, unmount: EBUSY is tried 50 times"],
};

/// The user is not known.
pub(crate) static BUSY_UNEXPLAINED: Cause = Cause {
    id: ids::BUSY_UNEXPLAINED,
    title: "not a cause: an object is busy for a reason that podstuck could not determine; the finding lists what is unknown",
    stage: Stage::Volumes,
    kind: Kind::Admission,
    meaning: "A removal or an unmount failed with EBUSY, and nothing was found that explains it. \
        Not visible are a file in flight through a socket, a file registered with io_uring, and a \
        process that used the object only for a moment.",
    confirmed_by: &[seen(
        "the call fails with EBUSY in more than one attempt, or in more than two if no process is \
         seen on a mount",
        &[Origin::Calls, Origin::Log],
    )],
    log: None,
    look_alikes: &[
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "nothing is mounted on it"),
        like(ids::SWAPFILE_ACTIVE, "no active swap file lies on it"),
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "no process was found on the mount"),
        like(ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT, "no process was found on a copy of it"),
        like(ids::NFS_SILLY_RENAME, "the file system is not NFS"),
    ],
    ways_out: &[way("the finding says where to look", "")],
    field: &[],
    tried: &[],
    source: &["linux fs/namei.c, vfs_rmdir", "linux fs/pnode.c, propagate_mount_busy"],
};

/// A mount inside a volume of any kind.
pub(crate) static NESTED_MOUNT: Cause = Cause {
    id: ids::NESTED_MOUNT_UNDER_VOLUME,
    title: "there is a mount inside the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file system is mounted below the volume's own mount. The kernel does not unmount \
        a mount that has another mount on it, and does not remove a directory that is a mount \
        point.",
    confirmed_by: &[seen(
        "the caller's mountinfo has a mount below the volume's",
        &[Origin::Mounts, Origin::Proc],
    )],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "another mount is on it, which alone makes it busy"),
        like(
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            "the mount is in the caller's own namespace",
        ),
        like(ids::SWAPFILE_ACTIVE, "another mount is on it, which alone makes it busy"),
        like(ids::NODE_FS_READONLY, "the call fails with EBUSY, not with EROFS"),
    ],
    ways_out: &[way("`umount` the inner mount first", LEFT_RISK)],
    field: &["bb-clientd#2"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/pnode.c, propagate_mount_busy", SOURCE[0]],
};

/// A mount inside an emptyDir, often by a container with Bidirectional propagation.
pub(crate) static SUBMOUNT: Cause = Cause {
    id: ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT,
    title: "there is a mount inside the emptyDir, and kubelet does not unmount it",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file system or a directory is mounted inside the emptyDir. A container with \
        mountPropagation Bidirectional leaves its mount behind if it ends without unmounting it; \
        a process on the node may also have made the mount. kubelet's removal goes through the \
        mount, deletes what it can reach, and fails at the mount point.",
    confirmed_by: &[
        seen(
            "the removal of a directory below the emptyDir fails with EBUSY, or of what lies in it with EROFS",
            &[Origin::Calls, Origin::Log],
        ),
        seen("the caller's mountinfo has that directory as a mount point", &[Origin::Mounts]),
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_DEAD, "the file system is not FUSE, or it answers"),
        like(
            ids::REMOVAL_CROSSES_MOUNT,
            "the removal fails at the mount point, which must be unmounted first in either case",
        ),
        like(ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL, "the mount point is a directory"),
    ],
    ways_out: &[way("`umount` it", LEFT_RISK), way("unmount it in a preStop hook", "")],
    field: &["kubernetes#129550", "kubernetes#137143"],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: SOURCE,
};

/// A file mount inside a volume.
pub(crate) static TERMINATION_MESSAGE: Cause = Cause {
    id: ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL,
    title: "a file inside the volume is a mount point, often the container's \
        terminationMessagePath",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file inside the emptyDir is a mount point. The runtime mounts a container's \
        terminationMessagePath; inside a volume with Bidirectional propagation that mount \
        propagates to the node and outlives the container.",
    confirmed_by: &[
        seen(
            "the removal of a file below the emptyDir fails with EBUSY",
            &[Origin::Calls, Origin::Log],
        ),
        seen("the caller's mountinfo has that file as a mount point", &[Origin::Mounts]),
    ],
    log: log("kubelet", "unlinkat ...: device or resource busy"),
    look_alikes: &[like(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the mount point is a file")],
    ways_out: &[
        way("`umount` the file", LEFT_RISK),
        way("move terminationMessagePath out of the volume", ""),
    ],
    field: &["kubernetes#115054", "kubernetes#137143"],
    tried: &[TriedWith::RealKubelet],
    source: SOURCE,
};

/// The mount of a subPath itself.
pub(crate) static SUBPATH_BUSY: Cause = Cause {
    id: ids::SUBPATH_BUSY,
    title: "a subPath is still mounted when kubelet removes its mount point",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet tries to remove the mount point of a subPath that was not unmounted before.",
    confirmed_by: &[
        seen(
            "the removal of a path below volume-subpaths fails with EBUSY",
            &[Origin::Calls, Origin::Log],
        ),
        seen("the caller's mountinfo has it as a mount point", &[Origin::Mounts]),
    ],
    log: log("kubelet", "error cleaning subPath mounts for volume"),
    look_alikes: &[
        like(
            ids::SUBPATH_SOURCE_DELETED,
            "the removal reaches the mount point and fails there with EBUSY, not with ENOTEMPTY \
             above it",
        ),
        like(ids::KUBELET_ROOT_SYMLINK, "no symbolic link leads to kubelet's root"),
    ],
    ways_out: &[way("`umount` it", LEFT_RISK)],
    field: &["kubernetes#51835", "kubernetes#68740", "kubernetes#89181"],
    tried: &[TriedWith::Test],
    source: &["kubernetes pkg/volume/util/subpath/subpath_linux.go, doCleanSubPaths", SOURCE[0]],
};

/// A mount over the volume's own directory.
pub(crate) static MOUNT_OVER_VOLUME: Cause = Cause {
    id: ids::MOUNT_OVER_VOLUME,
    title: "there is a mount over the directory of an emptyDir, and kubelet does not unmount it",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet keeps an emptyDir on disk as a plain directory, and removes it without an \
        unmount. A mount over that directory stays: kubelet deletes the files in it unless the \
        mount is read-only, and then fails to remove the directory.",
    confirmed_by: &[
        seen(
            "the removal of the emptyDir's own directory fails with EBUSY, or the removal of \
             something in it fails with EROFS",
            &[Origin::Calls, Origin::Log],
        ),
        seen(
            "the caller's mountinfo has that directory as a mount point, and the mount is not an \
             in-memory file system of its own",
            &[Origin::Mounts],
        ),
    ],
    log: log("kubelet", "unlinkat ...: read-only file system, or device or resource busy"),
    look_alikes: &[like(ids::NODE_FS_READONLY, "the mount is in the pod's own directory")],
    ways_out: &[way("`umount` it", LEFT_RISK)],
    field: &[],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["kubernetes pkg/volume/emptydir/empty_dir.go, TearDownAt", SOURCE[0]],
};
