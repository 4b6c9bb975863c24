//! Real, contained cases of what keeps a pod Terminating, to see a diagnosis on a laptop.
//!
//! [`run`] builds a kubelet-like tree in a temporary directory and starts a second process, this
//! same program by [`removal_main`], that plays kubelet's part: it makes the mounts of the case in
//! a mount namespace of its own and deletes the pod with the calls, the order and the retries of a
//! real kubelet. What it does is real (real calls, real errors of the kernel); only the tree, the
//! pod and the name of the process are made up. The host sees no mount of it, and when it ends,
//! nothing is left.

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

/// How a case is played.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// End after this time, counted from the start of the removal; `None` waits for the case to
    /// end by itself (a stuck one only does so when its fault is cured) or for the stop flag.
    pub duration: Option<Duration>,
    /// How long the finished tree lies still before the removal starts, so that a watcher that
    /// wants the pod's directory to exist can be started.
    pub start_delay: Duration,
    /// Entries of `emptydir-mass-files`; `None` for 300,000.
    pub entries: Option<u32>,
    /// Most deletions per second; `None` leaves it to the case.
    pub rate: Option<u32>,
    /// End after this number of whole attempts, over all pods; `None` sets no limit. For tests that count calls:
    /// how many fit into a duration depends on the machine.
    pub attempts: Option<u64>,
    /// As an hour into the incident: the removal is tried before the case is announced, kubelet's log tells of
    /// attempts at its longest back-off, and the next one is two minutes away.
    pub late: bool,
    /// Makes the command that ends up in [`removal_main`].
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

/// The lab cannot work on this machine: privilege or file system. The message names what is
/// missing and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Tells the person at the terminal. A closed stderr must not end the run, which has to clean up.
fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
