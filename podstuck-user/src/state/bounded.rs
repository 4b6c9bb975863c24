//! Reads that may wait for ever, on a thread that is left behind when one does.
//!
//! `/proc/PID/task/TID/{syscall,stack}` take the lock under which the process executes a program
//! (`exec_update_lock`; `lock_trace` in fs/proc/base.c). A process that hangs there, because an old
//! file of it lies on a dead file system, holds it for as long.

use std::{
    fs, io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// How long a read may take. It takes microseconds.
const LIMIT: Duration = Duration::from_millis(200);
/// Threads that may be left behind. While so many wait, nothing is read.
const LEFT_MAX: usize = 4;

/// What is done with a path.
type Work = fn(String) -> io::Result<Vec<u8>>;

/// Reads files of processes, one at a time. Its threads have the capabilities of the thread that
/// asks.
#[derive(Debug)]
pub(super) struct Bounded {
    work: Work,
    thread: Option<Reader>,
    /// What waits, and for which process.
    left: Vec<(u32, JoinHandle<()>)>,
}

impl Default for Bounded {
    fn default() -> Self {
        Self::new(fs::read::<String>)
    }
}

impl Bounded {
    fn new(work: Work) -> Self {
        Self { work, thread: None, left: Vec::new() }
    }

    /// Reads a file of a process; `None` when there is no answer. A process that did not answer is
    /// not asked again before it has, or has ended.
    pub(super) fn read(&mut self, pid: u32, path: String) -> Option<io::Result<Vec<u8>>> {
        self.left.retain(|(_, thread)| !thread.is_finished());
        if self.left.len() >= LEFT_MAX || self.left.iter().any(|(silent, _)| *silent == pid) {
            return None;
        }
        let reader = self.thread.take().or_else(|| Reader::start(self.work))?;
        match reader.ask(path) {
            Ok(answer) => {
                self.thread = Some(reader);
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::debug!("pid {pid} does not say what it is doing");
                self.left.push((pid, reader.thread));
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// A thread that reads until nobody asks it any more.
#[derive(Debug)]
struct Reader {
    thread: JoinHandle<()>,
    paths: Sender<String>,
    answers: Receiver<io::Result<Vec<u8>>>,
}

impl Reader {
    /// `None` when no thread can be had.
    fn start(work: Work) -> Option<Self> {
        let (paths, queue) = channel();
        let (sender, answers) = channel();
        let serve = move || {
            for path in queue {
                // Too late: the next one asks another thread.
                if sender.send(work(path)).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("reader".into()).spawn(serve).ok()?;
        Some(Self { thread, paths, answers })
    }

    fn ask(&self, path: String) -> Result<io::Result<Vec<u8>>, RecvTimeoutError> {
        self.paths.send(path).map_err(|_| RecvTimeoutError::Disconnected)?;
        self.answers.recv_timeout(LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        thread,
        time::Instant,
    };

    use super::*;

    static RELEASED: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    /// Answers with the path, and hangs at `hung` until it is released.
    fn stub(path: String) -> io::Result<Vec<u8>> {
        ASKED.fetch_add(1, SeqCst);
        while path == "hung" && !RELEASED.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(path.into())
    }

    #[test]
    fn who_hangs_is_left_behind_until_he_answers() {
        let mut bounded = Bounded::new(stub);
        let mut read = |pid, path: &str| bounded.read(pid, path.into()).map(Result::unwrap);
        for pid in 1..LEFT_MAX as u32 {
            let begun = Instant::now();
            assert_eq!(read(pid, "hung"), None);
            assert!(begun.elapsed() >= LIMIT);
            assert_eq!(read(100, "fine"), Some(b"fine".to_vec()), "others are read");
        }
        let asked = ASKED.load(SeqCst);
        assert_eq!(read(1, "fine"), None);
        assert_eq!(ASKED.load(SeqCst), asked, "who hangs is not asked again");
        assert_eq!(read(99, "hung"), None);
        assert_eq!(read(100, "fine"), None, "no more are risked");
        RELEASED.store(true, SeqCst);
        let end = Instant::now() + Duration::from_secs(30);
        while read(1, "fine").is_none() {
            assert!(Instant::now() < end, "who answered at last is asked again");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn own_call_is_read() {
        let mut bounded = Bounded::default();
        let pid = std::process::id();
        assert!(bounded.read(pid, format!("/proc/{pid}/task/{pid}/syscall")).unwrap().is_ok());
        assert!(bounded.read(pid, "/proc/none".into()).unwrap().is_err());
    }
}
