//! What is unusual about a machine.

/// One of the machines is unlike the others in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Usual,
    /// It has disks that do not answer
    Faulty,
    /// It has a tenant who wants to mislead
    Attacked,
    /// Its processors run at once, and not in turn
    AtOnce,
    /// Its kernel lets no program read its memory
    LockedDown,
    /// Its kernel enforces SELinux
    Confined,
    /// It has a disk with a release of Debian's, and that release's runtimes
    Runtimes(OciRuntime),
}

/// What starts the containers of all runtimes.
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
    /// What is added to its name.
    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Faulty => ", faults",
            Self::Attacked => ", attacks",
            Self::AtOnce => ", processors at once",
            Self::LockedDown => ", locked down",
            Self::Confined => ", SELinux",
            Self::Runtimes(OciRuntime::Runc) => ", runtimes with runc",
            Self::Runtimes(OciRuntime::Crun) => ", runtimes with crun",
        }
    }

    /// What is added to the name of its log.
    pub(super) const fn file_name(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Faulty => "-faults",
            Self::Attacked => "-attacks",
            Self::AtOnce => "-at-once",
            Self::LockedDown => "-locked-down",
            Self::Confined => "-selinux",
            Self::Runtimes(OciRuntime::Runc) => "-runc",
            Self::Runtimes(OciRuntime::Crun) => "-crun",
        }
    }

    /// How often one may be run whose kernel dies of the emulator's faults, of which there are more with a
    /// thread for each processor.
    pub(super) const fn runs(self) -> usize {
        match self {
            Self::AtOnce => 4,
            Self::Usual
            | Self::Faulty
            | Self::Attacked
            | Self::LockedDown
            | Self::Confined
            | Self::Runtimes(_) => 2,
        }
    }
}
