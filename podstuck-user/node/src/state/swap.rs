//! Active swap files. The kernel refuses to remove one (EPERM) and to unmount what it lies on
//! (EBUSY).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{FileType, Statx};

use podstuck_model::mountinfo::unescape;

/// An active swap file, as `/proc/swaps` lists it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Area {
    /// As the namespace in which swapping was switched on sees it.
    pub(super) path: PathBuf,
    /// Bytes of the area, which lies within the file; 0 where the table has none.
    size: u64,
}

/// Active swap files, from the text of `/proc/swaps`. Reading that file waits for a `swapon` under way: only in a
/// helper process.
pub(super) fn files(table: &[u8]) -> impl Iterator<Item = Area> {
    // `/swapfile  file  1048572  0  -2`, in KiB
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| byte.is_ascii_whitespace()).filter(|f| !f.is_empty());
        let path = fields.next()?;
        let is_file = fields.next()? == b"file";
        let size = fields.next().and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
        let size = size.unwrap_or(0_u64).saturating_mul(1024);
        is_file.then(|| Area { path: unescape(path), size })
    })
}

/// Whether an object is one of them; `look` finds a path in the view of the process that met it. `None` when
/// the table, or the file that it might be, cannot be looked at.
pub(super) fn is_active(object: &Statx, look: impl Fn(&Path) -> Option<Statx>) -> Option<bool> {
    match fs::read("/proc/swaps") {
        Ok(table) => is_in(&table, object, look),
        // A kernel that does not swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

fn is_in(table: &[u8], object: &Statx, look: impl Fn(&Path) -> Option<Statx>) -> Option<bool> {
    let identity = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    // The table keeps paths of mounts that no process sees any more. The kernel swaps to regular files only, and refuses
    // a header with more pages than the file has (read_swap_header in mm/swapfile.c).
    let may_be = |area: &Area| {
        FileType::from_raw_mode(object.stx_mode.into()) == FileType::RegularFile
            && object.stx_size >= area.size
    };
    let mut all_seen = true;
    for area in files(table) {
        match look(&area.path) {
            Some(stat) if identity(&stat) == identity(object) => return Some(true),
            Some(_) => {}
            None => all_seen &= !may_be(&area),
        }
    }
    all_seen.then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_partitions_are_no_files() {
        let table = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/vda2                               partition\t1048572\t0\t-2\n\
            /v/swap\\040file                         file\t\t4092\t\t0\t\t-3\n";
        let area = Area { path: "/v/swap file".into(), size: 4092 * 1024 };
        assert_eq!(files(table).collect::<Vec<_>>(), [area]);
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_none() {
        let look = |path: &Path| {
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::BASIC_STATS)
                .ok()
        };
        let one = b"/proc/self/status file 0 0 -2\n";
        let other = look(Path::new("/proc/self/stat")).unwrap();
        assert_eq!(is_in(b"", &other, look), Some(false));
        assert_eq!(is_in(one, &other, look), Some(false));
        assert_eq!(is_in(one, &other, |_| None), None, "it may be this one");
        let both = b"/nonexistent file 1 0 -2\n/proc/self/stat file 1 0 -3\n";
        assert_eq!(is_in(both, &other, look), Some(true));
        // A file of `/proc` is empty: no area fits in it.
        let larger = b"/gone file 1020 0 -2\n";
        assert_eq!(is_in(larger, &other, |_| None), Some(false));
        let directory = look(Path::new("/proc/self")).unwrap();
        assert_eq!(is_in(one, &directory, |_| None), Some(false), "it is no regular file");
    }
}
