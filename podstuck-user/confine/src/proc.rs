//! Lists of `/proc`: processes, threads, and what one of them sees mounted. Reading these touches no other
//! file system. States, starts and namespaces are not known of who does not answer ([`crate::silent`]); the
//! rest takes no lock of a process.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use podstuck_model::{mountinfo, mounts::Mounts};

use crate::silent;

/// All process ids, ascending.
pub fn processes() -> Vec<u32> {
    processes_in(Path::new("/proc"))
}

/// The same of another node's or namespace's `/proc`, mounted at `proc`.
pub fn processes_in(proc: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = numbers(proc).collect();
    pids.sort_unstable();
    pids
}

/// All threads of a process, in the order of the kernel's list; none when it has ended.
pub fn threads(pid: u32) -> impl Iterator<Item = u32> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Name of a process or thread, given its directory, as its bytes; empty when it has ended.
pub fn comm(directory: &Path) -> Vec<u8> {
    let mut comm = fs::read(directory.join("comm")).unwrap_or_default();
    comm.pop_if(|byte| *byte == b'\n');
    comm
}

/// What is read of a command line that is a kubelet's, a runtime's or a registrar's: one word may be of 128 KiB
/// (`MAX_ARG_STRLEN`).
pub const COMMAND_LINE: usize = 128 << 10;

/// The beginning of a command line, its words ended by NUL: a process may make its own as long as its memory.
///
/// # Errors
/// Fails when the process has ended.
pub fn command_line(process: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(process.join("cmdline"))?.take(most as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// What `stat` says of a process or a thread: fields 3, 4 and 22 of proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Its state.
    pub state: char,
    /// Its parent; 0 of one outside of the own PID namespace.
    pub parent: u32,
    /// When it was started, in ticks since boot.
    pub started: u64,
}

impl Stat {
    /// Reads it, given the directory; `None` when it has ended.
    pub fn read(directory: &Path) -> Option<Self> {
        let text = silent::read(directory, |directory| fs::read(directory.join("stat")).ok())?;
        // The name may hold anything, also brackets.
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            started: fields.nth(17)?.parse().ok()?,
        })
    }

    /// Whether it has not ended.
    pub fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// State and start, in ticks since boot, of a thread. `None` when it has ended.
pub fn stat(pid: u32, tid: u32) -> Option<(char, u64)> {
    stat_in(Path::new(&format!("/proc/{pid}/task/{tid}")))
}

/// The same, given its directory.
pub fn stat_in(directory: &Path) -> Option<(char, u64)> {
    Stat::read(directory).map(|it| (it.state, it.started))
}

/// Whether a thread still exists. That takes no descriptor.
pub fn exists(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Whether a state is that of who was stopped by a signal or by its tracer, and does nothing.
pub fn is_stopped(state: char) -> bool {
    matches!(state, 'T' | 't')
}

/// When a process was started, in ticks since boot; `None` when it has ended.
pub fn started(pid: u32) -> Option<u64> {
    Some(stat(pid, pid)?.1)
}

/// The namespace of a kind (`mnt`, `user`) that a process is in, given its directory: the text of the link,
/// which is read and not followed. `None` when it has ended, and of a kind that the kernel does not have.
pub fn namespace(directory: &Path, kind: &str) -> Option<PathBuf> {
    silent::read(directory, |directory| fs::read_link(directory.join("ns").join(kind)).ok())
}

/// The inode number in the text of a link or the root of a mount, as in `mnt:[4026531841]`.
pub fn mount_namespace(text: &Path) -> Option<u32> {
    text.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

/// Mounts that a process sees; `None` when it has ended.
///
/// No descriptor of the table is kept: an open one keeps the whole namespace alive, with every mount
/// in it, also after its last process (`proc_mounts_open` in fs/proc_namespace.c takes a reference).
pub fn mounts(pid: u32) -> Option<Mounts> {
    let text = fs::read(mount_table(pid)).ok()?;
    Some(parse_mounts(pid, &text))
}

/// The text of a process's mount table, taken apart.
pub fn parse_mounts(pid: u32, text: &[u8]) -> Mounts {
    Mounts { all: mountinfo::parse(text), source: mount_table(pid), pid }
}

/// The file with a process's mounts.
pub fn mount_table(pid: u32) -> String {
    format!("/proc/{pid}/mountinfo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_mountinfo() {
        podstuck_fuzz::fuzz("mountinfo", |input| {
            let mounts = parse_mounts(7, input);
            for mount in &mounts.all {
                let _ = (mount.describe(), mount.is_read_only(), mount.is_super_read_only());
                let _ = mounts.covering(&mount.point);
            }
        });
    }

    #[test]
    fn own_process_is_listed_with_its_threads_and_mounts() {
        let own = std::process::id();
        let pids = processes();
        assert!(pids.is_sorted() && pids.contains(&own));
        assert!(threads(own).any(|tid| tid == own));
        assert_eq!(threads(u32::MAX >> 1).count(), 0);
        let (state, start) = stat(own, own).unwrap();
        assert!(!is_stopped(state) && start > 0 && started(own) == Some(start));
        assert!(!comm(Path::new("/proc/self")).is_empty());
        assert!(mounts(own).is_some_and(|mounts| mounts.at(Path::new("/proc")).count() >= 1));
        assert_eq!(mounts(u32::MAX >> 1), None);
    }
}
