//! The special property of a machine.

/// The special property of a machine, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Usual,
    /// Disks that do not respond
    Faulty,
    /// A hostile tenant
    Attacked,
    /// Concurrent processors, not in turn
    AtOnce,
    /// Room for many more processors than there are, as on a node whose machine type can grow
    ManyPossible,
    /// A kernel that lets no program read its memory
    LockedDown,
    /// A kernel that enforces SELinux
    Confined,
    /// A disk with a Debian release and its runtimes
    Runtimes(OciRuntime),
}

/// The OCI runtime of all container runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OciRuntime {
    Runc,
    Crun,
}

impl OciRuntime {
    /// Its program.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }
}

impl Kind {
    /// The suffix of the machine's name.
    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Faulty => ", faults",
            Self::Attacked => ", attacks",
            Self::AtOnce => ", processors at once",
            Self::ManyPossible => ", 128 possible processors",
            Self::LockedDown => ", locked down",
            Self::Confined => ", SELinux",
            Self::Runtimes(OciRuntime::Runc) => ", runtimes with runc",
            Self::Runtimes(OciRuntime::Crun) => ", runtimes with crun",
        }
    }

    /// The suffix of the log's name.
    pub(super) const fn file_name(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Faulty => "-faults",
            Self::Attacked => "-attacks",
            Self::AtOnce => "-at-once",
            Self::ManyPossible => "-many-possible",
            Self::LockedDown => "-locked-down",
            Self::Confined => "-selinux",
            Self::Runtimes(OciRuntime::Runc) => "-runc",
            Self::Runtimes(OciRuntime::Crun) => "-crun",
        }
    }

    /// Maximum number of runs if the kernel dies of the emulator's faults, which are more frequent with a thread per
    /// processor.
    pub(super) const fn runs(self) -> usize {
        match self {
            Self::AtOnce => 4,
            Self::Usual
            | Self::Faulty
            | Self::Attacked
            | Self::ManyPossible
            | Self::LockedDown
            | Self::Confined
            | Self::Runtimes(_) => 2,
        }
    }
}
