//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`podstuck_confine::helper`; `questions` lists all that implements its `Question`); what the kernel
//! answers from memory is read here (`mounts`, `namespaces`, `sockets`, `thread`), where it takes a lock on a thread
//! that can be left behind (`podstuck_confine::timed_read`). `sample` looks every few seconds, `hung` follows threads, the
//! others look when they are asked.

pub mod anywhere;
pub mod api;
mod as_process;
pub mod asked;
mod attributes;
mod block_volumes;
mod blocked;
pub mod clients;
pub mod containers;
mod directory;
mod disks;
mod dra;
mod entries;
pub mod examined_root;
pub mod file_system;
mod fuse_servers;
pub mod holders;
pub mod hung;
pub mod kernel_locks;
pub mod kubelet;
pub mod kubelet_unit;
mod listeners;
pub mod listing;
pub mod logs;
pub mod look_alikes;
mod memory;
pub mod mounts;
pub mod namespaces;
mod only_roots;
mod pod_dirs;
pub mod pod_logs;
mod protected;
pub mod questions;
pub mod reach;
mod registrar;
mod remaining;
pub mod runtime;
pub mod sample;
mod seen_by;
pub mod show_roots;
mod socket_file;
mod sockets;
mod space;
mod subvolume;
mod swap;
mod tcp;
mod thread;
pub mod traces;
mod unix_diag;
mod vol_data;
mod waits;

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
