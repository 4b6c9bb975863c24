//! What keeps a pod: real mechanisms, each with the call that fails over it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    fcntl::AT_FDCWD,
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{UnlinkatFlags, unlinkat},
};

/// A mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Immutable,
    AppendOnly,
    HeldOpen,
    HeldAsDirectory,
    MountedOn,
    MountInside,
    ReadOnly,
}

impl Kind {
    /// `count` of them, of all kinds in turn.
    pub(crate) fn of_a_node(count: usize) -> impl Iterator<Item = Self> {
        let often = [
            Self::Immutable,
            Self::HeldOpen,
            Self::AppendOnly,
            Self::MountedOn,
            Self::HeldAsDirectory,
            Self::MountInside,
            Self::ReadOnly,
        ];
        often.into_iter().cycle().take(count)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Immutable => "immutable file",
            Self::AppendOnly => "append-only file",
            Self::HeldOpen => "volume held by an open file",
            Self::HeldAsDirectory => "volume held as a working directory",
            Self::MountedOn => "mount on the volume",
            Self::MountInside => "mount inside an emptyDir",
            Self::ReadOnly => "kubelet's file system is read-only",
        }
    }

    /// The finding that names it.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Immutable => "immutable-attribute",
            Self::AppendOnly => "append-only-attribute",
            Self::HeldOpen | Self::HeldAsDirectory => "volume-held-by-host-process",
            Self::MountedOn => "nested-mount-under-volume",
            Self::MountInside => "emptydir-bidirectional-submount",
            Self::ReadOnly => "node-fs-readonly",
        }
    }

    /// Makes it.
    pub(crate) fn set_up(self, volume: &Path) -> Result<()> {
        let (file, directory) = (volume.join("file"), volume.join("directory"));
        match self {
            Self::Immutable | Self::AppendOnly => {
                fs::write(&file, "")?;
                let letter = if self == Self::Immutable { "+i" } else { "+a" };
                run(Command::new("chattr").arg(letter).arg(&file))
            }
            Self::HeldOpen | Self::HeldAsDirectory => memory(volume),
            Self::MountedOn => {
                memory(volume)?;
                fs::create_dir(&directory)?;
                memory(&directory)
            }
            Self::MountInside => {
                fs::create_dir(&directory)?;
                memory(&directory)
            }
            // The disk comes when all of its pods are made.
            Self::ReadOnly => Ok(fs::write(&file, "")?),
        }
    }

    /// What kubelet tries.
    pub(crate) fn remove(self, volume: &Path) -> Result<(), Errno> {
        let unlink = |name, flags| unlinkat(AT_FDCWD, &volume.join(name), flags);
        match self {
            Self::Immutable | Self::AppendOnly | Self::ReadOnly => {
                unlink("file", UnlinkatFlags::NoRemoveDir)
            }
            Self::MountInside => unlink("directory", UnlinkatFlags::RemoveDir),
            Self::HeldOpen | Self::HeldAsDirectory | Self::MountedOn => {
                umount2(volume, MntFlags::empty())
            }
        }
    }

    /// Whether it does not end with the mount namespace.
    pub(crate) fn outlives(self) -> bool {
        matches!(self, Self::Immutable | Self::AppendOnly)
    }
}

/// A tmpfs.
pub(crate) fn memory(point: &Path) -> Result<()> {
    mount(Some("stuck"), point, Some("tmpfs"), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("mounting a tmpfs on {}", point.display()))
}

/// Nothing can be changed there any more.
pub(crate) fn make_read_only(point: &Path) -> Result<()> {
    let (flags, none) = (MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>);
    mount(none, point, none, flags, none).context("making a file system read-only")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
