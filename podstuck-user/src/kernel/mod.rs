//! The running kernel: where its structures keep what the probes read, and how the probes get in.

pub mod attach;
pub mod btf;
pub mod facts;
pub mod hooks;
pub mod layout;
pub mod load;
pub mod privilege;
pub mod selftest;
pub mod tracefs;
