//! Reads that may block for ever, on a thread that is left behind when one does.
//!
//! Many files of `/proc/PID` take the lock under which the process executes a program (`exec_update_lock`): `syscall`
//! and `stack` always do, and on newer kernels (seen on 6.18) `stat`, `wchan` and all links do, too. A process that
//! hangs there, because an old file of it is on a dead file system, holds the lock as long as it hangs. `status`,
//! `comm` and `mountinfo` do not take it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use crate::proc;

/// Time limit of a read. A read takes microseconds.
const LIMIT: Duration = Duration::from_millis(200);
/// How many times that a read may take while its thread only waits for a processor.
const BUSY: u32 = 10;
/// Limit of threads left behind. While this many wait, nothing is read.
const LEFT_MAX: usize = 4;

type Read<T> = Box<dyn FnOnce() -> T + Send>;

/// Reads about processes, one at a time.
#[derive(Debug)]
pub struct TimedReader<T = io::Result<Vec<u8>>> {
    /// Name of its threads, and what they do first.
    name: &'static str,
    prepare: fn(),
    reader: Option<ReaderThread<T>>,
    /// The waiting threads, and the process that each reads.
    left: Vec<(u32, JoinHandle<()>)>,
}

/// Its threads have the capabilities of the calling thread.
impl Default for TimedReader {
    fn default() -> Self {
        Self::new("reader", || {})
    }
}

impl<T: Send + 'static> TimedReader<T> {
    /// A reader that has read nothing yet.
    pub fn new(name: &'static str, prepare: fn()) -> Self {
        Self { name, prepare, reader: None, left: Vec::new() }
    }

    /// Reads a file of a process; `None` when there is no answer in time. A process that did not answer is not read
    /// again before it has answered or ended.
    pub fn read(&mut self, pid: u32, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.left.retain(|(_, thread)| !thread.is_finished());
        if self.left.len() >= LEFT_MAX || self.left.iter().any(|(silent, _)| *silent == pid) {
            return None;
        }
        let reader = self.reader.take().or_else(|| ReaderThread::start(self.name, self.prepare))?;
        match reader.ask(Box::new(read)) {
            Ok(answer) => {
                self.reader = Some(reader);
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::debug!("the kernel does not report what pid {pid} is doing");
                self.left.push((pid, reader.thread));
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// A thread that reads until its queue is closed.
#[derive(Debug)]
struct ReaderThread<T> {
    thread: JoinHandle<()>,
    /// Its thread id; 0 before it runs for the first time.
    tid: Arc<AtomicU32>,
    reads: Sender<Read<T>>,
    answers: Receiver<T>,
}

impl<T: Send + 'static> ReaderThread<T> {
    /// `None` when no thread can be had.
    fn start(name: &str, prepare: fn()) -> Option<Self> {
        let (reads, queue) = channel::<Read<T>>();
        let (sender, answers) = channel();
        let tid = Arc::new(AtomicU32::new(0));
        let own = tid.clone();
        let serve = move || {
            own.store(proc::own_tid(), Ordering::Release);
            prepare();
            for read in queue {
                // Too late: the next read uses another thread.
                if sender.send(read()).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name(name.into()).spawn(serve).ok()?;
        Some(Self { thread, tid, reads, answers })
    }

    fn ask(&self, read: Read<T>) -> Result<T, RecvTimeoutError> {
        self.reads.send(read).map_err(|_| RecvTimeoutError::Disconnected)?;
        let waits_for_processor = || match self.tid.load(Ordering::Acquire) {
            0 => true,
            tid => proc::is_own_runnable(tid),
        };
        for _ in 1..BUSY {
            match self.answers.recv_timeout(LIMIT) {
                Err(RecvTimeoutError::Timeout) if waits_for_processor() => {}
                answer => return answer,
            }
        }
        self.answers.recv_timeout(LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        thread,
        time::Instant,
    };

    use super::*;

    /// As on a busy machine.
    #[test]
    fn a_read_that_waits_for_a_processor_is_waited_for() {
        let mut timed = TimedReader::default();
        let spin = || {
            let begun = Instant::now();
            while begun.elapsed() < LIMIT * 3 {
                std::hint::spin_loop();
            }
            Ok(b"late".to_vec())
        };
        assert_eq!(timed.read(1, spin).unwrap().unwrap(), b"late");
    }

    #[test]
    fn a_read_that_hangs_is_left_behind_until_it_returns() {
        let mut timed = TimedReader::default();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let hang = || {
            let gate = gate.clone();
            move || {
                drop(gate.lock());
                Ok(Vec::new())
            }
        };
        let fine = || Ok(b"fine".to_vec());
        for pid in 1..LEFT_MAX as u32 {
            let begun = Instant::now();
            assert!(timed.read(pid, hang()).is_none());
            assert!(begun.elapsed() >= LIMIT);
            assert_eq!(timed.read(100, fine).unwrap().unwrap(), b"fine", "others are read");
        }
        let never = || panic!("who hangs is not asked again");
        assert!(timed.read(1, never).is_none());
        assert!(timed.read(99, hang()).is_none());
        assert!(timed.read(100, fine).is_none(), "no more are risked");
        drop(closed);
        let end = Instant::now() + Duration::from_secs(30);
        while timed.read(1, fine).is_none() {
            assert!(Instant::now() < end, "who answered at last is asked again");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
