//! Reads `/proc`: the lists of processes and threads, and the mount table of a process. These reads touch no other
//! file system. State, start time and namespaces are unavailable for a process that does not answer
//! ([`crate::silent`]); the other reads take no lock of the process.

use std::{
    collections::BTreeMap,
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

/// All process ids of another node's or namespace's `/proc`, mounted at `proc`, ascending.
pub fn processes_in(proc: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = numbers(proc).collect();
    pids.sort_unstable();
    pids
}

/// All threads of a process, in the order of the kernel's list; none when it has ended.
pub fn threads(pid: u32) -> impl Iterator<Item = u32> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

/// The children of a process; `None` when it has ended, or where the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn children(pid: u32) -> Option<Vec<u32>> {
    let mut all = None;
    for tid in threads(pid) {
        let Ok(listed) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")) else {
            continue;
        };
        let listed = listed.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
        all.get_or_insert_with(Vec::new).extend(listed);
    }
    all
}

fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name (`comm`) of a process or thread, given its directory, as raw bytes; empty when it has ended.
pub fn comm(directory: &Path) -> Vec<u8> {
    let mut comm = text(&directory.join("comm")).unwrap_or_default();
    comm.pop_if(|byte| *byte == b'\n');
    comm
}

/// A short file of `/proc` or of a control group. Unlike [`fs::read`], which asks for a size that these files do not have,
/// it makes only the calls to open, read and close.
///
/// # Errors
/// Fails as these do.
pub fn text(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(512);
    File::open(file)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The same as UTF-8; `None` where it cannot be read or is not UTF-8.
pub fn utf8(file: &Path) -> Option<String> {
    String::from_utf8(text(file).ok()?).ok()
}

/// What is read of processes, from one look to the next. Of a process for which it has stood for some looks, it is read
/// again at a few looks only: a later change is known some looks later.
#[derive(Debug)]
pub struct Looks<T> {
    turn: u32,
    known: BTreeMap<u32, Standing<T>>,
}

#[derive(Debug)]
struct Standing<T> {
    value: T,
    /// Number of looks at which it was the same.
    stood: u32,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self { turn: 0, known: BTreeMap::new() }
    }
}

impl<T: PartialEq> Looks<T> {
    /// Looks at which each value is read that has changed lately.
    const NEW: u32 = 3;
    /// Looks among which each other value is read once.
    const AGAIN: u32 = 8;

    /// These processes, ascending, each with its value. Others are forgotten.
    pub fn look(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        read: impl Fn(u32) -> T,
    ) -> impl Iterator<Item = (u32, &T)> {
        self.turn = self.turn.wrapping_add(1);
        let mut before = std::mem::take(&mut self.known);
        for pid in pids {
            let is_due = self.turn.wrapping_add(pid).is_multiple_of(Self::AGAIN);
            let standing = match before.remove(&pid) {
                Some(last) if last.stood >= Self::NEW && !is_due => last,
                last => {
                    let value = read(pid);
                    let stood =
                        last.filter(|last| last.value == value).map_or(0, |last| last.stood);
                    Standing { value, stood: stood.saturating_add(1) }
                }
            };
            self.known.insert(pid, standing);
        }
        self.known.iter().map(|(pid, standing)| (*pid, &standing.value))
    }
}

/// The names of all processes.
#[derive(Debug, Default)]
pub struct Names(Looks<Vec<u8>>);

impl Names {
    /// All processes below this `/proc` that have not ended, ascending, with their names.
    pub fn look(&mut self, proc: &Path) -> impl Iterator<Item = (u32, &[u8])> {
        let all = self.0.look(numbers(proc), |pid| comm(&proc.join(pid.to_string())));
        all.map(|(pid, comm)| (pid, comm.as_slice()))
    }
}

/// Bytes read of the command line of a kubelet, a runtime or a registrar: one argument may be 128 KiB long
/// (`MAX_ARG_STRLEN`).
pub const COMMAND_LINE: usize = 128 << 10;

