//! The thread that holds a lock of the kernel for which another thread sleeps.

use serde::{Deserialize, Serialize};

use super::{chain::Who, thread::Thread};

/// Such a thread, as `/proc` describes it. The lock's structure in the kernel names it (Linux 6.16).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// The type of the lock.
    pub lock: KernelLock,
    /// Whether it is proven to hold the lock now. Otherwise it is the last one that took it, and may have released it:
    /// readers share a lock that names one of them.
    pub is_proven: bool,
    /// The thread.
    pub thread: Thread,
    /// Start of its process in ticks since boot: with its ids, it identifies the process.
    pub started: u64,
    /// Its name, safe to show.
    pub comm: String,
    /// Whether it is a thread of the kernel, which no signal ends.
    pub is_kernel: bool,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// The kernel function that it waits in, if visible.
    pub wait_channel: Option<String>,
    /// The functions on its kernel stack, the innermost first; empty without `CAP_SYS_ADMIN`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stack: Vec<String>,
}

impl LockHolder {
    /// The process by its name.
    pub fn who(&self) -> Who {
        Who::task(&self.comm, self.thread.pid)
    }
}

/// A sleeping lock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelLock {
    /// `struct mutex`
    Mutex,
    /// `struct semaphore`
    Semaphore,
    /// `struct rw_semaphore`, as of a directory whose entries change.
    RwSemaphore,
}

impl KernelLock {
    /// Its name in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::RwSemaphore => "rw_semaphore",
        }
    }
}
