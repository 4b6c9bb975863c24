//! The names of all causes, also of those that are only known to be confused with ours: the compiler knows each.

use crate::cause::CauseId;

macro_rules! ids {
    ($($constant:ident = $name:literal,)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: CauseId = CauseId::new($name);
        )*

        /// All of them, by name.
        #[cfg(test)]
        pub(crate) const ALL: &[CauseId] = &[$($constant),*];
    };
}

ids! {
    APPARMOR_SIGNAL_DENIED = "apparmor-signal-denied",
    APPEND_ONLY_ATTRIBUTE = "append-only-attribute",
    BUSY_UNEXPLAINED = "busy-unexplained",
    CALL_HUNG_UNEXPLAINED = "call-hung-unexplained",
    CEPHFS_EVICTED = "cephfs-evicted",
    CGROUP_POPULATED_LEFTOVER = "cgroup-populated-leftover",
    CGROUP_V1_FROZEN = "cgroup-v1-frozen",
    CNI_TEARDOWN_FAILED = "cni-teardown-failed",
    CONTAINER_CLEARS_OWN_VOLUME = "container-clears-own-volume",
    CONTAINER_NOT_KILLED = "container-not-killed",
    CSI_DRIVER_DOWN = "csi-driver-down",
    CSI_DRIVER_ERROR = "csi-driver-error",
    CSI_DRIVER_LOST_PUBLISH_STATE = "csi-driver-lost-publish-state",
    CSI_DRIVER_NOT_IDEMPOTENT = "csi-driver-not-idempotent",
    CSI_DRIVER_NOT_REGISTERED = "csi-driver-not-registered",
    CSI_UMOUNT_WRONG_NAMESPACE = "csi-umount-wrong-namespace",
    CSI_UNPUBLISH_HUNG_LOCK = "csi-unpublish-hung-lock",
    DATA_UNDER_MOUNTPOINT = "data-under-mountpoint",
    DEVICE_IO_ERROR = "device-io-error",
    DEVICE_STILL_REFERENCED = "device-still-referenced",
    DISK_FULL_RUNTIME = "disk-full-runtime",
    DOCKER_CONTAINERD_STATE_DESYNC = "docker-containerd-state-desync",
    DOCKER_VOLUME_UNLINK_STORM = "docker-volume-unlink-storm",
    DSTATE_PROCESS = "dstate-process",
    EFS_STUNNEL_DEAD = "efs-stunnel-dead",
    EMPTYDIR_BIDIRECTIONAL_SUBMOUNT = "emptydir-bidirectional-submount",
    EMPTYDIR_MASS_FILES = "emptydir-mass-files",
    FILESYSTEM_FROZEN = "filesystem-frozen",
    FS_PHANTOM_ENTRIES = "fs-phantom-entries",
    FUSE_DAEMON_DEAD = "fuse-daemon-dead",
    FUSE_DAEMON_HUNG = "fuse-daemon-hung",
    GPU_DRIVER_DSTATE = "gpu-driver-dstate",
    GRACE_PERIOD_OR_PRESTOP = "grace-period-or-prestop",
    IMAGE_VOLUME_BUSY = "image-volume-busy",
    IMMUTABLE_ATTRIBUTE = "immutable-attribute",
    KUBELET_DOWN = "kubelet-down",
    KUBELET_RESTART_LOST_VOLUME = "kubelet-restart-lost-volume",
    KUBELET_ROOT_SYMLINK = "kubelet-root-symlink",
    KUBELET_STOPPED = "kubelet-stopped",
    LEAKED_SUPERBLOCK_BLOCKS_DEVICE = "leaked-superblock-blocks-device",
    LEFTOVER_UNEXPLAINED = "leftover-unexplained",
    MASS_DELETION = "mass-deletion",
    MOUNT_LEAKED_FOREIGN_NS_EL7 = "mount-leaked-foreign-ns-el7",
    MOUNT_OVER_VOLUME = "mount-over-volume",
    MOUNT_TABLE_STORM = "mount-table-storm",
    NESTED_MOUNT_UNDER_VOLUME = "nested-mount-under-volume",
    NETNS_BUSY = "netns-busy",
    NFS_SERVER_UNREACHABLE = "nfs-server-unreachable",
    NFS_SILLY_RENAME = "nfs-silly-rename",
    NFS_STALE_HANDLE = "nfs-stale-handle",
    NODE_FS_READONLY = "node-fs-readonly",
    ORPHANED_POD_DIR = "orphaned-pod-dir",
    PERMISSION_UNEXPLAINED = "permission-unexplained",
    POD_FINALIZER = "pod-finalizer",
    POD_NOT_DELETED = "pod-not-deleted",
    POD_NOT_ON_THIS_NODE = "pod-not-on-this-node",
    RAW_BLOCK_VOLUME_IN_USE = "raw-block-volume-in-use",
    REMOVAL_CROSSES_MOUNT = "removal-crosses-mount",
    REMOVAL_FAILED_UNEXPLAINED = "removal-failed-unexplained",
    RUNTIME_DOWN = "runtime-down",
    RUNTIME_HANG = "runtime-hang",
    RUNTIME_SOCKET_GONE = "runtime-socket-gone",
    SANDBOX_SHM_BUSY = "sandbox-shm-busy",
    SHIM_HUNG = "shim-hung",
    SHIM_OR_CONTAINERD_STATE_LOST = "shim-or-containerd-state-lost",
    SHIM_ROOTFS_BUSY = "shim-rootfs-busy",
    SMB_HOST_DOWN = "smb-host-down",
    STACKED_MOUNTS = "stacked-mounts",
    STATUS_UPDATE_REFUSED = "status-update-refused",
    SUBPATH_BUSY = "subpath-busy",
    SUBPATH_SOURCE_DELETED = "subpath-source-deleted",
    SWAPFILE_ACTIVE = "swapfile-active",
    TERMINATION_MESSAGE_IN_BIDIRECTIONAL = "termination-message-in-bidirectional",
    UMOUNT_FLUSH_SLOW = "umount-flush-slow",
    UMOUNT_KERNEL_HANG = "umount-kernel-hang",
    UNMOUNT_NOT_ATTEMPTED = "unmount-not-attempted",
    VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT = "volume-held-by-hosttocontainer-agent",
    VOLUME_HELD_BY_HOST_PROCESS = "volume-held-by-host-process",
    VOL_DATA_MISSING_OR_CORRUPT = "vol-data-missing-or-corrupt",
    WRITER_STILL_ALIVE = "writer-still-alive",
}
