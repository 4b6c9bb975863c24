//! Flags of an inode that make its removal fail, read from an object and its directory.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags, statx};

use super::{
    asked::Beneath,
    seen_by::{Root, file_id},
    swap,
};
use podstuck_model::{
    object::Attributes,
    query::{ObjectAttributes, ReadAttributes},
};

impl Beneath for ReadAttributes {
    type Found = ObjectAttributes;

    fn path(&self) -> (u32, &Path) {
        (self.pid, &self.directory)
    }

    fn read(&self) -> Result<ObjectAttributes> {
        let Self { pid, directory, name, expected } = self;
        let root = Root::of(*pid)?;
        let open = root
            .open(directory, OFlags::DIRECTORY)
            .with_context(|| format!("opening {}", directory.display()))?;
        let wanted = StatxFlags::BASIC_STATS;
        let own = statx(&open, "", AtFlags::EMPTY_PATH, wanted).context("reading the directory")?;
        let object = statx(&open, name, AtFlags::SYMLINK_NOFOLLOW, wanted)
            .with_context(|| format!("reading {} in {}", name.display(), directory.display()))?;
        let device = kernel_dev(own.stx_dev_major, own.stx_dev_minor);
        // The table has paths of our own namespace, or of the one in which swapping was switched on.
        let here = Root::of_place(&(None, OsString::new()))?;
        let look = |root: &Root, path: &Path| {
            root.open(path, OFlags::NOFOLLOW).ok()?.statx(StatxFlags::INO).ok()
        };
        let swap = swap::is_active(&object, |path| look(&root, path).or_else(|| look(&here, path)));
        Ok(ObjectAttributes {
            object: attribute_bits(&object),
            directory: attribute_bits(&own),
            same_directory: *expected == (device, own.stx_ino),
            sticky: own.stx_mode & 0o1000 != 0,
            swap: swap == Some(true),
            swap_unknown: swap.is_none(),
            files: Some((file_id(&object), file_id(&own))),
        })
    }
}

/// `super_block.s_dev`: 12 bits of major number above 20 bits of minor (include/linux/kdev_t.h).
fn kernel_dev(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

pub(super) fn attribute_bits(stat: &rustix::fs::Statx) -> Attributes {
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
        let pid = std::process::id();
        let directory = dir.path().into();
        let asked = ReadAttributes { pid, directory, name: "f".into(), expected };
        let ObjectAttributes { object, same_directory, .. } = asked.read().unwrap();
        assert!(!object.immutable && !object.append_only && same_directory);
    }
}
