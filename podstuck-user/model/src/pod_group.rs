//! What is left of a pod in the control groups.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{identity::Target, raw_path, runtime::Shim};

/// What is left of a pod in the control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Hash that names the pod as a target; 0 until it was attributed.
    pub target_id: u64,
    /// The pod as a target.
    pub target: Arc<Target>,
    /// The pod.
    pub uid: String,
    /// Its group's directory.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Whether a runtime's group of a container is in it.
    pub has_containers: bool,
    /// The group of version 1 whose `freezer.state` keeps its processes from running: its own, one
    /// below or one above.
    #[serde(with = "raw_path::option")]
    pub frozen: Option<PathBuf>,
    /// Processes in it.
    pub tasks: Vec<Task>,
    /// The runtime's processes that look after them, mostly one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shims: Vec<Shim>,
}

/// A process that is in a pod's control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// The thread that the rest is about: one that cannot be killed, else the first.
    pub tid: u32,
    /// Its name, safe to be shown.
    pub comm: String,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// What it does about `SIGTERM`; `None` in recordings that are older than the question.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub term: Option<Term>,
    /// `SIGKILL` has been sent and not yet taken. Neither this nor `exiting` is said of one that
    /// waits until the core dump of its process is written.
    pub killed: bool,
    /// It has taken it, and is about to end.
    pub exiting: bool,
    /// When the thread was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// How often it has been woken so far, where it is to end and that was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub woken: Option<u64>,
    /// What it has read and written so far: bytes by the calls that it made and by devices, and those calls; where
    /// it is to end and that was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<u64>,
    /// Bytes of answers so far from the servers of all NFS mounts that it sees, where no signal reaches it and that
    /// was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received: Option<u64>,
    /// The kernel function that it waits in, where that is told.
    pub wait_channel: Option<String>,
    /// Functions on its kernel stack, the innermost first; empty without `CAP_SYS_ADMIN`.
    pub stack: Vec<String>,
    /// Its working directory, as the process names it.
    #[serde(with = "raw_path::option")]
    pub directory: Option<PathBuf>,
    /// Its control group.
    #[serde(with = "raw_path")]
    pub group: PathBuf,
}

/// What becomes of a signal that is sent to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// It is sent, and the thread has not taken it.
    Pending,
    /// The thread blocks it.
    Blocked,
    /// The process ignores it.
    Ignored,
    /// The process has a handler for it.
    Handled,
    /// It ends the process, unless that is the first one of its PID namespace: then nothing happens
    /// (pid_namespaces(7)).
    Default,
}

impl Term {
    /// As part of a sentence about a process.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pending => "SIGTERM is pending",
            Self::Blocked => "blocks SIGTERM",
            Self::Ignored => "ignores SIGTERM",
            Self::Handled => "has a handler for SIGTERM",
            Self::Default => "has no handler for SIGTERM",
        }
    }
}

impl Task {
    /// Whether it runs or waits, and no `SIGKILL` has reached it.
    pub fn is_alive(&self) -> bool {
        !self.killed && !self.exiting && !matches!(self.state, 'Z' | 'X')
    }

    /// Whether it is to end, and waits where no signal reaches it.
    pub fn is_unkillable(&self) -> bool {
        self.state == 'D' && (self.killed || self.exiting)
    }
}
