//! Processes that wait for a lock on a file, and the one that has it: `/proc/locks`, in which each lock
//! is followed by those that wait for it, with the same number (`locks_show` in fs/locks.c).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use podstuck_confine::{proc, silent};

/// Descriptors of a process that are looked at.
const DESCRIPTORS: usize = 4096;

/// A process that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) pid: u32,
    /// PID of the process that has the lock; `None` where the kernel does not say, as for an open file description lock.
    pub(super) holder: Option<u32>,
}

/// As in `3: -> FLOCK  ADVISORY  WRITE 14664 fe:00:5816833 0 EOF`, with and without the arrow.
pub(super) fn waiters(table: &[u8]) -> Vec<Waiter> {
    let text = String::from_utf8_lossy(table);
    let (mut found, mut held) = (Vec::new(), None);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(number) = words.next() else { continue };
        let mut words = words.peekable();
        let waits = words.peek() == Some(&"->");
        let pid = words.nth(if waits { 4 } else { 3 });
        let pid: Option<u32> = pid.and_then(|pid| pid.parse().ok());
        if !waits {
            held = Some((number, pid));
        } else if let Some(pid) = pid {
            let holder = held.filter(|(of, _)| *of == number).and_then(|(_, holder)| holder);
            found.push(Waiter { pid, holder });
        }
    }
    found
}

/// The processes that have an exclusive lock of flock(2).
pub(super) fn exclusive(table: &[u8]) -> BTreeSet<u32> {
    let text = String::from_utf8_lossy(table);
    let holder = |line: &str| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, "WRITE", pid, ..] => pid.parse().ok(),
        _ => None,
    };
    text.lines().filter_map(holder).collect()
}

/// A file of a database that a process has open, and whether it has the exclusive lock on it.
pub(super) struct Database {
    pub(super) file: PathBuf,
    pub(super) is_locked: bool,
}

/// Those of a process, by their names: its links, and the locks that the kernel lists for each descriptor
/// (`show_fd_locks` in fs/locks.c, since Linux 4.1).
pub(super) fn databases(place: &Path) -> Vec<Database> {
    let found = silent::read(place, |place| {
        let all = fs::read_dir(place.join("fd")).ok()?.flatten().take(DESCRIPTORS);
        let database = |entry: fs::DirEntry| {
            let file = fs::read_link(entry.path()).ok()?;
            file.extension().filter(|end| *end == "db")?;
            let info = proc::utf8(&place.join("fdinfo").join(entry.file_name()))?;
            let is_lock = |line: &str| {
                line.starts_with("lock:") && line.contains(" FLOCK ") && line.contains(" WRITE ")
            };
            Some(Database { file, is_locked: info.lines().any(is_lock) })
        };
        Some(all.filter_map(database).collect())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_an_exclusive_lock_is_found() {
        let table = b"1: FLOCK  ADVISORY  WRITE 70 fe:00:33 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 71 fe:00:33 0 EOF\n\
            2: FLOCK  ADVISORY  READ 72 fe:00:34 0 EOF\n\
            3: POSIX  ADVISORY  WRITE 80 fe:00:34 0 EOF\n";
        assert_eq!(exclusive(table), BTreeSet::from([70]));
    }

    #[test]
    fn fuzz_locks() {
        podstuck_fuzz::fuzz("locks", |input| {
            let _ = waiters(input);
        });
    }

    #[test]
    fn who_waits_is_found_with_who_has_it() {
        let table = b"1: FLOCK  ADVISORY  WRITE 70 fe:00:33 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 71 fe:00:33 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 80 fe:00:34 0 EOF\n\
            3: OFDLCK ADVISORY  WRITE -1 fe:00:35 0 EOF\n\
            3: -> OFDLCK ADVISORY  WRITE -1 fe:00:35 0 EOF\n\
            3: -> POSIX  ADVISORY  WRITE 72 fe:00:35 0 EOF\n";
        let waiter = |pid, holder| Waiter { pid, holder };
        assert_eq!(waiters(table), [waiter(71, Some(70)), waiter(72, None)]);
    }
}
