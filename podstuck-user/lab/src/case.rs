//! The cases that the lab can play. Each is a pod with certain volumes.

use podstuck_engine::{cause::CauseId, model::finding::Severity};

use super::attribute::Attribute;

/// A case of the lab.
#[derive(Debug)]
pub struct Case {
    /// Its id, as in `csi-driver-lost-publish-state-silent`.
    pub id: &'static str,
    /// The cause that it produces; `None` for a healthy case.
    pub cause: Option<CauseId>,
    /// A one-line summary for the list of cases.
    pub summary: &'static str,
    /// Requirements that a machine may lack, in addition to root and the kernel's BTF.
    pub needs: Option<&'static str>,
    /// Options of `podstuck lab` with which the finding reaches its final form. Without a duration, that takes some
    /// seconds after its first report.
    pub options: &'static [&'static str],
    /// Options of `podstuck watch` for this case.
    pub watch_options: &'static [&'static str],
    /// The expected finding.
    pub expected: Option<Expected>,
    /// Another cause that may be found when the lab ends, while its processes end one after the other.
    pub aftermath: Option<CauseId>,
    /// The pod's volumes. The last is the subject of the case.
    pub(super) volumes: &'static [Volume],
    /// Additional fixtures.
    pub(super) fixtures: &'static [Fixture],
    /// Whether pods are built and deleted one after the other until the lab ends.
    pub(super) repeats: bool,
}

/// The expected content of a finding, with the names of the tool's JSON.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The call that shows the fault, as in `unlinkat+AT_REMOVEDIR`; `None` if no call does.
    pub syscall: Option<&'static str>,
    /// Possible outcomes of the call: `ok` or the name of an errno. Empty for a call that has not returned. Several
    /// if calls on successive directory levels fail at nearly the same time, and each can be reported.
    pub outcomes: &'static [&'static str],
    /// The end of the object's path.
    pub object: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it blocks the pod's deletion; `None` if this cannot be known.
    pub blocks: Option<bool>,
    /// Name of the process that makes the call or does not end.
    pub actor: Option<&'static str>,
    /// Whether the finding is about the pod, not about the node.
    pub of_pod: bool,
}

impl Expected {
    /// kubelet makes no progress with the pod. The call and the object are left open.
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
    /// Its content and its fault.
    pub(super) kind: Kind,
}

/// The content and the fault of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files and directories.
    Files,
    /// Files and directories, with a file some levels down that has this attribute.
    Protected(Attribute),
    /// Very many files and directories.
    MassFiles,
    /// A directory that does not belong to the pod is mounted in it.
    ForeignMount,
    /// A directory that does not belong to the pod is mounted over it, read-only.
    Covered,
    /// A file system in memory.
    Memory,
    /// A file system in memory, with another one mounted in it.
    MemoryWithChild,
    /// A container uses a directory of it through subPath, and the mounted directory has been deleted.
    SubPath,
    /// A disk of its own, with ext4.
    Disk,
    /// A file system that a fixture mounts.
    Mounted,
    /// Published by a CSI driver with a bind mount.
    Csi(Driver),
}

/// The behaviour of a CSI driver on NodeUnpublishVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// It unmounts.
    Works,
    /// It has lost its publish state and reports success without unmounting.
    Forgot,
    /// Like `Forgot`; kubelet (since 1.30) detects the mount and waits for its end without logging.
    ForgotInSilence,
    /// It has published twice, one mount over the other, and unmounts once.
    PublishedTwice,
    /// It is not registered.
    Missing,
    /// It is unreachable or does not answer; a fixture provides the fault.
    Silent,
    /// It unmounted long ago. Since then, another process has written into the mount point.
    UnmountedEarly,
    /// kubelet has lost its data about the volume and cannot tear it down.
    Unknown,
    /// The pod is gone from the API server, but its directory remains.
    Orphaned,
}

impl Driver {
    /// Whether its volume is mounted when the deletion begins.
    pub(super) fn has_mounted(self) -> bool {
        !matches!(self, Self::UnmountedEarly | Self::Orphaned)
    }
}

impl Case {
    /// kubelet tries at once and after 0.5, 1.5 and 3.5 s, and then never again, so that the state can be inspected.
    /// All other fields are left open.
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

