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

    /// Whether a container still lives, so that kubelet waits for it.
    pub(super) fn has_living_container(&self) -> bool {
        self.props.iter().any(|prop| matches!(prop, Prop::Unkillable | Prop::FrozenGroup))
    }

    /// Whether kubelet has no room to write.
    pub(super) fn has_full_disk(&self) -> bool {
        self.props.contains(&Prop::FullDisk)
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
