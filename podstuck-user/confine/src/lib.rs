//! Limits the privileges of the tool, and reads what may never answer.
//!
//! Each thread and each helper restricts itself to what its work takes (`role`, by `privilege`, `refused_calls` and
//! `write_places`). Reads that could touch a dead file system run in a process of the `fork_server` that can be left
//! behind: `helper` asks it and bounds how many hang, `alive` names what is not to be entered (by `lies_on`,
//! `mount_point`, `nfs_stats`). What the kernel answers from memory is read here (`proc`, with `credentials` and
//! `silent`); a read that takes a lock runs on a thread that can be left behind (`timed_read`). `given_file` and
//! `way` open files that others name; `clock`, `back_off` and `facts` depend on no other module.

pub mod back_off;
pub mod clock;
pub mod credentials;
pub mod facts;
pub mod given_file;
pub mod silent;
pub mod way;

pub mod proc;
pub mod timed_read;

pub mod pins;
pub mod privilege;
pub mod refused_calls;
mod write_places;

pub mod role;

pub mod fork_server;

pub mod lies_on;
pub mod mount_point;
pub mod nfs_stats;

pub mod alive;

pub mod helper;
