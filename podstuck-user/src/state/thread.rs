//! What the kernel says about one thread, from files of `/proc` that touch neither a file system nor
//! the process's memory. Those that take a lock of the process are read by a [`Bounded`].

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use nix::libc;
use podstuck_common::record::Actor;

use super::bounded::Bounded;
use crate::model::time::Monotonic;

/// A thread by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Of the process.
    pub pid: u32,
    /// Its own.
    pub tid: u32,
}

/// What a thread is doing, by `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It has a CPU just now: in the kernel or not, nobody can tell.
    Running,
    /// It waits inside a system call, or in what the kernel does before it goes back to the caller.
    Call {
        /// Of the system call.
        number: libc::c_long,
        /// As they were passed.
        arguments: [u64; 6],
    },
    /// It waits, and not because of a system call.
    Elsewhere,
    /// It has ended, or may not be read.
    Gone,
    /// It does not say: its process hangs where it executes a program.
    Untold,
}

/// Some fields of `stat` and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// CPU time in user mode, in ticks; `None` when it is not told.
    pub user_ticks: Option<u64>,
    /// Start of the thread, in ticks since boot: with its ids, this names it. `None` when it is not
    /// told.
    pub start_ticks: Option<u64>,
    /// How often it has gone to sleep, and so how often it was woken.
    pub sleeps: u64,
}

impl Thread {
    /// The first thread of a process.
    pub const fn main(pid: u32) -> Self {
        Self { pid, tid: pid }
    }

    fn place(self, file: &str) -> String {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid)
    }

    /// A file that takes no lock.
    fn read(self, file: &str) -> io::Result<Vec<u8>> {
        fs::read(self.place(file))
    }

    fn status(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read("status").ok()?).into_owned())
    }

    /// A file that takes a lock; `None` when that waits too long.
    fn locked(self, file: &str, bounded: &mut Bounded) -> Option<io::Result<String>> {
        let path = self.place(file);
        let text = bounded.read(self.pid, move || fs::read(path))?;
        Some(text.map(|text| String::from_utf8_lossy(&text).trim_end().to_owned()))
    }

    /// What it is doing. Needs `CAP_SYS_PTRACE` for other users' threads.
    pub(super) fn doing(self, bounded: &mut Bounded) -> Doing {
        match self.locked("syscall", bounded) {
            None => Doing::Untold,
            Some(text) => text.ok().as_deref().and_then(doing).unwrap_or(Doing::Gone),
        }
    }

    /// Its state and how often it slept; `None` when it has ended.
    pub(super) fn times(self, bounded: &mut Bounded) -> Option<Times> {
        let status = self.status()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let state = field("State:")?.trim().chars().next()?;
        let sleeps = field("voluntary_ctxt_switches:")?.trim().parse().ok()?;
        let stat = self.locked("stat", bounded).transpose().ok()?;
        let (user_ticks, start_ticks) = stat.as_deref().and_then(ticks).unzip();
        Some(Times { state, user_ticks, start_ticks, sleeps })
    }

    /// The function it waits in; `None` while it runs.
    pub(super) fn wait_channel(self, bounded: &mut Bounded) -> Option<String> {
        let name = self.locked("wchan", bounded)?.ok()?;
        Some(name).filter(|name| !name.is_empty() && name != "0")
    }

    /// Functions of its kernel stack, the innermost first. Needs `CAP_SYS_ADMIN`; empty without, and
    /// where the kernel keeps stacks to itself.
    pub(super) fn stack(self, bounded: &mut Bounded) -> Vec<String> {
        let text = self.locked("stack", bounded).and_then(Result::ok);
        text.map(|text| frames(&text)).unwrap_or_default()
    }

    /// Its name.
    pub fn comm(self) -> Vec<u8> {
        let mut comm = self.read("comm").unwrap_or_default();
        comm.pop_if(|byte| *byte == b'\n');
        comm
    }

    /// The path of one of its descriptors, of `cwd` or of `root`, in its own mount namespace. The
    /// link is read and not followed: that touches no file system.
    pub(super) fn link(self, name: &str, bounded: &mut Bounded) -> Option<PathBuf> {
        let path = self.place(name);
        let read = move || Ok(fs::read_link(path)?.into_os_string().into_vec());
        let target = bounded.read(self.pid, read)?.ok()?;
        Some(OsString::from_vec(target).into())
    }

    /// Who it is, as the probes would describe it. Its cgroup is told by path only.
    pub(super) fn actor(self, bounded: &mut Bounded) -> Actor {
        let status = self.status().unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0);
        let namespace = self.link("ns/mnt", bounded);
        Actor {
            cgroup: 0,
            comm: name(&self.comm()),
            parent,
            mnt_ns: namespace.as_deref().and_then(inode_of).unwrap_or(0),
            parent_comm: name(&Self::main(parent).comm()),
        }
    }
}