    /// The volume that is the subject of the case.
    pub(super) fn subject(&self) -> Option<&'static Volume> {
        self.volumes.last()
    }

    /// The attribute of the protected file, if there is one.
    pub(super) fn attribute(&self) -> Option<Attribute> {
        self.volumes.iter().find_map(|volume| match volume.kind {
            Kind::Protected(attribute) => Some(attribute),
            _ => None,
        })
    }

    /// Whether the CSI driver is registered and no fixture provides it.
    pub(super) fn has_driver(&self) -> bool {
        let without = [Driver::Missing, Driver::Silent, Driver::ForgotInSilence].map(Kind::Csi);
        !self.volumes.iter().any(|volume| without.contains(&volume.kind))
    }

    /// Whether the API server no longer knows the pod, so that only kubelet's housekeeping removes it.
    pub(super) fn is_orphan(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::Csi(Driver::Orphaned))
    }

    /// Whether deletions must be slow enough for another process to write in between.
    pub(super) fn has_writer(&self) -> bool {
        self.fixtures.contains(&Fixture::Writer)
    }

    /// Whether the fault appears only after the pod is removed, so that the case runs until it is stopped.
    pub(super) fn stays_until_stopped(&self) -> bool {
        let stays = [Fixture::PrivateCopy, Fixture::ManyMounts];
        self.fixtures.iter().any(|fixture| stays.contains(fixture))
    }

    /// Whether there is a container whose end kubelet waits for.
    pub(super) fn has_container(&self) -> bool {
        self.fixtures
            .iter()
            .any(|fixture| matches!(fixture, Fixture::Unkillable | Fixture::FrozenGroup))
    }

    /// Whether kubelet's file system is full.
    pub(super) fn has_full_disk(&self) -> bool {
        self.fixtures.contains(&Fixture::FullDisk)
    }

    /// Whether it creates a very large number of entries.
    pub(super) fn has_mass_files(&self) -> bool {
        self.volumes.iter().any(|volume| volume.kind == Kind::MassFiles)
    }
}

impl Volume {
    /// The directory below the pod's `plugins` that marks the volume as set up; `None` for CSI.
    pub(super) fn ready_name(&self) -> Option<String> {
        match (self.plugin, self.kind) {
            (_, Kind::Csi(_) | Kind::Mounted) => None,
            ("kubernetes.io~empty-dir", _) => Some(self.name.into()),
            // For kubelet, a projected volume and its like are an emptyDir under another name.
            _ => Some(format!("wrapped_{}", self.name)),
        }
    }
}

/// Something that is set up before the removal begins.
///
/// Fixtures of the mount namespace are set up in the removal process, after the volumes are mounted; the others in
/// the lab's own process, after the files are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixture {
    /// A process that keeps writing into the pod's emptyDir.
    Writer,
    /// A process has its working directory in the volume.
    HostProcess,
    /// A process keeps the volume open until shortly after its first unmount.
    Reader,
    /// A process of an agent works in its own copy of the volume, which receives unmounts.
    Agent,
    /// A process in a private mount namespace has the volume mounted elsewhere.
    PrivateCopy,
    /// The volume has an active swap file.
    SwapFile,
    /// A process remains in the pod's cgroup.
    GroupMember,
    /// The pod's cgroup is frozen, and its container was killed.
    FrozenGroup,
    /// The pod's container was killed while it waits for a frozen file system.
    Unkillable,
    /// The file system of kubelet's root is full.
    FullDisk,
    /// The file system of kubelet's root is read-only.
    ReadOnlyDisk,
    /// A FUSE file system in the emptyDir `data` whose server never answers.
    SilentServer,
    /// A FUSE file system in the emptyDir `data` whose server has ended.
    DeadServer,
    /// The file system of kubelet's root is frozen.
    Frozen,
    /// The volume `pv` is on a disk that is slow to write.
    SlowDisk,
    /// The volume `pv` is on a disk that stops at the first write.
    StoppedDisk,
    /// A CSI driver and its registrar run in the mount namespace of the removal process, as on a node.
    DriverUp,
    /// The CSI driver has ended; its registrar still runs.
    DriverDown,
    /// The CSI driver is stopped (SIGSTOP).
    DriverStopped,
    /// A process has mounted a directory very many times.
    ManyMounts,
}
