//! What can be played: each case is a pod with certain volumes.

use podstuck_engine::{cause::CauseId, model::finding::Severity};

use super::attribute::Attribute;

/// A cause that the lab can build.
#[derive(Debug)]
pub struct Case {
    /// Its own name, as in `csi-driver-lost-publish-state-silent`.
    pub id: &'static str,
    /// The cause that it builds; `None` where nothing is wrong.
    pub cause: Option<CauseId>,
    /// One line for the list of cases.
    pub summary: &'static str,
    /// What the machine must have and may lack, beside root and the kernel's types.
    pub needs: Option<&'static str>,
    /// Options of `podstuck lab` with which the finding comes to its last form. Without a duration, that
    /// takes some seconds after its first report.
    pub options: &'static [&'static str],
    /// Those of a `podstuck watch` beside it.
    pub watch_options: &'static [&'static str],
    /// What is to be found.
    pub expected: Option<Expected>,
    /// Another cause that may be found when the lab ends, and its processes one after the other.
    pub aftermath: Option<CauseId>,
    /// The pod's volumes; the last is the one that the case is about.
    pub(super) volumes: &'static [Volume],
    /// What else there is.
    pub(super) fixtures: &'static [Fixture],
    /// Whether pods are built and deleted one after the other until the end.
    pub(super) repeats: bool,
}

/// What a finding about a case says, in the names of the tool's JSON.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The call that shows the fault, as in `unlinkat+AT_REMOVEDIR`; `None` without one.
    pub syscall: Option<&'static str>,
    /// How it ended: `ok` or the errno's name. None for one that has not; several where calls on the way
    /// up fail at nearly the same time, and each shows it.
    pub outcomes: &'static [&'static str],
    /// How the path of the object ends.
    pub object: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it keeps the pod from going away; `None` when that cannot be known.
    pub blocks: Option<bool>,
    /// Name of the process that calls, or that does not end.
    pub actor: Option<&'static str>,
    /// Whether it is about the pod, and not about the node.
    pub of_pod: bool,
}

impl Expected {
    /// Kubelet does not come on with the pod. Which call and object show it is to be filled in.
    pub(super) const STUCK: Self = Self {
        syscall: None,
        outcomes: &[],
        object: "",
        severity: Severity::Warning,
        blocks: Some(true),
        actor: Some("kubelet"),
        of_pod: true,
    };
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
    MassFiles,
    /// A directory that is not the pod's is mounted in it.
    ForeignMount,
    /// A directory that is not the pod's is mounted over it, read-only.
    Covered,
    /// A file system in memory.
    Memory,
    /// The same, with another one mounted in it.
    MemoryWithChild,
    /// A container has a directory in it by subPath, and what was mounted there is gone by name.
    SubPath,
    /// A disk of its own, with ext4.
    Disk,
    /// A file system that a fixture mounts.
    Mounted,
    /// Published by a CSI driver, by a bind mount.
    Csi(Driver),
}

/// How a CSI driver answers the request to unpublish.
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
    /// It cannot be reached, or does not answer: what is wrong is a fixture's.
    Silent,
    /// It unmounted long ago; another process has written into the mount point since.
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
    /// Kubelet tries at once and after 0.5, 1.5 and 3.5 s, and not once more: then there is time to look.
    /// All else is to be filled in.
    pub(super) const PLAIN: Self = Self {
        id: "",
        cause: None,
        summary: "",
        needs: None,
        options: &["--duration", "7s"],
        watch_options: &[],
        expected: None,
        aftermath: None,
        volumes: &[],
        fixtures: &[],
        repeats: false,
    };

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

    /// Whether the CSI driver is there, and is no fixture.
    pub(super) fn has_driver(&self) -> bool {
        let without = [Driver::Missing, Driver::Silent, Driver::ForgotInSilence].map(Kind::Csi);
        !self.volumes.iter().any(|volume| without.contains(&volume.kind))
    }

    /// Whether the API server no longer knows the pod, so that only housekeeping deals with it.
    pub(super) fn is_orphan(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::Csi(Driver::Orphaned))
    }

    /// Whether deletions must be slow enough for another process to write in between.
    pub(super) fn has_writer(&self) -> bool {
        self.fixtures.contains(&Fixture::Writer)
    }

    /// Whether the fault shows only after the pod is gone, so that the case stays until it is asked
    /// to end.
    pub(super) fn stays_until_stopped(&self) -> bool {
        let stays = [Fixture::PrivateCopy, Fixture::ManyMounts];
        self.fixtures.iter().any(|fixture| stays.contains(fixture))
    }

    /// Whether a container is there, for whose end kubelet waits.
    pub(super) fn has_container(&self) -> bool {
        self.fixtures
            .iter()
            .any(|fixture| matches!(fixture, Fixture::Unkillable | Fixture::FrozenGroup))
    }

    /// Whether kubelet has no space to write to.
    pub(super) fn has_full_disk(&self) -> bool {
        self.fixtures.contains(&Fixture::FullDisk)
    }

    /// Whether it builds a great many entries.
    pub(super) fn has_mass_files(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::MassFiles)
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

/// Something that is put in place before the removal begins.
///
/// Those of the namespace are set up in the removal process, after the volumes are mounted; the
/// others in the lab's own process, once the files are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixture {
    /// A process that keeps writing into the pod's emptyDir.
    Writer,
    /// A process works in the volume.
    HostProcess,
    /// A process that has the volume open until shortly after its first unmount was tried.
    Reader,
    /// A process of an agent works in its own copy of the volume, which receives unmounts.
    Agent,
    /// A process in a mount namespace of its own that has the volume mounted elsewhere.
    PrivateCopy,
    /// The volume has an active swap file.
    SwapFile,
    /// A process stays in the pod's control group.
    GroupMember,
    /// The pod's control group is frozen, and its container was killed.
    FrozenGroup,
    /// The pod's container was killed, and waits for a file system that is frozen.
    Unkillable,
    /// The file system of kubelet's root is full.
    FullDisk,
    /// The file system of kubelet's root is read-only.
    ReadOnlyDisk,
    /// A FUSE file system in the emptyDir `data` whose server answers nothing.
    SilentServer,
    /// The same, and the server is gone.
    DeadServer,
    /// The file system of kubelet's root is frozen.
    Frozen,
    /// The volume `pv` is on a disk that is slow to write.
    SlowDisk,
    /// The volume `pv` is on a disk that stops at the first write.
    StoppedDisk,
    /// A CSI driver and its registrar, in the mount namespace of kubelet's part, as on a node.
    DriverUp,
    /// The CSI driver has ended, and its registrar has not.
    DriverDown,
    /// The CSI driver is stopped.
    DriverStopped,
    /// A process has mounted a directory very many times.
    ManyMounts,
}
