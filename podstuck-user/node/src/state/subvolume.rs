//! The btrfs subvolume of a directory, and whether it is read-only: the helper's side. Mountinfo shows the property `ro`
//! of a subvolume nowhere.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::{
    fs::{Access, AtFlags, OFlags, StatVfsMountFlags, StatxFlags, accessat, fstatfs, fstatvfs},
    io::Errno,
};

use super::{
    asked::{AsWhom, Asked, Helped, in_helper},
    seen_by::{Root, file_id, while_it_lives},
};
use podstuck_confine::{
    alive::Occasion,
    helper::{Question, Share, Teller},
    role::Role,
};
use podstuck_model::{
    degraded::Feed,
    file_system::Subvolume,
    query::{NoAnswer, ReadSubvolume},
};

/// `BTRFS_SUPER_MAGIC` (linux/magic.h).
const BTRFS: u64 = 0x9123_683e;
/// Inode number of the root directory of each subvolume (linux/btrfs_tree.h, `BTRFS_FIRST_FREE_OBJECTID`).
const TOP: u64 = 256;

impl Asked for ReadSubvolume {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Option<Subvolume>, NoAnswer> {
        in_helper(share, Helped(self)).await
    }
}

impl Question for Helped<ReadSubvolume> {
    const IS_SHORT: bool = true;
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const OCCASION: Occasion = Occasion::Answered;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    type Answer = Option<Subvolume>;

    fn enters(&self) -> Option<(u32, &Path)> {
        Some((self.0.pid, &self.0.directory))
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Option<Subvolume>> {
        while_it_lives(self.0.pid, || self.read())
    }
}

impl Helped<ReadSubvolume> {
    fn read(&self) -> Result<Option<Subvolume>> {
        let ReadSubvolume { pid, directory } = &self.0;
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
        assert_eq!(Helped(ReadSubvolume { pid, directory }).read().unwrap(), None);
        let directory = "/nowhere".into();
        assert!(Helped(ReadSubvolume { pid, directory }).read().is_err());
    }
}
