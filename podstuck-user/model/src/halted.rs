//! Processes that cannot answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::raw_path;

/// A kubelet that cannot act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedKubelet {
    /// Its process.
    pub pid: u32,
    /// When that was started, in ticks since boot.
    pub started: Option<u64>,
    /// What keeps it from acting.
    pub halted: Halted,
}

/// What keeps a process from answering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halted {
    /// It is stopped, as by SIGSTOP or a debugger.
    Stopped,
    /// Its control group is frozen.
    Frozen {
        /// The group that has to be thawed.
        #[serde(with = "raw_path")]
        group: PathBuf,
    },
    /// It has all descriptors open that it may: it takes no connection, opens no file and starts no program.
    NoDescriptors {
        /// That it has open.
        open: u64,
        /// That it may have (`RLIMIT_NOFILE`, soft).
        most: u64,
        /// To which it may be raised (hard); `None` for no limit.
        hard: Option<u64>,
    },
    /// One of its threads waits in the kernel.
    Waits {
        /// The thread.
        tid: u32,
        /// Its state.
        state: char,
        /// The function that it waits in.
        channel: String,
    },
}
