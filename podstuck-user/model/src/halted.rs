//! Processes that cannot respond.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::raw_path;

/// A kubelet that cannot act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedKubelet {
    /// Its process.
    pub pid: u32,
    /// Its start in ticks since boot.
    pub started: Option<u64>,
    /// What keeps it from acting.
    pub halted: Halted,
}

/// What keeps a process from responding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halted {
    /// It is stopped, by a signal such as SIGSTOP or by a debugger.
    Stopped,
    /// Its control group is frozen.
    Frozen {
        /// The group to thaw.
        #[serde(with = "raw_path")]
        group: PathBuf,
    },
    /// Its file descriptor table is full: it accepts no connection, opens no file and starts no program.
    NoDescriptors {
        /// Open descriptors.
        open: u64,
        /// The limit (`RLIMIT_NOFILE`, soft).
        most: u64,
        /// The maximum limit (hard); `None` for unlimited.
        hard: Option<u64>,
    },
    /// Its control group has as many tasks as it may: it starts no program and no thread.
    NoTasks {
        /// The group with the limit.
        #[serde(with = "raw_path")]
        group: PathBuf,
        /// Tasks in it (`pids.current`).
        tasks: u64,
        /// The limit (`pids.max`).
        most: u64,
    },
    /// One of its threads blocks in the kernel.
    Waits {
        /// The thread.
        tid: u32,
        /// Its state.
        state: char,
        /// The kernel function that it waits in.
        channel: String,
    },
}
