//! How many entries a directory has that was not read to its end, from how far the reading came.

use super::Budget;

/// Entries that a guess may rest on.
const ENOUGH: u64 = 1024;
/// How much the density of entries may differ between what was read and the rest: an XFS directory in
/// which many entries were removed has holes.
const LEAST_ERROR: f64 = 0.05;
/// What tmpfs counts for each entry of a directory (`BOGO_DIRENT_SIZE`).
const TMPFS_ENTRY: u64 = 20;

/// File systems whose positions in a directory have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    Ext,
    Xfs,
    Tmpfs,
    Other,
}

impl FileSystem {
    /// By the type that `statfs` says.
    pub(super) fn of_type(magic: i64) -> Self {
        match magic {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x0102_1994 => Self::Tmpfs,
            _ => Self::Other,
        }
    }
}

/// How far a directory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) read: u64,
    /// Positions behind the first entry and behind the last one.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Of the directory itself, in bytes.
    pub(super) size: u64,
}

impl Reading {
    /// Whether it may end here: one directory takes no more than its share of the budget, unless only
    /// its end tells how large it is.
    pub(super) fn is_enough(&self, file_system: FileSystem, spent: f64) -> bool {
        let is_known = self.read >= ENOUGH && self.all(file_system).is_some();
        spent > if is_known { Budget::ONE_DIRECTORY } else { Budget::HARD_END }
    }

    /// All entries, and the standard error of that.
    pub(super) fn all(&self, file_system: FileSystem) -> Option<(f64, f64)> {
        let (first, last, read) = (self.first as f64, self.last as f64, self.read as f64);
        let end = match file_system {
            FileSystem::Tmpfs => {
                return Some(((self.size / TMPFS_ENTRY).max(self.read) as f64, 0.0));
            }
            // A directory with an index is read in the order of the names' hashes, 63 bits of it.
            FileSystem::Ext if self.last > self.size => i64::MAX as f64,
            FileSystem::Ext => self.size as f64,
            // Positions count eight bytes each.
            FileSystem::Xfs => self.size as f64 / 8.0,
            FileSystem::Other => return None,
        };
        if self.read < 2 || last <= first {
            return None;
        }
        let rest = ((end - last) * (read - 1.0) / (last - first)).max(0.0);
        Some((read + rest, rest * LEAST_ERROR.max(2.0 / read.sqrt())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(read: u64, first: u64, last: u64, size: u64) -> Reading {
        Reading { read, first, last, size }
    }

    #[test]
    fn the_rest_is_as_dense_as_what_was_read() {
        // A quarter of the hashes is gone, the next quarter was read.
        let quarter = 1_u64 << 61;
        let hashed = reading(10_001, quarter, 2 * quarter, 4 << 20);
        let (all, error) = hashed.all(FileSystem::Ext).unwrap();
        assert!((all - 30_001.0).abs() < 1.0 && (error - 1000.0).abs() < 1.0, "{all} {error}");
        // 24 bytes an entry, half of the directory.
        let (all, _) = reading(1001, 3, 3003, 48_000).all(FileSystem::Xfs).unwrap();
        assert!((all - 2000.0).abs() < 2.0, "{all}");
        assert_eq!(reading(5, 3, 9, 2000).all(FileSystem::Tmpfs), Some((100.0, 0.0)));
    }

    #[test]
    fn nothing_is_made_of_positions_without_a_meaning() {
        assert_eq!(reading(5000, 3, 9000, 2000).all(FileSystem::Other), None);
        assert_eq!(reading(1, 3, 3, 2000).all(FileSystem::Xfs), None);
        assert!(!reading(5000, 3, 9000, 2000).is_enough(FileSystem::Other, 1.0));
        assert!(reading(5000, 3, 9000, 90_000).is_enough(FileSystem::Xfs, 0.5));
    }
}
