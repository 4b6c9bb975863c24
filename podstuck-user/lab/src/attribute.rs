//! File attributes (`chattr`) that forbid deletion.

use std::{fs::File, path::Path};

use anyhow::{Context, Result};
use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open};

/// An attribute that forbids deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// `chattr +i`
    Immutable,
    /// `chattr +a`
    AppendOnly,
}

impl Attribute {
    fn flag(self) -> IFlags {
        match self {
            Self::Immutable => IFlags::IMMUTABLE,
            Self::AppendOnly => IFlags::APPEND,
        }
    }

    /// Its letter for `chattr`.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Immutable => 'i',
            Self::AppendOnly => 'a',
        }
    }
}

/// Sets the attribute, in addition to those that the file has.
pub(super) fn set(path: &Path, attribute: Attribute) -> Result<()> {
    let file = open_here(path)?;
    let flags = ioctl_getflags(&file).with_context(|| cannot("read", path))?;
    ioctl_setflags(&file, flags | attribute.flag()).with_context(|| cannot("set", path))
}

/// Removes both attributes from the file or directory.
pub(super) fn clear(path: &Path) -> Result<()> {
    let file = open_here(path)?;
    let flags = ioctl_getflags(&file).with_context(|| cannot("read", path))?;
    let allowed = flags - IFlags::IMMUTABLE - IFlags::APPEND;
    if allowed != flags {
        ioctl_setflags(&file, allowed).with_context(|| cannot("clear", path))?;
    }
    Ok(())
}

/// Opens the file itself: follows no link, and does not block on a FIFO.
fn open_here(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty());
    Ok(file.with_context(|| format!("cannot open {}", path.display()))?.into())
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} the attributes of {}", path.display())
}
