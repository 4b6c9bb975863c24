//! The running kernel: where its structures keep what the probes read, and how the probes get in.

pub mod attach;
pub mod btf;
pub mod directories;
pub mod hooks;
pub mod io_uring;
pub mod layout;
pub mod links;
pub mod load;
pub mod memory;
pub mod obstacle;
mod programs;
pub mod roots;
pub mod selftest;
pub mod selinux;
pub mod tracefs;
