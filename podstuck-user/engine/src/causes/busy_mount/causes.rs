//! An unmount that is refused because somebody uses the mount.

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    ids,
    model::diagnosis::Stage,
};

/// Somebody outside the pod, on the mount itself.
pub(crate) static HELD_BY_PROCESS: Cause = Cause {
    id: ids::VOLUME_HELD_BY_HOST_PROCESS,
    title: "the unmount is refused: a process outside the pod uses the volume; it is named",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A process has a file open, its working directory, its root or a mapping on the mount, \
        or a loop device has its file there. The kernel does not unmount what is in use: every \
        attempt fails with EBUSY until that process lets go.",
    confirmed_by: &[
        "umount2 on the mount fails with EBUSY, or the pod is to go and the same process uses it at two looks",
        "a process holds an object on it, by the mount's own id",
    ],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "nothing is mounted on it"),
        like(ids::SWAPFILE_ACTIVE, "no active swap file lies on it"),
        like(
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            "the user is on the mount itself, and not on a copy of it",
        ),
        like(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the unmount is tried, and fails"),
        like(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE, "the unmount fails; there it succeeds"),
    ],
    ways_out: &[way("stop it, or its service", "whoever needs the process misses it")],
    field: &["kubernetes#113426", "rancher#16477", "csi-driver-smb#603"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["linux fs/namespace.c, do_umount", "linux fs/pnode.c, propagate_mount_busy"],
};

/// Somebody on a copy that the unmount would take along.
pub(crate) static HELD_BY_AGENT: Cause = Cause {
    id: ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
    title: "nobody holds the mount itself, but an agent's copy that the unmount would take along; \
        its pod is named",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "An agent has the node's directories by hostPath with mountPropagation HostToContainer. \
        So it has a copy of the volume's mount that receives the unmount. The copy is in use, and \
        then the whole unmount fails with EBUSY, although nobody on the node holds the mount itself.",
    confirmed_by: &[
        "umount2 on the mount fails with EBUSY, or the pod is to go and the same process uses it at two looks",
        "a process holds an object on a copy of the mount that is its slave or peer",
        "nobody holds the mount itself",
    ],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "nobody uses the mount itself"),
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "nothing is mounted on it"),
        like(ids::SWAPFILE_ACTIVE, "no active swap file lies on it"),
    ],
    ways_out: &[
        way("restart the agent", "its controller starts it again; what it does here pauses"),
        way("leave kubelet's directory out of the agent's hostPath volumes", ""),
    ],
    field: &["prometheus-operator#2578", "kubernetes/utils#163"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/pnode.c, propagate_mount_busy"],
};

/// A container's root file system, which its shim cannot unmount.
pub(crate) static SHIM_ROOTFS_BUSY: Cause = Cause {
    id: ids::SHIM_ROOTFS_BUSY,
    title: "the container's root file system is in use on the host",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has ended, and its shim cannot unmount the root file system, because \
        somebody on the host uses it: a scanner, a debugger, a shell that went in there, or something \
        is mounted in it. The shim \
        tries 50 times at 50 ms, gives up, and is asked again.",
    confirmed_by: &[
        "umount2 on the bundle's rootfs fails with EBUSY many times in a row, called by the shim; or its \
         container has ended, and it is still mounted",
        "a process holds an object on that mount, or something is mounted on it",
    ],
    log: log("containerd", "failed to cleanup rootfs mount"),
    look_alikes: &[
        like(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE, "the unmount fails; there it succeeds"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim is there and tries to unmount"),
    ],
    ways_out: &[way("stop the user", "whoever needs the process misses it")],
    field: &["containerd#4020", "gvisor#9834"],
    tried: &[TriedWith::RealRuntime, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["containerd core/mount/mount_linux.go, unmount: EBUSY is tried 50 times"],
};
