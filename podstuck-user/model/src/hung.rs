//! Calls that do not return. The shape of [`Hung`] is a part of the contract `podstuck/v1`.

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

/// Where a call is stuck.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Between its entry and its return.
    InSyscall,
    /// `umount2` has returned 0 to the probes, and the kernel shuts the file system down before the
    /// caller gets to know (`cleanup_mnt` by task work, fs/namespace.c).
    AfterExit,
    /// A program that is there to unmount has not come to `umount2`.
    BeforeUmount,
}

impl Phase {
    /// What a person is told.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::InSyscall => "inside the call",
            Self::AfterExit => "after the call, in the file system's shutdown",
            Self::BeforeUmount => "before the call, umount2 was not reached",
        }
    }
}

/// From these multiples of the age at which a call is called slow, it may be more than slow: a file system that
/// is frozen, a server that does not answer, a device. By default that is after 10, 30 and 120 seconds: a
/// snapshot takes a few, an object store takes some for a request that it answers, and a multipath device may
/// fail over for a minute (`no_path_retry`) while the kernel complains after two (`hung_task_timeout_secs`).
pub const PATIENCE: [u32; 3] = [5, 15, 60];

/// What an age is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Since {
    /// What the probes saw: the entry, the exit or the execution. Exact.
    Probe,
    /// The start of the process: at most so old.
    ProcessStart,
    /// The first look at it: at least so old.
    FirstLook,
}

/// What an object is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPoint {
    /// `mnt_id`; `None` in recordings that do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Where it is mounted.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// File system type.
    pub fs_type: String,
    /// Device, or whatever the type calls its source.
    pub source: String,
    /// Minor number of the device: for FUSE, the number of its connection.
    pub minor: u32,
    /// Requests that a FUSE server has not answered.
    pub unanswered: Option<u64>,
    /// The server of an NFS mount; `None` of others, and in recordings that do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<NfsServer>,
    /// Who serves a FUSE mount, where a look at it fails with ENOTCONN; `None` elsewhere, and in recordings that do not
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuse: Option<FuseServer>,
}

/// Who has the connection of a FUSE mount open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FuseServer {
    /// This process.
    Lives(u32),
    /// No process.
    Gone,
    /// Processes have connections open, and the kernel does not show which.
    NotShown,
}

/// Where an NFS mount's server is, and what has come from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsServer {
    /// `addr=` of the mount's options.
    pub address: String,
    /// `port=`; `None` where the options do not say it.
    pub port: Option<u16>,
    /// Bytes of answers so far, to calls on this file system by anybody; `None` where that cannot be read.
    pub received: Option<u64>,
}

impl NfsServer {
    /// The port of the node itself that it is to be reached at, where its address is the node's own.
    pub fn local_port(&self) -> Option<u16> {
        self.port.filter(|_| self.ip().is_some_and(|address| address.is_loopback()))
    }

    /// Whether its address is known, and is not one that only the node itself has.
    pub fn is_elsewhere(&self) -> bool {
        self.ip().is_some_and(|address| !address.is_loopback())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
}

/// How a thread came on between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitProgress {
    /// How often it was woken, and went to sleep again.
    pub woken: u64,
    /// Time between the looks, in milliseconds.
    pub milliseconds: u64,
    /// Time since it was woken last, or since the first look of all, in milliseconds.
    pub quiet_ms: u64,
    /// Whether it was ever woken since the first look. What happened before is not known.
    pub seen_woken: bool,
}

/// What a block device has done since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWork {
    /// Its number.
    pub device: Device,
    /// Reads, writes and flushes that it has completed.
    pub done: u64,
}

/// A call that has not returned for a while, or that took that long and now is over.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Hung {
    /// The call; the program's name before it.
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
    /// How long it has lasted, in seconds; in the end, how long it took.
    pub age_s: f64,
    /// What the age is counted from.
    pub since: Since,
    /// Where it is stuck.
    pub phase: Phase,
    /// Whether it was stuck when podstuck started.
    pub since_before_start: bool,
    /// Whether it has returned.
    pub over: bool,
    /// How it ended: `ok`, `EISDIR`; `None` when that was not seen.
    #[serde(rename = "errno_name", serialize_with = "outcome")]
    #[schemars(with = "Option<String>")]
    pub outcome: Option<Outcome>,
    /// State letter of the thread, such as `D`.
    pub state: Option<char>,
    /// The kernel's function in which it waits.
    pub wchan: Option<String>,
    /// The kernel's functions that it is in, the innermost first.
    pub stack: Vec<String>,
    /// The pod that waits for it.
    pub victim: Option<Pod>,
    /// The volume concerned.
    pub volume: Option<Volume>,
}

fn outcome<S: Serializer>(outcome: &Option<Outcome>, serializer: S) -> Result<S::Ok, S::Error> {
    outcome.map(Outcome::name).serialize(serializer)
}