/// All threads of a process.
pub fn of_process(pid: u32) -> Vec<Thread> {
    numbers(Path::new(&format!("/proc/{pid}/task"))).map(|tid| Thread { pid, tid }).collect()
}

/// All processes.
pub fn processes() -> impl Iterator<Item = u32> {
    numbers(Path::new("/proc"))
}

fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The time of a start in ticks since boot.
pub fn since_boot(ticks: u64) -> Monotonic {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let booted = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Monotonic::now();
    // `stat` counts the time that the machine slept, the monotonic clock does not.
    let slept = (booted.tv_sec.unsigned_abs() * 1_000_000_000 + booted.tv_nsec.unsigned_abs())
        .saturating_sub(now.0);
    Monotonic((ticks * (1_000_000_000 / per_second)).saturating_sub(slept))
}

/// User time and start, by a thread's `stat`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    // The name before it may hold anything.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    Some((number(11)?, number(19)?))
}

/// Inode number of a mount namespace, by the text of a link to it.
fn inode_of(namespace: &Path) -> Option<u32> {
    namespace.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

fn name(comm: &[u8]) -> [u8; 16] {
    let mut name = [0; 16];
    let length = comm.len().min(15);
    name[..length].copy_from_slice(&comm[..length]);
    name
}

fn doing(line: &str) -> Option<Doing> {
    let mut words = line.split_whitespace();
    let number = match words.next()? {
        "running" => return Some(Doing::Running),
        "-1" => return Some(Doing::Elsewhere),
        number => number.parse().ok()?,
    };
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Doing::Call { number, arguments })
}

/// `[<0>] fuse_flush+0x1f/0x200 [fuse]` to `fuse_flush`.
fn frames(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once("] "));
    lines.filter_map(|(_, frame)| Some(frame.split('+').next()?.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_with_its_arguments() {
        let line = "263 0xffffff9c 0x7ffe 0x200 0x0 0x1 0x2 0x7ffd 0x7f88";
        let arguments = [0xffff_ff9c, 0x7ffe, 0x200, 0, 1, 2];
        assert_eq!(doing(line), Some(Doing::Call { number: 263, arguments }));
        assert_eq!(doing("running"), Some(Doing::Running));
        assert_eq!(doing("-1 0x7ffd 0x7f88"), Some(Doing::Elsewhere));
        assert_eq!(doing(""), None);
    }

    #[test]
    fn a_stack_is_read_by_function() {
        let text = "[<0>] request_wait_answer+0x1a/0x240 [fuse]\n[<0>] do_rmdir+0x5/0x2\n";
        assert_eq!(frames(text), ["request_wait_answer", "do_rmdir"]);
    }

    #[test]
    fn own_thread_is_described() {
        let me = Thread::main(std::process::id());
        let bounded = &mut Bounded::default();
        let start = me.times(bounded).and_then(|times| times.start_ticks).unwrap();
        assert!(Monotonic::now().since(since_boot(start)).as_secs() < 3600);
        assert!(of_process(me.pid).contains(&me) && processes().any(|pid| pid == me.pid));
        assert_ne!(me.actor(bounded).mnt_ns, 0);
        assert_eq!(Thread::main(u32::MAX >> 1).doing(bounded), Doing::Gone);
    }
}
