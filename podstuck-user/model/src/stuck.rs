//! A thread that is stuck in a removal or an unmount, with names.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    hung::{DiskWork, MountPoint, Phase, Since, WaitProgress},
    identity::{Actor, Target},
    raw_path,
    thread::{Thread, Times},
    time::Monotonic,
};

/// A thread that is stuck, or was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckThread {
    /// Which one.
    pub thread: Thread,
    /// Where it is stuck.
    pub phase: Phase,
    /// The call, or the program.
    pub syscall: String,
    /// The object in the mount namespace of the thread.
    #[serde(with = "raw_path::option")]
    pub path: Option<PathBuf>,
    /// What the object is on, while it is mounted.
    pub mount: Option<MountPoint>,
    /// Hash that names the target.
    pub target_id: u64,
    /// What the object belongs to.
    pub target: Arc<Target>,
    /// Whose thread it is.
    pub actor: Arc<Actor>,
    /// Inode number of its mount namespace; 0 when that could not be read.
    pub mnt_ns: u32,
    /// When it began.
    pub began: Monotonic,
    /// What that is.
    pub since: Since,
    /// Whether that was before the probes were there.
    pub before_start: bool,
    /// When it was seen.
    pub at: Monotonic,
    /// Whether it is over.
    pub over: bool,
    /// Its state.
    pub times: Option<Times>,
    /// The kernel's function that it waits in.
    pub wait_channel: Option<String>,
    /// The functions that it is in, the innermost first.
    pub stack: Vec<String>,
    /// How it came on since it was reported last, or since the first look.
    pub progress: Option<WaitProgress>,
    /// What block devices have done so far, where the thread may wait for one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub disks: Vec<DiskWork>,
}
