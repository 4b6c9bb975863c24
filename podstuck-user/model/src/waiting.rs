//! The waits of a process that the kernel shows, with the process at the other end.

use core::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{chain::Who, client::Request, kernel_lock::LockHolder, raw_path};

/// A process that must act for a pod, or that such a process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Process id.
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    pub started: u64,
    /// Its program and subcommand, safe to show.
    pub command: String,
    /// State of its main thread: `R`, `S`, `D`, ...
    pub state: char,
    /// The kernel function that its main thread waits in, if visible.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<String>,
    /// Why it was inspected.
    pub part: Part,
    /// Its possible waits.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub on: Vec<On>,
    /// The threads that hold the kernel locks for which its main thread sleeps, as in
    /// [`StuckThread::lock`](super::stuck::StuckThread::lock).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lock: Vec<LockHolder>,
}

impl Waiting {
    /// The process, by its program.
    pub fn who(&self) -> Who {
        Who::process(&self.command, self.pid)
    }
}

/// Why a process was inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// It is a shim of the pod's containers.
    Shim,
    /// It serves all pods: kubelet, a runtime, a driver.
    Daemon,
    /// It was started for one task and ends when that is done: its parent waits for it.
    Task,
    /// It is a process of one of the pod's containers, or such a process waits for it as its child.
    Container,
    /// Another process waits for it.
    Other,
}

/// A possible wait of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// A child process that has not ended.
    Child {
        /// Its process id.
        pid: u32,
        /// Whether a thread of the parent is in `wait4(2)` or `waitid(2)` for it.
        is_waited_for: bool,
    },
    /// A file lock that another process holds.
    Lock {
        /// The file, if known.
        #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
        file: Option<PathBuf>,
        /// The process that holds it, if known.
        holder: Option<u32>,
    },
    /// The peer of a Unix domain socket.
    Socket {
        /// Inode number of its own end.
        number: u64,
        /// The path of the server's socket, if known.
        #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
        path: Option<PathBuf>,
        /// The process at the other end, if known.
        peer: Option<u32>,
        /// The state of the data that it sent.
        request: Request,
        /// Bytes sent and not read by the peer; 0 also if the kernel does not count them.
        unread: u32,
    },
    /// The peer of a TCP connection.
    Connection {
        /// Inode number of its own end.
        number: u64,
        /// The remote address.
        remote: SocketAddr,
        /// The process at the other end, if it is in the same network namespace.
        peer: Option<u32>,
        /// The state of the data that it sent.
        request: Request,
        /// Bytes that the peer has not read or not acknowledged.
        unread: u32,
        /// Number of unanswered retransmissions.
        retries: u32,
    },
    /// The kernel: one of its threads sleeps uninterruptibly. Looked for in processes of containers.
    Kernel {
        /// The thread.
        tid: u32,
        /// Whether it is a worker of the process's io_uring: the kernel names it `iou-wrk-TID` (io_uring/io-wq.c).
        is_worker: bool,
        /// The kernel function that it sleeps in, if visible.
        channel: Option<String>,
        /// The file that its call is on, if known.
        file: Option<CalledFile>,
        /// How often the thread slept: the same number in two scans is the same sleep.
        sleeps: u64,
    },
    /// A pipe that one of its threads reads from or writes to.
    Pipe {
        /// Its inode number.
        number: u64,
        /// Whether it reads.
        reads: bool,
        /// Other processes that have it open.
        others: Vec<u32>,
    },
}

/// A file that a system call is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledFile {
    /// Its path, as the process sees it.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Type of its file system.
    pub fs_type: String,
    /// The device of the file system, or the source as the type defines it.
    pub source: String,
}

/// Identifies a wait of a process.
pub type Key = (u8, u64, Option<Request>);

impl On {
    /// The process at the other end, if known.
    pub fn other(&self) -> Option<u32> {
        match self {
            Self::Child { pid, .. } => Some(*pid),
            Self::Lock { holder, .. } => *holder,
            Self::Socket { peer, .. } | Self::Connection { peer, .. } => *peer,
            Self::Pipe { others, .. } => others.first().copied(),
            Self::Kernel { .. } => None,
        }
    }

    /// Identifies the wait across scans.
    pub fn key(&self) -> Key {
        match self {
            Self::Child { pid, .. } => (0, u64::from(*pid), None),
            Self::Lock { holder, .. } => (1, holder.map_or(0, u64::from), None),
            Self::Socket { number, request, .. } => (2, *number, Some(*request)),
            Self::Pipe { number, .. } => (3, *number, None),
            Self::Connection { number, request, .. } => (4, *number, Some(*request)),
            Self::Kernel { tid, sleeps, .. } => {
                (5, u64::from(*tid) << 32 | sleeps & 0xffff_ffff, None)
            }
        }
    }

    /// Identifies the other end: the process if known, else the wait.
    pub fn end(&self) -> Key {
        self.other().map_or_else(|| self.key(), |pid| (u8::MAX, u64::from(pid), None))
    }
}
