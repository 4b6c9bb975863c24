//! Processes that do not answer. Most files of `/proc/PID` take the lock under which the process executes a program
//! (`timed_read.rs`), and a read waits as long as the process hangs there.
//!
//! A scan of all processes of a node cannot start a thread for each of them. The scanning thread publishes which
//! process it reads; when that read lasts too long, the thread's owner leaves it behind and starts another thread.
//! The process is not read again before that read has returned.

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use crate::{credentials::may_be_root, proc};

/// While this many processes do not answer, only processes that may belong to the node are read: each costs a thread.
const SILENT_MAX: usize = 32;

static SILENT: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// Whether any process is silent. Spares the lock where none is.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread reads, if an owner watches it.
    static OWN: OnceCell<Arc<Reading>> = const { OnceCell::new() };
}

/// What a thread reads now.
#[derive(Debug, Default)]
pub struct Reading {
    /// The thread id of this thread; 0 before it reads.
    tid: AtomicU32,
    /// Process id of the process being read; 0 for none.
    pid: AtomicU32,
    /// Sequence number of the read.
    number: AtomicU64,
    left_behind: AtomicBool,
}

impl Reading {
    /// Publishes this thread's reads here from now on.
    pub fn of_this_thread(self: &Arc<Self>) {
        self.tid.store(proc::own_tid(), Ordering::Release);
        OWN.with(|own| own.set(self.clone())).unwrap_or_default();
    }

    /// Whether another thread works in its place.
    pub fn is_left_behind(&self) -> bool {
        self.left_behind.load(Ordering::Acquire)
    }
}

/// A thread's owner.
#[derive(Debug, Default)]
pub struct Owner {
    thread: Arc<Reading>,
    seen: (u32, u64),
}

impl Owner {
    /// The record that the thread publishes its reads in.
    pub fn reading(&self) -> Arc<Reading> {
        self.thread.clone()
    }

    /// Whether the thread is still in the read that the last call saw, and waits in it. If so, the thread is left behind,
    /// and this becomes the owner of the next thread.
    pub fn has_to_leave(&mut self) -> bool {
        let Reading { tid, pid, number, left_behind } = &*self.thread;
        let now = (pid.load(Ordering::Acquire), number.load(Ordering::Acquire));
        if now.0 == 0 || std::mem::replace(&mut self.seen, now) != now {
            return false;
        }
        if proc::is_own_runnable(tid.load(Ordering::Acquire)) {
            return false;
        }
        left_behind.store(true, Ordering::Release);
        silent().insert(now.0);
        ANY.store(true, Ordering::Release);
        tracing::debug!("pid {} does not answer", now.0);
        *self = Self::default();
        true
    }
}

/// Takes over the silent processes that another process has found. For a process without an owner that watches its
/// thread.
pub fn know(pids: &[u32]) {
    silent().extend(pids);
    ANY.store(!pids.is_empty(), Ordering::Release);
}

/// Process ids of the processes that do not answer now, ascending.
pub fn all() -> Vec<u32> {
    silent().iter().copied().collect()
}

/// Reads a file of a process that takes its lock, given its directory; `None` when the process is known not to
/// answer.
pub fn read<T>(directory: &Path, read: impl FnOnce(&Path) -> Option<T>) -> Option<T> {
    let Some(pid) = pid_of(directory) else { return read(directory) };
    if ANY.load(Ordering::Acquire) {
        let silent = silent();
        let (is_silent, is_full) = (silent.contains(&pid), silent.len() >= SILENT_MAX);
        drop(silent);
        if is_silent || (is_full && !may_be_root(directory)) {
            return None;
        }
    }
    OWN.with(|own| {
        let Some(own) = own.get() else { return read(directory) };
        own.number.fetch_add(1, Ordering::AcqRel);
        own.pid.store(pid, Ordering::Release);
        let answer = read(directory);
        own.pid.store(0, Ordering::Release);
        if own.is_left_behind() {
            let mut silent = silent();
            silent.remove(&pid);
            ANY.store(!silent.is_empty(), Ordering::Release);
        }
        answer
    })
}

fn silent() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process id in the path of a process's or thread's directory.
fn pid_of(directory: &Path) -> Option<u32> {
    let below = directory.strip_prefix("/proc").ok()?;
    below.iter().next()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use super::*;

    #[test]
    fn a_silent_process_is_left_and_not_read_again_until_it_answers() {
        // No process has a number this high.
        let process = Path::new("/proc/4194999");
        let fine = || read(process, |_| Some(()));
        let mut owner = Owner::default();
        let (answer, hangs) = channel::<()>();
        let (begins, has_begun) = channel();
        let reading = owner.reading();
        let thread = thread::spawn(move || {
            reading.of_this_thread();
            let answered = read(process, |_| {
                begins.send(()).unwrap();
                hangs.recv().ok()
            });
            (answered, reading.is_left_behind())
        });
        has_begun.recv().unwrap();
        assert!(!owner.has_to_leave(), "it may have begun just now");
        assert!(fine().is_some());
        // It may still be on its way to the wait.
        while !owner.has_to_leave() {
            thread::yield_now();
        }
        assert_eq!((fine(), all()), (None, vec![4_194_999]));
        assert!(!owner.has_to_leave(), "the next thread has read nothing yet");
        answer.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (Some(()), true));
        assert!(fine().is_some() && all().is_empty());
    }

    /// As on a busy machine, where the thread waits for a processor in the middle of a read.
    #[test]
    fn a_thread_that_waits_for_a_processor_is_not_left() {
        let mut owner = Owner::default();
        let (begins, has_begun) = channel();
        let reading = owner.reading();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = ends.clone();
        let thread = thread::spawn(move || {
            reading.of_this_thread();
            read(Path::new("/proc/4194997"), |_| {
                begins.send(()).unwrap();
                while !is_over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                Some(())
            })
        });
        has_begun.recv().unwrap();
        assert!((0..10).all(|_| !owner.has_to_leave()));
        ends.store(true, Ordering::Release);
        assert!(thread.join().unwrap().is_some());
    }

    #[test]
    fn a_directory_names_its_process() {
        let of = |path| pid_of(Path::new(path));
        assert_eq!(of("/proc/12"), Some(12));
        assert_eq!(of("/proc/12/task/13"), Some(12));
        assert_eq!(of("/proc/self"), None);
        assert_eq!(of("/host/proc/12"), None);
    }
}
