//! The table of cases.

use super::{
    attribute::Attribute,
    case::{Case, Driver, Kind, Volume},
    prop::Prop,
};

const fn empty_dir(name: &'static str, kind: Kind) -> Volume {
    Volume { plugin: "kubernetes.io~empty-dir", name, kind }
}

const fn csi(name: &'static str, driver: Driver) -> Volume {
    Volume { plugin: "kubernetes.io~csi", name, kind: Kind::Csi(driver) }
}

const fn disk(name: &'static str) -> Volume {
    Volume { plugin: "kubernetes.io~local-volume", name, kind: Kind::Disk }
}

/// The tokens that nearly every pod has.
const TOKENS: Volume =
    Volume { plugin: "kubernetes.io~projected", name: "kube-api-access-7w2xk", kind: Kind::Memory };
const LOGS: Volume = empty_dir("logs", Kind::Files);
/// A PersistentVolume's name: kubelet calls the directory of a CSI volume after it.
const PV: &str = "pvc-5d1c8f0e-6a43-4c55-9b37-2f0a7be91c44";

const ISCSI: &str = "kubernetes.io~iscsi";

/// All cases, the healthy one first.
pub const CASES: &[Case] = &[
    Case {
        id: "healthy",
        summary: "ordinary pods are deleted one after the other: nothing is wrong",
        volumes: &[TOKENS, csi("scratch", Driver::Works), LOGS, empty_dir("data", Kind::Files)],
        props: &[],
        repeats: true,
    },
    Case {
        id: "csi-driver-lost-publish-state",
        summary: "the CSI driver forgot its mount, says OK without unmounting; rmdir is EBUSY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Forgot)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "stacked-mounts",
        summary: "a CSI volume was mounted twice and unmounted once; rmdir is EBUSY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::PublishedTwice)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "nested-mount-under-volume",
        summary: "something is mounted inside a volume in memory; its umount is EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::MemoryWithChild)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "volume-held-by-host-process",
        summary: "a process outside the pod works in a volume in memory; its umount is EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::Memory)],
        props: &[Prop::HostProcess],
        repeats: false,
    },
    Case {
        id: "volume-held-by-hosttocontainer-agent",
        summary: "an agent works in its slave copy of a volume; the umount is EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::Memory)],
        props: &[Prop::Agent],
        repeats: false,
    },
    Case {
        id: "swapfile-active",
        summary: "a volume on a disk (loop) has an active swap file; its umount is EBUSY",
        volumes: &[TOKENS, LOGS, disk(PV)],
        props: &[Prop::SwapFile],
        repeats: false,
    },
    Case {
        id: "leaked-superblock-blocks-device",
        summary: "umount of a disk (loop) succeeds, but a private copy elsewhere keeps the device",
        volumes: &[TOKENS, LOGS, disk(PV)],
        props: &[Prop::PrivateCopy],
        repeats: false,
    },
    Case {
        id: "removal-crosses-mount",
        summary: "a directory of somebody else is mounted in an emptyDir: kubelet deletes its files",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::ForeignMount)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "immutable-attribute",
        summary: "a file in an emptyDir is immutable (chattr +i); unlink is EPERM",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Protected(Attribute::Immutable))],
        props: &[],
        repeats: false,
    },
    Case {
        id: "append-only-attribute",
        summary: "a file in an emptyDir is append-only (chattr +a); unlink is EPERM",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Protected(Attribute::AppendOnly))],
        props: &[],
        repeats: false,
    },
    Case {
        id: "csi-driver-lost-publish-state-silent",
        summary: "the same with a kubelet from 1.30 on, which only waits: no call fails",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::ForgotInSilence)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "csi-driver-not-registered",
        summary: "the CSI driver is not on the node: kubelet cannot ask it and makes no call",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Missing)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "vol-data-missing-or-corrupt",
        summary: "kubelet's vol_data.json is empty: it cannot find the driver and makes no call",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Unknown)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "data-under-mountpoint",
        summary: "files lie in the mount point of a volume that is not mounted; rmdir is ENOTEMPTY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::UnmountedEarly)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "subpath-source-deleted",
        summary: "kubelet skips the umount of a subPath; rmdir of its directory is ENOTEMPTY",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::SubPath)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "writer-still-alive",
        summary: "a process goes on writing into an emptyDir that is removed; rmdir is ENOTEMPTY",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        props: &[Prop::Writer],
        repeats: false,
    },
    Case {
        id: "orphaned-pod-dir",
        summary: "kubelet fails every 2 s to remove the directory of a pod that is long gone",
        volumes: &[csi(PV, Driver::Orphaned)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "dstate-process",
        summary: "a container was killed and does not end: it waits for a frozen file system",
        volumes: &[TOKENS, LOGS],
        props: &[Prop::Unkillable],
        repeats: false,
    },
    Case {
        id: "cgroup-v1-frozen",
        summary: "a container was killed and does not end: its pod's control group is frozen",
        volumes: &[TOKENS, LOGS],
        props: &[Prop::FrozenGroup],
        repeats: false,
    },
    Case {
        id: "cgroup-populated-leftover",
        summary: "a process is left in the pod's control group, whose removal is EBUSY",
        volumes: &[TOKENS, LOGS],
        props: &[Prop::GroupMember],
        repeats: false,
    },
    Case {
        id: "disk-full-runtime",
        summary: "the disk of kubelet's root is full: kubelet cannot write, and does nothing",
        volumes: &[TOKENS, LOGS],
        props: &[Prop::FullDisk],
        repeats: false,
    },
    Case {
        id: "node-fs-readonly",
        summary: "the disk of kubelet's root has become read-only; every removal is EROFS",
        volumes: &[TOKENS, LOGS],
        props: &[Prop::ReadOnlyDisk],
        repeats: false,
    },
    Case {
        id: "emptydir-mass-files",
        summary: "an emptyDir has hundreds of thousands of files: slow, not stuck",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Many)],
        props: &[],
        repeats: false,
    },
    Case {
        id: "fuse-daemon-hung",
        summary: "a FUSE server in an emptyDir does not answer: the removal waits for it",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        props: &[Prop::SilentServer],
        repeats: false,
    },
    Case {
        id: "fuse-daemon-dead",
        summary: "a FUSE server in an emptyDir is gone, its mount is not; openat is ENOTCONN",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        props: &[Prop::DeadServer],
        repeats: false,
    },
    Case {
        id: "filesystem-frozen",
        summary: "the file system of the emptyDirs is frozen: the removal waits until it is thawed",
        volumes: &[TOKENS, empty_dir("data", Kind::Files)],
        props: &[Prop::Frozen],
        repeats: false,
    },
    Case {
        id: "umount-flush-slow",
        summary: "a volume's disk is slow: umount2 has returned, and much is still to be written",
        volumes: &[TOKENS, LOGS, Volume { plugin: ISCSI, name: "pv", kind: Kind::Mounted }],
        props: &[Prop::SlowDisk],
        repeats: false,
    },
    Case {
        id: "umount-kernel-hang",
        summary: "a volume's disk has stopped: umount2 has returned, and its caller waits for ever",
        volumes: &[TOKENS, LOGS, Volume { plugin: ISCSI, name: "pv", kind: Kind::Mounted }],
        props: &[Prop::StoppedDisk],
        repeats: false,
    },
];

/// The case of this id.
pub fn find(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}
