//! Processes that do not answer. Most of what `/proc/PID` shows takes the lock under which the process
//! executes a program (`timed_read.rs`), and waits for as long as it hangs there.
//!
//! Who reads about all processes of a node cannot have another thread read about each of them. He says about
//! which one he reads; where that lasts, his owner leaves him behind and starts another thread, and nobody
//! asks this process again before it has answered.

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use crate::credentials::may_be_root;

/// While so many do not answer, only those are asked that may be of the node: each costs a thread.
const SILENT_MAX: usize = 32;

static SILENT: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// Whether there are any, so that nobody takes the lock where all is well.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread reads, if it has an owner who looks after it.
    static OWN: OnceCell<Arc<Reading>> = const { OnceCell::new() };
}

/// What a thread reads at the moment.
#[derive(Debug, Default)]
pub struct Reading {
    /// About whom; 0 for nobody.
    pid: AtomicU32,
    /// Which of its reads.
    number: AtomicU64,
    left_behind: AtomicBool,
}

impl Reading {
    /// What this thread reads from now on is said here.
    pub fn of_this_thread(self: &Arc<Self>) {
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
    /// What the thread is to use.
    pub fn reading(&self) -> Arc<Reading> {
        self.thread.clone()
    }

    /// Whether the thread still reads what it read at the last question. Then it is left behind, and this is
    /// the owner of the next one.
    pub fn has_to_leave(&mut self) -> bool {
        let Reading { pid, number, left_behind } = &*self.thread;
        let now = (pid.load(Ordering::Acquire), number.load(Ordering::Acquire));
        if now.0 == 0 || std::mem::replace(&mut self.seen, now) != now {
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

/// Takes over what somebody else has found, in a process that has nobody to look after its thread.
pub fn know(pids: &[u32]) {
    silent().extend(pids);
    ANY.store(!pids.is_empty(), Ordering::Release);
}

/// Those that do not answer now, ascending.
pub fn all() -> Vec<u32> {
    silent().iter().copied().collect()
}

/// Reads what is shown of a process under its lock, given its directory; `None` when it is known not to answer.
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

/// Whose directory it is, or that of one of his threads.
fn pid_of(directory: &Path) -> Option<u32> {
    let below = directory.strip_prefix("/proc").ok()?;
    below.iter().next()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use super::*;

    #[test]
    fn who_does_not_answer_is_left_and_not_asked_again_until_he_does() {
        // No process has so high a number.
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
        assert!(owner.has_to_leave());
        assert_eq!((fine(), all()), (None, vec![4_194_999]));
        assert!(!owner.has_to_leave(), "the next thread has read nothing yet");
        answer.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (Some(()), true));
        assert!(fine().is_some() && all().is_empty());
    }

    #[test]
    fn a_directory_says_whose_it_is() {
        let of = |path| pid_of(Path::new(path));
        assert_eq!(of("/proc/12"), Some(12));
        assert_eq!(of("/proc/12/task/13"), Some(12));
        assert_eq!(of("/proc/self"), None);
        assert_eq!(of("/host/proc/12"), None);
    }
}
