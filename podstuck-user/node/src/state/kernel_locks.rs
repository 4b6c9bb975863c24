//! Who holds the kernel locks that threads sleep for. The probes' iterator reports all such threads, and is read only
//! while one of them is in question.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use podstuck_common::lock::{LockWait, kind};
use podstuck_confine::{proc, silent};
use podstuck_model::{
    kernel_lock::{KernelLock, LockHolder},
    path::safe,
    thread::Thread,
};

/// How long the iterator is read after a question.
const ASKED: Duration = Duration::from_secs(20);
/// A wait for a lock that is only contended ends within this time.
const LASTS: Duration = Duration::from_millis(900);
/// An older list is not used.
const FRESH: Duration = Duration::from_secs(5);
/// Most holders of one thread: the second holds the lock that the first one waits for.
const FOLLOWED: usize = 4;

static KNOWN: Mutex<Known> = Mutex::new(Known { asked: None, read: None, waits: BTreeMap::new() });

struct Known {
    asked: Option<Instant>,
    read: Option<Instant>,
    /// By waiting thread, with the time since when this holder is seen.
    waits: BTreeMap<u32, (LockWait, Instant)>,
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the iterator is to be read.
pub fn are_wanted() -> bool {
    known().asked.is_some_and(|asked| asked.elapsed() < ASKED)
}

/// Has the iterator read for some time.
pub(super) fn want() {
    known().asked = Some(Instant::now());
}

/// Takes all threads that sleep for a lock now.
pub fn read(waits: Vec<LockWait>) {
    known().take(waits, Instant::now());
}

/// The thread that holds the lock which this one sleeps for, and further ones up to a thread that sleeps for no lock;
/// without their stacks. Empty until the iterator has been read twice after the first question.
pub(super) fn holders(tid: u32) -> Vec<LockHolder> {
    let waits = known().of(tid, Instant::now());
    waits.iter().map_while(describe).collect()
}

impl Known {
    fn take(&mut self, waits: Vec<LockWait>, now: Instant) {
        let mut before = std::mem::take(&mut self.waits);
        let mut since = |wait: &LockWait| {
            let same = before.remove(&(wait.thread as u32)).filter(|(last, _)| last == wait);
            same.map_or(now, |(_, since)| since)
        };
        let waits = waits.into_iter().map(|wait| (wait.thread as u32, (wait, since(&wait))));
        self.waits = waits.collect();
        self.read = Some(now);
    }

    /// The waits from this thread to the last known holder.
    fn of(&mut self, tid: u32, now: Instant) -> Vec<LockWait> {
        self.asked = Some(now);
        let mut found: Vec<LockWait> = Vec::new();
        if self.read.is_none_or(|read| now.duration_since(read) > FRESH) {
            return found;
        }
        let mut next = tid;
        while found.len() < FOLLOWED
            && let Some((wait, since)) = self.waits.get(&next)
            && now.duration_since(*since) >= LASTS
            && wait.holder != 0
            // Threads that wait for each other are a circle.
            && !found.iter().any(|before| before.thread == wait.thread)
        {
            found.push(*wait);
            next = wait.holder as u32;
        }
        found
    }
}

/// The holder; `None` if it has ended.
fn describe(wait: &LockWait) -> Option<LockHolder> {
    let (pid, tid) = ((wait.holder >> 32) as u32, wait.holder as u32);
    let directory = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
    let (state, _) = proc::stat(pid, tid)?;
    let status = proc::text(&directory.join("status")).ok()?;
    let channel = silent::read(&directory, |place| proc::utf8(&place.join("wchan")));
    Some(LockHolder {
        lock: match wait.kind {
            kind::MUTEX => KernelLock::Mutex,
            kind::SEMAPHORE => KernelLock::Semaphore,
            _ => KernelLock::RwSemaphore,
        },
        is_proven: wait.shared == 0 && wait.kind != kind::SEMAPHORE,
        thread: Thread { pid, tid },
        started: proc::started(pid)?,
        comm: safe(&proc::comm(&directory)).into_owned(),
        is_kernel: String::from_utf8_lossy(&status).lines().any(|line| line == "Kthread:\t1"),
        state,
        wait_channel: channel.filter(|name| !matches!(name.as_str(), "" | "0")),
        stack: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(thread: u64, holder: u64) -> LockWait {
        LockWait { thread, holder, kind: kind::RWSEM_WRITER, shared: 0 }
    }

    #[test]
    fn only_waits_that_last_are_followed_to_their_end() {
        let mut known = Known { asked: None, read: None, waits: BTreeMap::new() };
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let of = |known: &mut Known, tid, millis| -> Vec<u64> {
            known.of(tid, at(millis)).iter().map(|wait| wait.holder).collect()
        };
        assert!(of(&mut known, 1, 0).is_empty() && known.asked.is_some());
        known.take(vec![wait(1, 2), wait(2, 3), wait(4, 4)], at(0));
        assert!(of(&mut known, 1, 500).is_empty(), "it may be contended only");
        // Another thread holds the second lock since.
        known.take(vec![wait(1, 2), wait(2, 5), wait(4, 4), wait(6, 0)], at(1000));
        assert_eq!(of(&mut known, 1, 1000), [2]);
        known.take(vec![wait(1, 2), wait(2, 5), wait(4, 4), wait(6, 0)], at(2000));
        assert_eq!(of(&mut known, 1, 2000), [2, 5]);
        assert_eq!(of(&mut known, 4, 2000), [4], "a circle");
        assert!(of(&mut known, 6, 2000).is_empty(), "the lock names no holder");
        assert!(of(&mut known, 1, 8000).is_empty(), "the list is old");
        known.take(vec![], at(9000));
        assert!(of(&mut known, 1, 9000).is_empty(), "it has the lock");
    }
}
