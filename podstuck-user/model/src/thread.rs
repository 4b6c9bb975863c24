//! A thread, and what the kernel says about it.

use serde::{Deserialize, Serialize};

/// A thread by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Of the process.
    pub pid: u32,
    /// Its own.
    pub tid: u32,
}

/// Some fields of `stat` and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}
