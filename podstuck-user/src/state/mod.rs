//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`podstuck_confine::helper`; `questions` lists all that implements its `Question`); what the kernel
//! answers from memory is read here (`mounts`, `namespaces`, `sockets`, `thread`), where it takes a lock on a thread
//! that can be left behind (`podstuck_confine::timed_read`). `sample` looks every few seconds, `hung` follows threads, the
//! others look when they are asked.

pub(crate) mod anywhere;
pub(crate) mod api;
mod as_process;
mod attributes;
mod block_volumes;
pub(crate) mod clients;
pub(crate) mod containers;
mod directory;
mod entries;
pub(crate) mod examined_root;
pub(crate) mod file_system;
pub(crate) mod holders;
pub(crate) mod hung;
pub(crate) mod kubelet;
pub(crate) mod kubelet_unit;
mod listeners;
pub(crate) mod listing;
pub(crate) mod logs;
pub(crate) mod look_alikes;
mod memory;
pub(crate) mod mounts;
pub(crate) mod namespaces;
mod only_roots;
mod pod_dirs;
pub(crate) mod pod_logs;
mod protected;
pub(crate) mod queries;
pub mod questions;
mod reach;
mod registrar;
mod remaining;
pub(crate) mod runtime;
pub(crate) mod sample;
mod seen_by;
pub mod show_roots;
mod sockets;
mod space;
mod swap;
mod thread;
pub(crate) mod traces;
mod unix_diag;
mod vol_data;

/// Files that look like a node's, for tests.
#[cfg(test)]
mod scratch {
    use std::{fs, path::PathBuf};

    /// With the directories above it.
    pub(super) fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