/// The first `most` bytes of a command line, its arguments separated by NUL. A process can make its command line as
/// long as its memory.
///
/// # Errors
/// Fails when the process has ended.
pub fn command_line(process: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(process.join("cmdline"))?.take(most as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// Fields 3, 4 and 22 of `stat` of a process or thread, see proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Its state.
    pub state: char,
    /// The parent's process id; 0 when the parent is outside of the own PID namespace.
    pub parent: u32,
    /// Start time, in ticks since boot.
    pub started: u64,
}

impl Stat {
    /// Reads `stat` in a process's or thread's directory; `None` when it has ended.
    pub fn read(directory: &Path) -> Option<Self> {
        let text = silent::read(directory, |directory| text(&directory.join("stat")).ok())?;
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

/// State and start time, in ticks since boot, of a thread; `None` when it has ended.
pub fn stat(pid: u32, tid: u32) -> Option<(char, u64)> {
    stat_in(Path::new(&format!("/proc/{pid}/task/{tid}")))
}

/// State and start time, in ticks since boot, given the directory of a process or thread.
pub fn stat_in(directory: &Path) -> Option<(char, u64)> {
    Stat::read(directory).map(|it| (it.state, it.started))
}

/// Whether a thread still exists. Opens no descriptor.
pub fn exists(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Whether a thread runs or waits for a processor, and for nothing else: on a busy machine that may take seconds.
pub fn is_runnable(pid: u32, tid: u32) -> bool {
    stat(pid, tid).is_some_and(|(state, _)| state == 'R')
}

/// The same of a thread of this process.
pub fn is_own_runnable(tid: u32) -> bool {
    is_runnable(std::process::id(), tid)
}

/// The thread id of the calling thread.
pub fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Whether a state means stopped by a signal or by a tracer.
pub fn is_stopped(state: char) -> bool {
    matches!(state, 'T' | 't')
}

/// Start time of a process, in ticks since boot; `None` when it has ended.
pub fn started(pid: u32) -> Option<u64> {
    Some(stat(pid, pid)?.1)
}

/// The namespace of a kind (`mnt`, `user`) of a process, given its directory: the text of the link, which is read and
/// not followed. `None` when the process has ended, or the kernel has no such kind.
pub fn namespace(directory: &Path, kind: &str) -> Option<PathBuf> {
    silent::read(directory, |directory| fs::read_link(directory.join("ns").join(kind)).ok())
}

/// The inode number in the text of a link or the root of a mount, as in `mnt:[4026531841]`.
pub fn mount_namespace(text: &Path) -> Option<u32> {
    text.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

/// Mounts that a process sees; `None` when it has ended.
///
/// No descriptor of the table stays open: an open one keeps the whole namespace alive, with every mount in it, even
/// after its last process has ended (`proc_mounts_open` in fs/proc_namespace.c takes a reference).
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
    fn what_has_stood_is_read_at_a_few_looks_and_a_change_is_seen_in_the_end() {
        let (mut looks, reads) = (Looks::default(), std::cell::Cell::new(0));
        let mut look = |pids: &[u32], value: u32| -> Vec<(u32, u32)> {
            let read = |_| {
                reads.set(reads.get() + 1);
                value
            };
            looks.look(pids.iter().copied(), read).map(|(pid, value)| (pid, *value)).collect()
        };
        for _ in 0..16 {
            assert_eq!(look(&[7, 9], 1), [(7, 1), (9, 1)]);
        }
        assert!((6..=10).contains(&reads.get()), "{}", reads.get());
        let at = (1..=8).find(|_| look(&[7], 2) == [(7, 2)]).unwrap();
        // What has changed is read at the next looks, and so is a process that comes back.
        assert_eq!(look(&[7], 3), [(7, 3)], "after {at}");
        assert_eq!(look(&[9], 3), [(9, 3)]);
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
