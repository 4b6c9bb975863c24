//! What a process waits for, as far as the kernel shows it: the process at the other end.

use core::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{client::Request, raw_path};

/// A process that must act for a pod, or that such a process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Process id.
    pub pid: u32,
    /// When it was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// Its program and what it is to do, safe to be shown.
    pub command: String,
    /// `R`, `S`, `D`, ... of its first thread.
    pub state: char,
    /// The kernel function that its first thread waits in, where that is told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<String>,
    /// Why it was looked at.
    pub part: Part,
    /// What it may wait for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub on: Vec<On>,
}

impl Waiting {
    /// Its program and its process id.
    pub fn name(&self) -> String {
        format!("{} (pid {})", self.command, self.pid)
    }
}

/// Why a process was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// It looks after containers of the pod.
    Shim,
    /// It works for all pods: kubelet, a runtime, a driver.
    Daemon,
    /// It was started for one task, and ends when that is done: its parent waits for it.
    Task,
    /// Another process waits for it.
    Other,
}

/// What a process may wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// A child that has not ended.
    Child {
        /// Its process id.
        pid: u32,
        /// A thread of the parent is in `wait4(2)` or `waitid(2)` for it.
        is_waited_for: bool,
    },
    /// A lock on a file, which another process has.
    Lock {
        /// The file, where that is known.
        #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
        file: Option<PathBuf>,
        /// Who has it, where that is known.
        holder: Option<u32>,
    },
    /// The other end of a local socket.
    Socket {
        /// Number of its own end.
        number: u64,
        /// Where the server listens, where that is known.
        #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
        path: Option<PathBuf>,
        /// Who has the other end, where that is known.
        peer: Option<u32>,
        /// How far what it has sent has come.
        request: Request,
        /// Bytes that it has sent and the other has not read; 0 also where the kernel does not count them.
        unread: u32,
    },
    /// The other end of a TCP connection.
    Connection {
        /// Number of its own end.
        number: u64,
        /// Where to.
        remote: SocketAddr,
        /// Who has the other end, where that is a process of the same network namespace.
        peer: Option<u32>,
        /// How far what it has sent has come.
        request: Request,
        /// Bytes that the other has not read, or not acknowledged.
        unread: u32,
        /// How often the kernel has sent the same again without an answer.
        retries: u32,
    },
    /// A pipe that a thread of it reads from or writes to.
    Pipe {
        /// Its number.
        number: u64,
        /// It reads.
        reads: bool,
        /// Who else has it open.
        others: Vec<u32>,
    },
}

/// What tells one thing that a process waits for from another.
pub type Key = (u8, u64, Option<Request>);

impl On {
    /// The process at the other end, where one is known.
    pub fn other(&self) -> Option<u32> {
        match self {
            Self::Child { pid, .. } => Some(*pid),
            Self::Lock { holder, .. } => *holder,
            Self::Socket { peer, .. } | Self::Connection { peer, .. } => *peer,
            Self::Pipe { others, .. } => others.first().copied(),
        }
    }

    /// Whether it is the same as at another look.
    pub fn key(&self) -> Key {
        match self {
            Self::Child { pid, .. } => (0, u64::from(*pid), None),
            Self::Lock { holder, .. } => (1, holder.map_or(0, u64::from), None),
            Self::Socket { number, request, .. } => (2, *number, Some(*request)),
            Self::Pipe { number, .. } => (3, *number, None),
            Self::Connection { number, request, .. } => (4, *number, Some(*request)),
        }
    }

    /// What tells the one at the other end from another.
    pub fn end(&self) -> Key {
        self.other().map_or_else(|| self.key(), |pid| (u8::MAX, u64::from(pid), None))
    }
}
