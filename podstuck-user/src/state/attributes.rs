//! Flags of an inode that make its removal fail, read from an object and its directory.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::{
    look::{Answer, seen_by},
    swap,
};

/// Flags of an inode that make its removal fail with EPERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `chattr +i`
    pub immutable: bool,
    /// `chattr +a`
    pub append_only: bool,
    /// Whether this file system reports both.
    pub known: bool,
}

/// Reads those of an object and of its directory, and what else keeps an object from being removed.
pub(super) fn read(
    pid: u32,
    directory: &Path,
    name: &OsStr,
    expected: (u32, u64),
) -> Result<Answer> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())
        .with_context(|| format!("opening {}", directory.display()))?;
    let wanted = StatxFlags::BASIC_STATS;
    let own = statx(&open, "", AtFlags::EMPTY_PATH, wanted).context("reading the directory")?;
    let object = statx(&open, name, AtFlags::SYMLINK_NOFOLLOW, wanted)
        .with_context(|| format!("reading {} in {}", name.display(), directory.display()))?;
    let device = kernel_dev(own.stx_dev_major, own.stx_dev_minor);
    Ok(Answer::Attributes {
        object: attribute_bits(&object),
        directory: attribute_bits(&own),
        same_directory: expected == (device, own.stx_ino),
        sticky: own.stx_mode & 0o1000 != 0,
        swap: swap::is_active(&object, |path| seen_by(pid, path.as_os_str())),
    })
}

/// `super_block.s_dev`: 12 bits of major number above 20 bits of minor (include/linux/kdev_t.h).
fn kernel_dev(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

fn attribute_bits(stat: &rustix::fs::Statx) -> Attributes {
    let wanted = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    Attributes {
        immutable: stat.stx_attributes.contains(StatxAttributes::IMMUTABLE),
        append_only: stat.stx_attributes.contains(StatxAttributes::APPEND),
        known: stat.stx_attributes_mask.contains(wanted),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::linux::fs::MetadataExt};

    use super::*;

    #[test]
    fn a_plain_file_has_no_attributes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let meta = fs::metadata(dir.path()).unwrap();
        let (major, minor) = (rustix::fs::major(meta.st_dev()), rustix::fs::minor(meta.st_dev()));
        let expected = (kernel_dev(major, minor), meta.st_ino());
        let answer = read(std::process::id(), dir.path(), "f".as_ref(), expected).unwrap();
        let Answer::Attributes { object, same_directory, .. } = answer else {
            panic!("an answer to another question");
        };
        assert!(!object.immutable && !object.append_only && same_directory);
    }
}
