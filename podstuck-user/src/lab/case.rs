//! What can be played: each case is a pod with certain volumes.

use super::{attribute::Attribute, prop::Prop};

/// A cause that the lab can build.
#[derive(Debug)]
pub struct Case {
    /// The finding's id, as in `immutable-attribute`.
    pub id: &'static str,
    /// One line for the list of cases.
    pub summary: &'static str,
    /// The pod's volumes; the last is the one that the case is about.
    pub(super) volumes: &'static [Volume],
    /// What else there is.
    pub(super) props: &'static [Prop],
    /// Whether pods are built and deleted one after the other until the end.
    pub(super) repeats: bool,
}

/// One volume of the pod.
#[derive(Debug)]
pub(super) struct Volume {
    /// The plugin's directory, as in `kubernetes.io~empty-dir`.
    pub(super) plugin: &'static str,
    /// The volume's directory below it.
    pub(super) name: &'static str,
    /// What is in it, and what is wrong with it.
    pub(super) kind: Kind,
}

/// What is in a volume, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files and directories.
    Files,
    /// The same, and a file some levels down that may not be deleted.
    Protected(Attribute),
    /// Very many files and directories.
    Many,
    /// Somebody else's directory is mounted in it.
    ForeignMount,
    /// A file system in memory.
    Memory,
    /// The same, with another one mounted in it.
    MemoryWithChild,
    /// A container has a directory in it by subPath, and what was mounted there is gone by name.
    SubPath,
    /// A disk of its own, with ext4.
    Disk,
    /// A file system that a prop mounts.
    Mounted,
    /// Published by a CSI driver, by a bind mount.
    Csi(Driver),
}

/// How a CSI driver answers when it is told to unpublish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// It unmounts.
    Works,
    /// It forgot what it had published, says "nothing to do", and that all is well.
    Forgot,
    /// The same, and kubelet (from 1.30 on) sees the mount, and waits for its end without a word.
    ForgotInSilence,
    /// It had published twice, one mount over the other, and unmounts once.
    PublishedTwice,
    /// It is not there.
    Missing,
    /// It unmounted long ago; somebody wrote into the mount point since.
    UnmountedEarly,
    /// kubelet lost what it knew of the volume, and does not find it.
    Unknown,
    /// The pod is gone from the API server, and its directory stayed.
    Orphaned,
}

impl Driver {
    /// Whether its volume is mounted when the deletion begins.
    pub(super) fn has_mounted(self) -> bool {
        !matches!(self, Self::UnmountedEarly | Self::Orphaned)
    }
}

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

impl Case {
    /// The volume that the case is about.
    pub(super) fn subject(&self) -> Option<&'static Volume> {
        self.volumes.last()
    }

    /// The attribute that one of its files gets.
    pub(super) fn attribute(&self) -> Option<Attribute> {
        self.volumes.iter().find_map(|volume| match volume.kind {
            Kind::Protected(attribute) => Some(attribute),
            _ => None,
        })
    }

    /// Whether the CSI driver is there.
    pub(super) fn has_driver(&self) -> bool {
        !self.volumes.iter().any(|volume| volume.kind == Kind::Csi(Driver::Missing))
    }

    /// Whether the API server no longer knows the pod, so that only housekeeping deals with it.
    pub(super) fn is_orphan(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::Csi(Driver::Orphaned))
    }

    /// Whether deletions must be slow enough for somebody to write in between.
    pub(super) fn has_writer(&self) -> bool {
        self.props.contains(&Prop::Writer)
    }

    /// Whether the fault shows only after the pod is gone, so that the case stays until it is told
    /// to end.
    pub(super) fn lingers(&self) -> bool {
        self.props.contains(&Prop::PrivateCopy)
    }

    /// Whether it builds a great many entries.
    pub(super) fn has_many(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::Many)
    }
}

impl Volume {
    /// The directory below the pod's `plugins` that says it was set up; none for CSI.
    pub(super) fn ready_name(&self) -> Option<String> {
        match (self.plugin, self.kind) {
            (_, Kind::Csi(_) | Kind::Mounted) => None,
            ("kubernetes.io~empty-dir", _) => Some(self.name.into()),
            // Tokens and the like are an emptyDir under another name to kubelet.
            _ => Some(format!("wrapped_{}", self.name)),
        }
    }
}
