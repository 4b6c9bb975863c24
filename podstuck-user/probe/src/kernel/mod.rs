//! The running kernel: where its structures keep the data that the probes read, and how the probes are loaded and
//! attached.

pub mod attach;
pub mod btf;
pub mod directories;
pub mod hooks;
pub mod io_uring;
pub mod layout;
pub mod links;
pub mod load;
pub mod locks;
pub mod memory;
pub mod obstacle;
pub mod pinned;
mod programs;
pub mod roots;
pub mod selftest;
pub mod selinux;
pub mod tracefs;
