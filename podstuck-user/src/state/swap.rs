//! Active swap files. The kernel refuses to remove one (EPERM) and to unmount what it lies on
//! (EBUSY).

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::Statx;

use crate::model::mountinfo::unescape;

/// Paths of active swap files, as the namespace of each sees it, from the text of `/proc/swaps`.
/// Reading that file waits for a `swapon` under way: only in a helper process.
pub(super) fn files(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    // `/swapfile  file  1048572  0  -2`
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| byte.is_ascii_whitespace()).filter(|f| !f.is_empty());
        let path = fields.next()?;
        (fields.next()? == b"file").then(|| unescape(path))
    })
}

/// Whether an object is one of them; `look` finds a path in the view of the process that met it.
pub(super) fn is_active(object: &Statx, look: impl Fn(&Path) -> Option<Statx>) -> bool {
    let identity = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    let table = fs::read("/proc/swaps").unwrap_or_default();
    files(&table).any(|path| look(&path).is_some_and(|stat| identity(&stat) == identity(object)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_partitions_are_no_files() {
        let table = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/vda2                               partition\t1048572\t0\t-2\n\
            /v/swap\\040file                         file\t\t4092\t\t0\t\t-3\n";
        assert_eq!(files(table).collect::<Vec<_>>(), [PathBuf::from("/v/swap file")]);
    }
}
