//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`look` and `holders`, and `patient` for threads that may wait); what the kernel answers
//! from memory is read here (`mounts`, `namespaces`, `sockets`, `thread`, `users`), where it takes a
//! lock on a thread that can be left behind (`bounded`). `sample` looks every few seconds, `stuck`
//! follows threads, the others look when they are asked.

mod attributes;
mod bounded;
mod entries;
pub mod file_system;
pub mod holders;
mod left_behind;
pub mod look;
pub mod mount_point;
mod mountinfo;
pub mod mounts;
pub mod namespaces;
mod patient;
pub mod peek;
pub mod pod_dirs;
mod remaining;
pub mod rooms;
pub mod sample;
mod sockets;
pub mod stuck;
mod swap;
pub mod thread;
pub mod users;

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
