//! The workloads, their sizes, and the reports of their program.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use serde::Deserialize;

use super::place::{FileSystem, Volume};
use super::tracer::Tracer;

/// Counts by call, then outcome.
pub(crate) type Tally = BTreeMap<String, BTreeMap<String, u64>>;

/// A tracer that stops the workload at each call is measured with fewer calls, to limit the time.
const CALLS_WHEN_SLOW: u64 = 20_000;
/// Once per run, a tree as large as a mass deletion.
const LARGE_TREE: u64 = 1_000_000;
/// Minimum number of calls for a useful time.
const FEWEST: u64 = 100;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Workload {
    /// unlinkat on tmpfs
    Tmpfs,
    /// unlinkat on ext4, on a loop device
    Ext4,
    /// unlinkat on XFS, on a loop device
    Xfs,
    /// unlinkat with AT_REMOVEDIR on a mount point, which always fails
    Busy,
    /// Go's os.RemoveAll of deep trees on tmpfs
    Tree,
    /// getppid only, in a process that never deletes
    Bystander,
    /// mount and umount2 of a tmpfs
    Umount,
    /// unlinkat on tmpfs by two threads of a process, on two processors
    TwoWriters,
    /// unlinkat with AT_REMOVEDIR on tmpfs by two threads, on whichever processor, 300,000 directories each
    Storm,
    /// renameat in a directory of a pod, which is followed and not counted
    Rename,
    /// execve of a small program, which is looked at and not counted
    Exec,
}

impl Workload {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tmpfs => "unlinkat on tmpfs",
            Self::Ext4 => "unlinkat on ext4 (loop)",
            Self::Xfs => "unlinkat on XFS (loop)",
            Self::Busy => "unlinkat failing with EBUSY",
            Self::Tree => "os.RemoveAll of deep trees on tmpfs",
            Self::Bystander => "bystander that only calls getppid",
            Self::Umount => "umount2 of a tmpfs",
            Self::TwoWriters => "unlinkat on tmpfs by two threads at once",
            Self::Storm => "removal of 300,000 directories each by two threads at once",
            Self::Rename => "renameat on tmpfs",
            Self::Exec => "execve of a small program",
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn file_system(self) -> FileSystem {
        match self {
            Self::Ext4 => FileSystem::Ext4,
            Self::Xfs => FileSystem::Xfs,
            _ => FileSystem::Tmpfs,
        }
    }

    /// The system call to trace, by its name in strace and perf.
    pub(crate) fn syscall(self) -> &'static str {
        match self {
            Self::Umount => "umount2",
            other => other.tracepoint(),
        }
    }

    /// The system call to trace, by its name in the kernel's tracepoints.
    pub(crate) fn tracepoint(self) -> &'static str {
        match self {
            Self::Umount => "umount",
            Self::Rename => "renameat",
            Self::Exec => "execve",
            _ => "unlinkat",
        }
    }

    /// Number of calls, or of entries of a tree.
    pub(crate) fn calls(self, tracer: Tracer, round: u32, scale: f64) -> u64 {
        let calls: u64 = match self {
            Self::Tmpfs | Self::Busy | Self::Rename => 100_000,
            Self::TwoWriters => 200_000,
            Self::Storm => 600_002,
            Self::Ext4 | Self::Xfs => 50_000,
            Self::Tree if round == 0 => LARGE_TREE,
            Self::Tree => 100_000,
            Self::Bystander => 1_000_000,
            Self::Umount | Self::Exec => 3_000,
        };
        let calls = if tracer.is_slow() { calls.min(CALLS_WHEN_SLOW) } else { calls };
        ((calls as f64 * scale) as u64).max(FEWEST)
    }

    /// The command that makes the calls.
    pub(crate) fn command(
        self,
        program: &Path,
        volume: &Volume,
        calls: u64,
        cpu: usize,
    ) -> Command {
        let kind = match self {
            Self::Tmpfs | Self::Ext4 | Self::Xfs | Self::TwoWriters => "unlinkat",
            Self::Storm => "volumes",
            Self::Busy => "busy",
            Self::Tree => "tree",
            Self::Bystander => "getppid",
            Self::Umount => "umount",
            Self::Rename => "rename",
            Self::Exec => "exec",
        };
        let mut command = Command::new(program);
        command.arg(kind).arg("--dir").arg(&volume.dir);
        command.args(["--calls", &calls.to_string()]);
        if matches!(self, Self::TwoWriters | Self::Storm) {
            command.args(["--threads", "2"]);
        } else {
            command.args(["--cpu", &cpu.to_string()]);
        }
        if self == Self::Storm {
            // One volume for each thread, whose removal is also a call.
            command.args(["--portion", &(calls / 2 - 1).to_string()]);
        }
        if self == Self::Tree {
            // The whole tree at once, as in a real deletion.
            command.args(["--portion", &calls.to_string()]);
        }
        command
    }
}

/// The output of the workload's program.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) calls: u64,
    pub(crate) ns_per_call: f64,
    pub(crate) cpu_ns_per_call: f64,
    pub(crate) tally: Tally,
    pub(crate) up_ns: u64,
    pub(crate) over_ns: u64,
    #[serde(default)]
    pub(crate) began_ns: Vec<u64>,
}

impl Report {
    /// The calls that a tracer of deletions should count.
    pub(crate) fn truth(&self) -> Tally {
        let mut tally = self.tally.clone();
        tally.retain(|call, _| !["getppid", "renameat", "execve"].contains(&call.as_str()));
        tally
    }
}

/// The sum of all counts of a tally.
pub(crate) fn total(tally: &Tally) -> u64 {
    tally.values().flat_map(BTreeMap::values).sum()
}
