//! Hung calls. The shape of [`Hung`] is a part of the contract `podstuck/v1`.

use core::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    call::Outcome,
    identity::{Pod, Volume},
    mounts::Device,
    path::JsonPath,
    raw_path,
};

/// The phase in which a call hangs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Between its entry and its return.
    InSyscall,
    /// `umount2` has returned 0 to the probes, and the kernel shuts the file system down before the caller resumes
    /// (`cleanup_mnt` by task work, fs/namespace.c).
    AfterExit,
    /// An unmounting program has not reached `umount2`.
    BeforeUmount,
}

impl Phase {
    /// The text in output.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::InSyscall => "inside the call",
            Self::AfterExit => "after the call, in the file system's shutdown",
            Self::BeforeUmount => "before the call, umount2 was not reached",
        }
    }
}

/// Multiples of the age at which a call counts as slow. From these on, a frozen file system, an unresponsive server
/// and a device are suspected. With the default that is after 10, 30 and 120 seconds: a snapshot takes a few, an
/// object store needs some to answer a request, and a multipath device may fail over for a minute (`no_path_retry`);
/// the kernel warns after two (`hung_task_timeout_secs`).
pub const PATIENCE: [u32; 3] = [5, 15, 60];

/// The event from which an age is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Since {
    /// The entry, exit or execution seen by the probes. Exact.
    Probe,
    /// The start of the process: the age is at most this.
    ProcessStart,
    /// The first scan that saw it: the age is at least this.
    FirstLook,
}

/// The mount that an object is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPoint {
    /// `mnt_id`; `None` in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The mount point.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// File system type.
    pub fs_type: String,
    /// Its device, or the source as the type defines it.
    pub source: String,
    /// Minor number of the device; for FUSE, the connection number.
    pub minor: u32,
    /// Requests that the FUSE server has not answered.
    pub unanswered: Option<u64>,
    /// The server of an NFS mount; `None` for other types and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<NfsServer>,
    /// The server of a FUSE mount for which `stat` fails with ENOTCONN; `None` otherwise and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuse: Option<FuseServer>,
}

/// The process that has the connection of a FUSE mount open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FuseServer {
    /// The process with this pid.
    Lives(u32),
    /// No process.
    Gone,
    /// Processes have connections open; the kernel does not show which.
    NotShown,
}

/// The address of an NFS mount's server, and the bytes received from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsServer {
    /// The mount option `addr=`.
    pub address: String,
    /// The mount option `port=`; `None` if absent.
    pub port: Option<u16>,
    /// Bytes of replies so far, to calls of all processes on this file system; `None` if unreadable.
    pub received: Option<u64>,
}

impl NfsServer {
    /// The TCP port, if the server's address is a loopback address.
    pub fn local_port(&self) -> Option<u16> {
        self.port.filter(|_| self.ip().is_some_and(|address| address.is_loopback()))
    }

    /// Whether its address is known and is not a loopback address.
    pub fn is_elsewhere(&self) -> bool {
        self.ip().is_some_and(|address| !address.is_loopback())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
}

/// The progress of a thread between two scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitProgress {
    /// Number of times that it was woken and slept again.
    pub woken: u64,
    /// Milliseconds between the scans.
    pub milliseconds: u64,
    /// Milliseconds since it was last woken, or since the first scan.
    pub quiet_ms: u64,
    /// Whether it was woken since the first scan. Earlier events are unknown.
    pub seen_woken: bool,
}

/// The I/O of a block device since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWork {
    /// Its device number.
    pub device: Device,
    /// Completed reads, writes and flushes.
    pub done: u64,
}

/// A call that has not returned for some time, or that has returned after that time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Hung {
    /// The call, prefixed with the program's name.
    pub syscall: String,
    /// The object, in the caller's mount namespace; empty when it could not be read.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the process.
    pub comm: String,
    /// Age in seconds; duration if it is over.
    pub age_s: f64,
    /// The event from which the age is counted.
    pub since: Since,
    /// The phase in which it hangs.
    pub phase: Phase,
    /// Whether it hung before podstuck started.
    pub since_before_start: bool,
    /// Whether it has returned.
    pub over: bool,
    /// The outcome: `ok`, `EISDIR`; `None` if it was not seen.
    #[serde(rename = "errno_name", serialize_with = "outcome")]
    #[schemars(with = "Option<String>")]
    pub outcome: Option<Outcome>,
    /// State of the thread, such as `D`.
    pub state: Option<char>,
    /// The kernel function that it waits in.
    pub wchan: Option<String>,
    /// The functions on its kernel stack, the innermost first.
    pub stack: Vec<String>,
    /// The pod that it blocks.
    pub victim: Option<Pod>,
    /// The volume concerned.
    pub volume: Option<Volume>,
}

fn outcome<S: Serializer>(outcome: &Option<Outcome>, serializer: S) -> Result<S::Ok, S::Error> {
    outcome.map(Outcome::name).serialize(serializer)
}
