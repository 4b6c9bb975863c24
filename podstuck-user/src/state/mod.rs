//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`look` and `holders`, and `patient` for threads that may wait); what the kernel answers
//! from memory is read here (`mounts`, `namespaces`, `sockets`, `users`). `sample` looks every few
//! seconds, the others when they are asked.

mod entries;
pub mod file_system;
pub mod holders;
pub mod look;
mod mountinfo;
pub mod mounts;
pub mod namespaces;
mod patient;
pub mod pod_dirs;
mod remaining;
pub mod rooms;
pub mod sample;
mod sockets;
mod swap;
pub mod users;
