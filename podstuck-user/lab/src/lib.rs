//! Real, contained cases of pods that stay Terminating, to try a diagnosis on a laptop.
//!
//! [`run`] builds a tree like kubelet's in a temporary directory and starts a second process of the same program
//! through [`removal_main`], which plays kubelet: it makes the mounts of the case in a mount namespace of its own and
//! deletes the pod with the calls, the order and the retries of a real kubelet. The calls and the kernel's errors are
//! real; only the tree, the pod and the process name are made up. The host sees none of the mounts, and nothing
//! remains afterwards.

mod attribute;
mod backoff;
mod build;
mod calls;
mod case;
mod cases;
mod cgroup;
mod cleanup;
mod control;
mod disk;
mod fixture;
mod freeze;
pub mod fuse;
mod go_remove;
mod helper;
mod klog;
mod kubelet;
mod layout;
mod mass_files;
mod message;
mod namespace;
mod program;
mod removal;
mod removal_process;
mod runner;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Write},
    process::Command,
    time::Duration,
};

pub use case::{Case, Expected};
pub use cases::{FAMILIES, cases, find};
pub use helper::{HelperArgs, helper_main};
pub use layout::lab_directory;
pub use removal::{RemovalArgs, removal_main};
pub use runner::{relaunch_self, run};

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Duration from the start of the removal. `None` runs until the case ends by itself (a stuck one only when its
    /// fault is fixed) or the stop flag is set.
    pub duration: Option<Duration>,
    /// Delay between the completion of the tree and the start of the removal, so that a watcher that requires the
    /// pod's directory can be started.
    pub start_delay: Duration,
    /// Entries of `emptydir-mass-files`; `None` for 300,000.
    pub entries: Option<u32>,
    /// Maximum number of deletions per second; `None` for the case's default.
    pub rate: Option<u32>,
    /// Maximum number of complete attempts, over all pods; `None` for no limit. For tests that count calls: how many
    /// attempts fit into a duration depends on the machine.
    pub attempts: Option<u64>,
    /// Plays the case as if an hour had passed: removals are attempted before the case is announced, kubelet's log
    /// contains attempts at the longest back-off, and the next attempt is two minutes away.
    pub late: bool,
    /// Creates the command that runs [`removal_main`].
    pub launcher: fn(&RemovalArgs) -> io::Result<Command>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: None,
            start_delay: Duration::ZERO,
            entries: None,
            rate: None,
            attempts: None,
            late: false,
            launcher: relaunch_self,
        }
    }
}

/// The lab cannot run on this machine: a privilege or a file system is missing. The message says which, and what to
/// do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Prints a note for the user. A closed stderr must not end the run, which has to clean up.
fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
