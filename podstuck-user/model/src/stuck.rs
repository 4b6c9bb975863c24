//! A thread that is stuck in a removal or an unmount, with its target and process.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    hung::{DiskWork, MountPoint, Phase, Since, WaitProgress},
    identity::{Actor, Target},
    kernel_lock::LockHolder,
    raw_path,
    thread::{Thread, Times},
    time::Monotonic,
};

/// A thread that is or was stuck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckThread {
    /// The thread.
    pub thread: Thread,
    /// The phase in which it is stuck.
    pub phase: Phase,
    /// The call, or the program.
    pub syscall: String,
    /// The object, in the mount namespace of the thread.
    #[serde(with = "raw_path::option")]
    pub path: Option<PathBuf>,
    /// The mount of the object, while it is mounted.
    pub mount: Option<MountPoint>,
    /// Hash that names the target.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// The process.
    pub actor: Arc<Actor>,
    /// Inode number of its mount namespace; 0 if unreadable.
    pub mnt_ns: u32,
    /// The start of the call.
    pub began: Monotonic,
    /// The event that this start is.
    pub since: Since,
    /// Whether it started before the probes were attached.
    pub before_start: bool,
    /// The time of this observation.
    pub at: Monotonic,
    /// Whether it has ended.
    pub over: bool,
    /// Its state and times.
    pub times: Option<Times>,
    /// The kernel function that it waits in.
    pub wait_channel: Option<String>,
    /// The functions on its kernel stack, the innermost first.
    pub stack: Vec<String>,
    /// Its progress since the last report, or since the first scan.
    pub progress: Option<WaitProgress>,
    /// The I/O of block devices, if it may wait for one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub disks: Vec<DiskWork>,
    /// If it waits for a lock of the kernel: the thread that holds it, then the one that holds the lock which that one waits
    /// for, and so on. Empty where the kernel does not name it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lock: Vec<LockHolder>,
}
