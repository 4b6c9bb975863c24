//! What the kernel says about one thread, from files of `/proc` that touch neither a file system nor
//! the process's memory. Those that take a lock of the process are read by a [`TimedReader`].

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use nix::libc;
use podstuck_common::record::Caller;

use super::namespaces;
use podstuck_confine::timed_read::TimedReader;
use podstuck_confine::{clock, proc};
use podstuck_model::{
    path::safe,
    thread::{Thread, Times},
    time::Monotonic,
};

/// What a thread is doing, by `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It runs on a CPU now, in the kernel or in user mode.
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
    /// It does not say: its process hangs where it executes a program, or this tool lacks what it takes to ask.
    Unreported,
}

/// What `/proc` says about a thread. Those that take a [`TimedReader`] wait at most as long as that does.
pub(super) trait ReadThread {
    /// What it is doing. Needs `CAP_SYS_PTRACE` for other users' threads.
    fn doing(self, reader: &mut TimedReader) -> Doing;

    /// Its state and how often it slept; `None` when it has ended, or that could not be read.
    fn times(self, reader: &mut TimedReader) -> Option<Times>;

    /// The function it waits in; `None` while it runs.
    fn wait_channel(self, reader: &mut TimedReader) -> Option<String>;

    /// Functions of its kernel stack, the innermost first. Needs `CAP_SYS_ADMIN`; empty without, and
    /// where the kernel keeps stacks to itself.
    fn stack(self, reader: &mut TimedReader) -> Vec<String>;

    /// Its name.
    fn comm(self) -> Vec<u8>;

    /// The path of one of its descriptors, of `cwd` or of `root`, in its own mount namespace. The
    /// link is read and not followed: that touches no file system.
    fn link(self, name: &str, reader: &mut TimedReader) -> Option<PathBuf>;

    /// The thread's process, as the probes would describe it, without the id of its cgroup.
    fn actor(self, reader: &mut TimedReader) -> Caller;
}

impl ReadThread for Thread {
    fn doing(self, reader: &mut TimedReader) -> Doing {
        match self.locked("syscall", reader) {
            None => Doing::Unreported,
            Some(Ok(text)) => doing(&text).unwrap_or(Doing::Gone),
            Some(Err(error)) if is_shortage(&error) => Doing::Unreported,
            Some(Err(_)) => Doing::Gone,
        }
    }

    fn times(self, reader: &mut TimedReader) -> Option<Times> {
        let status = self.status()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let state = field("State:")?.trim().chars().next()?;
        let sleeps = field("voluntary_ctxt_switches:")?.trim().parse().ok()?;
        let stat = self.locked("stat", reader).transpose().ok()?;
        let (user_ticks, start_ticks) = stat.as_deref().and_then(ticks).unzip();
        Some(Times { state, user_ticks, start_ticks, sleeps })
    }

    fn wait_channel(self, reader: &mut TimedReader) -> Option<String> {
        let name = self.locked("wchan", reader)?.ok()?;
        Some(name).filter(|name| !name.is_empty() && name != "0")
    }

    fn stack(self, reader: &mut TimedReader) -> Vec<String> {
        let text = self.locked("stack", reader).and_then(Result::ok);
        let mut frames = text.map(|text| frames(&text)).unwrap_or_default();
        // The function's name alone shows what these threads wait for.
        frames.iter_mut().for_each(|frame| frame.truncate(frame.find(" [").unwrap_or(frame.len())));
        frames
    }

    fn comm(self) -> Vec<u8> {
        proc::comm(Path::new(&self.place("")))
    }

    fn link(self, name: &str, reader: &mut TimedReader) -> Option<PathBuf> {
        let path = self.place(name);
        let read = move || Ok(fs::read_link(path)?.into_os_string().into_vec());
        let target = reader.read(self.pid, read)?.ok()?;
        Some(OsString::from_vec(target).into())
    }

    fn actor(self, reader: &mut TimedReader) -> Caller {
        let status = self.status().unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0);
        let namespace = self.link("ns/mnt", reader);
        let started = Self::main(self.pid).times(reader).and_then(|times| times.start_ticks);
        Caller {
            started_ns: started.unwrap_or(0).saturating_mul(clock::tick_ns()),
            cgroup: 0,
            comm: name(&self.comm()),
            parent,
            mnt_ns: namespace.as_deref().and_then(namespaces::number).unwrap_or(0),
            parent_comm: name(&Self::main(parent).comm()),
            ..Caller::default()
        }
    }
}

