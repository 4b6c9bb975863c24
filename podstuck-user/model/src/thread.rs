//! A thread and its state in `/proc`.

use serde::{Deserialize, Serialize};

/// The ids of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
}

/// Some fields of `stat` and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// CPU time in user mode, in ticks; `None` if the kernel does not report it.
    pub user_ticks: Option<u64>,
    /// Start of the thread in ticks since boot: with its ids, it identifies the thread. `None` if the kernel does
    /// not report it.
    pub start_ticks: Option<u64>,
    /// Number of times that it slept, and so was woken.
    pub sleeps: u64,
}

impl Thread {
    /// The main thread of a process.
    pub const fn main(pid: u32) -> Self {
        Self { pid, tid: pid }
    }
}
