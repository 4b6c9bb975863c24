//! The btrfs subvolume of a directory, and whether it is read-only: the helper's side. Mountinfo shows the property `ro`
//! of a subvolume nowhere.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::{
    fs::{Access, AtFlags, OFlags, StatVfsMountFlags, StatxFlags, accessat, fstatfs, fstatvfs},
    io::Errno,
};

use super::{
    asked::Beneath,
    seen_by::{Root, file_id},
};
use podstuck_model::{file_system::Subvolume, query::ReadSubvolume};

/// `BTRFS_SUPER_MAGIC` (linux/magic.h).
const BTRFS: u64 = 0x9123_683e;
/// Inode number of the root directory of each subvolume (linux/btrfs_tree.h, `BTRFS_FIRST_FREE_OBJECTID`).
const TOP: u64 = 256;

impl Beneath for ReadSubvolume {
    type Found = Option<Subvolume>;

    fn path(&self) -> (u32, &Path) {
        (self.pid, &self.directory)
    }

    fn read(&self) -> Result<Option<Subvolume>> {
        let Self { pid, directory } = self;
        let root = Root::of(*pid)?;
        let shown = || directory.display();
        let open = root.open(directory, OFlags::DIRECTORY);
        let open = open.with_context(|| format!("opening {}", shown()))?;
        let of = fstatfs(&open).with_context(|| format!("reading the type below {}", shown()))?;
        if of.f_type.cast_unsigned() != BTRFS {
            return Ok(None);
        }
        let own = open.statx(StatxFlags::INO)?;
        let mut above = directory.ancestors().filter_map(|path| {
            let stat = root.open(path, OFlags::DIRECTORY).ok()?.statx(StatxFlags::INO).ok()?;
            Some((path, file_id(&stat)))
        });
        // Each subvolume has a device number of its own.
        let device = file_id(&own).device;
        let top = above.find(|(_, file)| file.device == device && file.inode == TOP);
        let Some((path, file)) = top else { return Ok(None) };
        // `btrfs_permission` refuses with EROFS for the property alone; the kernel does so before that for a mount and
        // for a file system, and statfs(2) has both.
        let refused = accessat(&open, ".", Access::WRITE_OK, AtFlags::empty()) == Err(Errno::ROFS);
        let whole = fstatvfs(&open).with_context(|| format!("reading the flags of {}", shown()))?;
        let read_only = refused && !whole.f_flag.contains(StatVfsMountFlags::RDONLY);
        Ok(Some(Subvolume { path: path.into(), file, read_only }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_btrfs_has_subvolumes() {
        let (pid, directory) = (std::process::id(), "/proc".into());
        assert_eq!(ReadSubvolume { pid, directory }.read().unwrap(), None);
        let directory = "/nowhere".into();
        assert!(ReadSubvolume { pid, directory }.read().is_err());
    }
}