/// Files of a thread.
trait Files {
    fn place(self, file: &str) -> String;

    /// A file that takes no lock.
    fn read(self, file: &str) -> io::Result<Vec<u8>>;

    fn status(self) -> Option<String>;

    /// A file that takes a lock; `None` when that waits too long.
    fn locked(self, file: &str, reader: &mut TimedReader) -> Option<io::Result<String>>;
}

impl Files for Thread {
    fn place(self, file: &str) -> String {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid)
    }

    fn read(self, file: &str) -> io::Result<Vec<u8>> {
        fs::read(self.place(file))
    }

    fn status(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read("status").ok()?).into_owned())
    }

    fn locked(self, file: &str, reader: &mut TimedReader) -> Option<io::Result<String>> {
        let path = self.place(file);
        let text = reader.read(self.pid, move || fs::read(path))?;
        Some(text.map(|text| String::from_utf8_lossy(&text).trim_end().to_owned()))
    }
}

/// All threads of a process; none when it has ended.
pub(super) fn of_process(pid: u32) -> Vec<Thread> {
    proc::threads(pid).map(|tid| Thread { pid, tid }).collect()
}

/// The time of a start in ticks since boot.
pub(super) fn since_boot(ticks: u64) -> Monotonic {
    let booted = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = clock::now();
    // `stat` counts the time that the machine slept, the monotonic clock does not.
    let slept = (booted.tv_sec.unsigned_abs() * 1_000_000_000 + booted.tv_nsec.unsigned_abs())
        .saturating_sub(now.0);
    Monotonic(ticks.saturating_mul(clock::tick_ns()).saturating_sub(slept))
}

/// User time and start, by a thread's `stat`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    // The name before it may hold anything.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    Some((number(11)?, number(19)?))
}

/// A name as the kernel keeps it.
pub(super) fn name(comm: &[u8]) -> [u8; 16] {
    let mut name = [0; 16];
    let length = comm.len().min(15);
    name[..length].copy_from_slice(&comm[..length]);
    name
}

/// Whether a file could not be read for want of something that this tool, or the node, may have again.
fn is_shortage(error: &io::Error) -> bool {
    let lacking = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR];
    error.raw_os_error().is_some_and(|number| lacking.contains(&number))
}

/// What the file `syscall` of a thread says.
pub(super) fn doing(line: &str) -> Option<Doing> {
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

/// `[<0>] nv_wait+0x1/0x2 [nvidia]` to `nv_wait [nvidia]`: the function, and the module that it is in.
/// The names are safe to show.
pub(super) fn frames(text: &str) -> Vec<String> {
    let frames = text.lines().filter_map(|line| {
        let (_, frame) = line.split_once("] ")?;
        let name = frame.split('+').next().unwrap_or(frame).trim();
        let module = frame.rsplit_once(" [").map(|(_, module)| format!(" [{module}"));
        Some(safe(format!("{name}{}", module.unwrap_or_default()).as_bytes()).into_owned())
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_proc_thread() {
        podstuck_fuzz::fuzz("proc_thread", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = (doing(&text), ticks(&text), frames(&text));
        });
    }

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
        let text = "[<0>] percpu_rwsem_wait+0x11b/0x140\n[<0>] nv_wait+0x1/0x2 [nvidia]\n";
        assert_eq!(frames(text), ["percpu_rwsem_wait", "nv_wait [nvidia]"]);
    }

    #[test]
    fn own_thread_is_described() {
        let me = Thread::main(std::process::id());
        let reader = &mut TimedReader::default();
        let start = me.times(reader).and_then(|times| times.start_ticks).unwrap();
        assert!(podstuck_confine::clock::now().since(since_boot(start)).as_secs() < 3600);
        assert!(of_process(me.pid).contains(&me));
        assert_ne!(me.actor(reader).mnt_ns, 0);
        assert_eq!(Thread::main(u32::MAX >> 1).doing(reader), Doing::Gone);
    }
}
